import contextlib
import io
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from scipy.special import expit

from prefkin.data.rows import Rows, UserRows

settings.register_profile(
    "prefkin", deadline=None, max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("prefkin")


def pytest_collection_modifyitems(items):
    """Mark what takes a fifth of a second or its cases together half of one: tests by name, files by what they share."""
    here = Path(__file__).parent
    slow = set((here / "slow.txt").read_text().split())
    for item in items:
        name = getattr(item, "originalname", item.name).removeprefix("test_")
        if name in slow or (here in item.path.parents and item.path.relative_to(here).as_posix() in slow):
            item.add_marker(pytest.mark.slow)


def prefkin_says(*args, cwd, said=""):
    """The program, in this process: a second instead of three for imports. It is started for real where that matters.

    `said` is what it reads from its standard input.
    """
    from prefkin.apps.cli.commands import run

    out, err = io.StringIO(), io.StringIO()
    command = ["prefkin", *map(str, args)]
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "argv", command)
        patch.setattr(sys, "stdin", io.StringIO(said))
        try:
            code = run()
        except SystemExit as done:
            code = done.code
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


@pytest.fixture
def rng():
    return np.random.default_rng(20_26)


def draw_answers(rng, n_users=6, dim=3, sizes=None, scale=0.5, strength=2.0, n_groups=2):
    """Comparisons inside the paper's assumption (‖z‖ ≤ 2), of users in groups."""
    sizes = [25] * n_users if sizes is None else sizes
    centres = rng.standard_normal((n_groups, dim))
    theta = strength * centres[np.arange(len(sizes)) % n_groups] / np.sqrt(dim)
    users = np.repeat(np.arange(len(sizes)), sizes)
    Z = np.clip(scale * rng.standard_normal((len(users), dim)), -2 / np.sqrt(dim), 2 / np.sqrt(dim))
    y = (rng.random(len(users)) < expit(np.einsum("ij,ij->i", Z, theta[users]))).astype(int)
    return Z, y, users


def answers_by_degrees():
    """Twelve users who differ by degrees around a common preference, fifty answers each."""
    rng = np.random.default_rng(8)
    theta = np.array([2.0, -1.0, 0.5]) + 0.7 * rng.standard_normal((12, 3))
    users = np.repeat(np.arange(12), 50)
    Z = rng.standard_normal((600, 3))
    y = rng.random(600) < expit(np.einsum("ij,ij->i", Z, theta[users]))
    return Z, y.astype(int), users


def people(seed, sizes, d, scale=1.0, ill=False, dtype=np.float64):
    """Users' rows with answers of their own, and weights."""
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    Z = scale * rng.standard_normal((starts[-1], d))
    if ill:
        Z *= np.logspace(0, -3, d)
    theta = rng.standard_normal((len(sizes), d))
    y = (rng.random(len(Z)) < expit(np.einsum("ij,ij->i", Z, np.repeat(theta, sizes, axis=0)))).astype(float)
    return UserRows(Rows(Z.astype(dtype), y, rng.uniform(0.2, 3.0, len(Z))), starts, np.arange(len(sizes)))


def relative_gradient(rows, theta, ridge, centre=0.0):
    """By how much the tolerance is used, times 1e-6: free of units, in float64."""
    Z, y, w = rows.Z.astype(float), rows.y, rows.weights
    root = 1.0 / np.sqrt(0.25 * w @ Z**2 + ridge)
    slope = Z.T @ (w * (expit(Z @ theta) - y)) + ridge * (theta - centre)
    zero = Z.T @ (w * (0.5 - y)) - ridge * centre
    return np.abs(slope * root).max() / np.abs(zero * root).max()


def allocated(work):
    """Bytes of Python and numpy at the peak of `work`, beyond what was there before."""
    work()  # what is kept for good is not counted
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
