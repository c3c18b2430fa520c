"""Work on many items: the same results on any number of threads, and no more threads than were allowed."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from prefkin import OffC2PL
from prefkin.execution import executor
from prefkin.execution.executor import for_each, on_executor, over_shards, threads
from prefkin.execution.progress import reporting
from tests.conftest import draw_answers


@pytest.fixture
def pools(monkeypatch):
    """How many threads each pool had that was opened."""
    opened = []

    def watched(workers):
        opened.append(workers)
        return ThreadPoolExecutor(workers)

    monkeypatch.setattr(executor, "ThreadPoolExecutor", watched)
    return opened


def test_work_inside_parallel_work_stays_on_its_thread(pools):
    with threads(2):
        found = for_each(lambda i: for_each(lambda j: 10 * i + j, range(3), label="inside"), range(4), label="outside")
    assert found == [[10 * i + j for j in range(3)] for i in range(4)]
    assert pools == [2]


def test_an_error_in_one_item_is_the_error(pools):
    with threads(3), pytest.raises(ZeroDivisionError):
        for_each(lambda i: 1 / i, [1, 2, 0, 3], label="inverses")


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_progress_is_told_whatever_the_threads(n_jobs):
    seen = []
    with threads(n_jobs), reporting(lambda label, done, total: seen.append((label, done, total))):
        for_each(abs, [-1, 2, -3], label="sizes")
    assert seen == [("sizes", done, 3) for done in range(4)]


@pytest.mark.filterwarnings("ignore::prefkin.errors.PrefkinWarning")
def test_one_thread_means_one_thread_after_the_fit_too(rng, pools):
    Z, y, users = draw_answers(rng, n_users=4, dim=70, scale=0.1)
    model = OffC2PL(1.3, n_jobs=1, distance="information").fit(Z, y, users=users)
    model.neighbours(0)
    model.explain(1, 2)
    model.fold_in(Z[:9], y[:9])
    model.summary()
    assert pools == []
    assert np.isfinite(model.theta_).all()


@pytest.mark.parametrize("given", [False, True])
def test_no_more_shards_are_held_than_there_is_room_for(given):
    lock, now, most, done = Lock(), [0], [0], []

    def work(item):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.01)
        with lock:
            now[0] -= 1
            done.append(item)

    with ThreadPoolExecutor(4) as pool, on_executor(pool, here=True) if given else threads(4):
        over_shards(work, range(12), label="shards", room=2)
    assert sorted(done) == list(range(12))
    assert most[0] <= 2


@pytest.mark.parametrize("given", [False, True])
def test_work_on_a_shard_is_done_by_one_thread(given, pools):
    found = []

    def work(item):
        blas = {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}
        found.append((for_each(abs, [-item, item]), blas))

    with threadpool_limits(2), ThreadPoolExecutor(2) as pool, on_executor(pool) if given else threads(2):
        over_shards(work, [1, 2, 3], label="shards")
    assert sorted(found) == [([item, item], {1}) for item in (1, 2, 3)]
    assert pools == ([] if given else [2])
