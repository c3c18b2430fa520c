"""UKPConvArg: which of two arguments is more convincing? (Habernal & Gurevych 2016, crowd judgements, CC BY 4.0.)

Original files: https://github.com/UKPLab/acl2016-convincing-arguments. Expected in a folder `ukpconvarg` under
$PREFKIN_DATA: `arguments.jsonl` (id, topic, text), `judgements.csv.gz` (worker, topic, first, second, preferred) and,
if at hand, `mpnet768.npz` (ids, emb); otherwise texts are embedded through `prefkin[embed]`.
"""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np

from prefkin.errors import InvalidTable
from prefkin.reproduce.worlds.pairs import ItemPairs, embedded

__all__ = ["read_ukp"]


def read_ukp(folder: Path) -> ItemPairs:
    """All judgements in `folder`/ukpconvarg that are no ties."""
    here = folder / "ukpconvarg"
    for name in ("arguments.jsonl", "judgements.csv.gz"):
        if not (here / name).exists():
            raise InvalidTable(f"{here / name}: no such file; see docs/experiments.md and set PREFKIN_DATA")
    arguments = {row["id"]: row for row in map(json.loads, (here / "arguments.jsonl").read_text().splitlines())}
    if (here / "mpnet768.npz").exists():
        with np.load(here / "mpnet768.npz") as stored:
            ids, embedding = stored["ids"].tolist(), stored["emb"].astype(np.float64)
    else:
        ids = sorted(arguments)
        embedding = embedded([arguments[i]["text"] for i in ids], here / "embeddings.npz")
    place = {name: i for i, name in enumerate(ids)}
    with gzip.open(here / "judgements.csv.gz", "rt") as file:
        rows = [
            (row["worker"], row["topic"], place[row["first"]], place[row["second"]], row["preferred"] == "first")
            for row in csv.DictReader(file)
            if row["preferred"] != "tie" and row["first"] in place and row["second"] in place
        ]
    texts = [arguments.get(i, {"text": ""})["text"] for i in ids]
    return ItemPairs.of(rows, embedding, texts, np.array([arguments.get(i, {"topic": ""})["topic"] for i in ids]))
