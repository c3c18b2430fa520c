"""Compiles the inner loops once, before tests that run side by side would each do so: `python -m tests.compiled`."""

import warnings

import numpy as np

from prefkin import OffC2PL, PrefKin
from prefkin.data.rows import Rows
from prefkin.data.synthetic import make_population
from prefkin.errors import PrefkinWarning
from prefkin.inference.many import fit_sets
from prefkin.inference.sets import Sets


def main():
    data = make_population(np.random.default_rng(0), n_users=6, n_groups=2, dim=3, n_comparisons=30).data
    for dtype in (np.float32, np.float64):
        for writeable in (True, False):
            rows = Rows(data.Z.astype(dtype), data.y.astype(float), np.ones(len(data)))
            rows.Z.flags.writeable = writeable
            fit_sets(rows, Sets.each(np.arange(0, 181, 30)), ridge=1.0)
    fit_sets(rows, Sets.of(np.array([0, 90, 180]), [np.arange(2)] * 9), ridge=1.0)
    OffC2PL(gamma=1e6).fit(data)
    PrefKin().fit(data).fold_in(data.Z[:5], data.y[:5])


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrefkinWarning)
        main()
