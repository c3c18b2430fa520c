"""Reward heads of annotators on texts: personal ones, one for all, and one for each alone, judged by held-out answers.

    PREFKIN_DATA=folder python benchmarks/reward_heads.py [--splits FIRST COUNT]

The texts are UKPConvArg's arguments (91 annotators with at least 100 judgements; the folder holds ukpconvarg/) as
all-MiniLM-L6-v2 encodes them (minilm384.npz). A quarter of the topics is held out. Two kinds of answers: those that
were given, and answers about the same pairs by planted annotators in four groups, right 85 % of the time or so.

A head is what `prefkin export --to reward-head` writes, read back: its log-loss is that of the sigmoid of a difference
of two rewards times the head's `log_odds`, in single precision. "pooled" is one head for everybody, "alone" one from
each annotator's own answers, both with ridges tuned by held-out topics. "pair by pair" are the probabilities with the
doubt of each pair, as `prefkin predict` gives them; "bare" are the personal heads without `log_odds`. To personal:
log-loss above that of the personal heads on the same answers, mean and standard error over splits.
"""

import argparse
import json
import time
import warnings
from dataclasses import replace

import numpy as np
from real_data import of_texts
from safetensors.numpy import load
from scipy.special import expit

from prefkin import PrefKin
from prefkin.apps.export.reward_head import HEAD, reward_head
from prefkin.apps.export.whose import everybody
from prefkin.models.baselines import per_user, pooled
from prefkin.reproduce.worlds.pairs import data_folder

GROUPS = 4
STRENGTH = 2.5  # standard deviation of log odds: answers are right 85 % of the time or so
SET = "ukp-minilm384-all"


def planted(train, test, seed):
    """The same pairs, answered by annotators in groups."""
    rng = np.random.default_rng(seed)
    wanted = rng.standard_normal((GROUPS, train.dim))
    group = dict(zip(train.labels.tolist(), rng.integers(GROUPS, size=len(train.labels)).tolist(), strict=True))
    wanted *= STRENGTH / (train.Z @ wanted.T).std(axis=0)[:, None]
    made = []
    for data in (train, test):
        of = np.array([group[user] for user in data.users.tolist()])
        y = rng.random(len(data)) < expit(np.einsum("ij,ij->i", data.Z, wanted[of]))
        made.append(replace(data, y=y.astype(float)))
    return made


def _note(written):
    """What a head's file says about itself."""
    header = json.loads(written[8 : 8 + int.from_bytes(written[:8], "little")])
    return json.loads(header["__metadata__"]["prefkin"])


def losses(train, test):
    """Log-loss of each answer by each kind of head, and CPU seconds of the fits."""
    found, seconds = {}, {}
    for name, model in {
        "personal": PrefKin(n_jobs=1, predict_for="new items"),
        "pooled": pooled("new items"),
        "alone": per_user("new items"),
    }.items():
        before = time.process_time()
        model.fit(train)
        seconds[name] = time.process_time() - before
        written = reward_head(everybody(model), None)[HEAD]
        head, scale = load(written)["score.weight"], np.array(_note(written)["log_odds"])
        owner = [model.position(user) for user in test.users.tolist()]
        reward = [np.einsum("ij,ij->i", side.astype(np.float32), head[owner]) for side in (test.first, test.second)]
        signed = (2 * test.y - 1) * (reward[0] - reward[1]).astype(float)
        found[name] = np.logaddexp(0, -scale[owner] * signed)
        if name == "personal":
            p = model.predict_proba(test)[:, 1]
            found["bare"] = np.logaddexp(0, -signed)
            found["pair by pair"] = -np.log(np.where(test.y == 1, p, 1 - p))
            structure = model.structure_
    return found, seconds, structure


def standard_error(values):
    """Of their mean."""
    return np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan


def main():
    """A table for each kind of answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", nargs=2, type=int, default=(10, 5), metavar=("FIRST", "COUNT"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    first, count = args.splits
    every = {"given answers": [], f"planted, {GROUPS} groups": []}
    for seed in range(first, first + count):
        split = of_texts(data_folder(), SET, seed)
        parts = (split.train, split.test)
        for name, (train, test) in zip(every, (parts, planted(*parts, seed)), strict=True):
            found, seconds, structure = losses(train, test)
            every[name].append(found)
            shown = "  ".join(f"{method} {loss.mean():.4f}" for method, loss in found.items())
            spent = ", ".join(f"{method} {t:.0f}" for method, t in seconds.items())
            print(f"{name}, split {seed}: {shown}  ({structure}; CPU s: {spent})", flush=True)
    for name, splits in every.items():
        print(f"\n{name} ({count} splits, {sum(len(found['pooled']) for found in splits)} held-out answers)")
        for method in splits[0]:
            loss = np.array([found[method].mean() for found in splits])
            more = loss / [found["personal"].mean() for found in splits] - 1
            print(f"  {method:14}{loss.mean():8.4f}   {more.mean():+7.2%} ± {standard_error(more):.2%} to personal")


if __name__ == "__main__":
    main()
