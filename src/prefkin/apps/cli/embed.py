"""`prefkin embed FILE --encoder NAME --out votes.parquet`: texts as features, each distinct one once."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import typer

from prefkin.apps.cli.console import (
    about,
    check_place,
    column_map,
    err,
    out,
    refuse_sources,
    without_panics,
    working,
    write_file,
)
from prefkin.data.embedding import embed_texts, open_encoder
from prefkin.data.formats import with_vectors
from prefkin.data.tables import read_texts
from prefkin.errors import InvalidParameter
from prefkin.models.reports import counted


def embed(
    file: Path = typer.Argument(help="Texts: prompt, chosen, rejected; left, right, label; or a column text of items."),
    encoder: str = typer.Option(
        ..., help="A sentence-transformers model (name or folder), or the folder of a causal language model."
    ),
    out_file: Path = typer.Option(..., "--out", help="Parquet file to write: all columns, and the features."),
    mapping: list[str] = typer.Option([], "--map", help="Other column names: OURS=THEIRS, repeatable."),
    batch: int = typer.Option(32, help="Texts that go through the model together.", min=1),
    cache: Path | None = typer.Option(None, help="What was embedded before; by default OUT with .sqlite behind it."),
) -> None:
    """Texts as features, each distinct one once; the same command goes on where it was interrupted.

    Example: prefkin embed votes.jsonl --encoder all-MiniLM-L6-v2 --out votes.parquet
    """
    if out_file.suffix.lower() != ".parquet":
        raise InvalidParameter(f"--out {out_file}: features are written as .parquet; give such a name")
    refuse_sources("--out", out_file, [file])
    check_place("--out", out_file)
    kept = cache or out_file.with_name(out_file.name + ".sqlite")
    if kept.absolute() == out_file.absolute():
        raise InvalidParameter(f"--cache {kept}: this is what is written; give another file")
    refuse_sources("--cache", kept, [file])
    check_place("--cache", kept)
    begin = time.perf_counter()
    with without_panics(file):
        table = read_texts(file, column_map(mapping))
    opened = time.perf_counter()
    model = open_encoder(encoder, batch)
    start = time.perf_counter()
    kept.parent.mkdir(parents=True, exist_ok=True)
    with working(), about(file):
        done = embed_texts([text for texts in table.sides.values() for text in texts], model, kept)
        vectors = dict(zip(table.sides, np.split(done.vectors, len(table.sides)), strict=True))
        content = with_vectors(table.columns, vectors, table.y, {"prefkin.encoder": json.dumps(model.identity)})
    write_file(out_file, content)
    spent = time.perf_counter() - start + opened - begin
    out.print(
        f"{counted(len(done.vectors), 'text')}, {done.distinct:,} of them distinct, {done.known:,} known before; "
        f"{model.identity['dim']} features"
    )
    if done.distinct > done.known:
        out.print(f"{spent:.1f} s, {done.seconds / spent:.0%} of them in the encoder")
    err.print(f"note: what was embedded is kept in {kept}, for the next time; it may be deleted")
    out.print(f"written to {out_file}: {', '.join(table.sides)} beside the columns of {file.name}")
