"""Comparisons in folders of Parquet files, for fits out of core."""

import numpy as np
import polars as pl
from scipy.special import expit


def people(users=260, groups=3, rows=14, dim=3, seed=0):
    """A frame of comparisons in random order, of users in groups of equals."""
    rng = np.random.default_rng(seed)
    side = 1 - 2 * (np.arange(groups)[:, None] >= dim)
    centres = 4.0 * side * np.linalg.qr(rng.normal(size=(dim, dim)))[0][np.arange(groups) % dim]
    owner = np.repeat(np.arange(users), rows)
    Z = rng.normal(size=(users * rows, dim)).astype(np.float32)
    y = rng.random(len(owner)) < expit(np.einsum("ij,ij->i", Z, centres[owner % groups]))
    return pl.DataFrame({"user": owner, "y": y.astype(int), "z": Z.tolist()})[rng.permutation(len(owner))]


def folder_of(frame, folder):
    """The frame in two files."""
    folder.mkdir()
    half = len(frame) // 2
    frame[:half].write_parquet(folder / "a.parquet")
    frame[half:].write_parquet(folder / "b.parquet")
    return folder
