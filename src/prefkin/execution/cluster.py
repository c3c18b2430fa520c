"""Executors on several machines, or several processes of one: Dask's, which sends work of a lost worker to another."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefkin.errors import InvalidParameter, ShardError
from prefkin.execution.executor import on_executor

__all__ = ["on_cluster", "on_workers"]

PATIENCE = 10  # seconds to wait for a scheduler
RETRIES = 3  # of work that failed with its worker


def _dask() -> Any:
    try:
        import distributed
    except ImportError:
        raise InvalidParameter("workers and schedulers need Dask: pip install 'prefkin[cluster]'") from None
    return distributed


@contextmanager
def on_workers(number: int) -> Iterator[None]:
    """Let work over shards inside the block be done by so many processes of this machine; one that dies is replaced."""
    dask = _dask()
    quiet = {"n_workers": number, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with (
        dask.LocalCluster(**quiet, memory_limit=0, silence_logs=logging.CRITICAL) as cluster,
        dask.Client(cluster) as client,
        on_executor(client.get_executor(pure=False, retries=RETRIES), here=True),
    ):
        yield


@contextmanager
def on_cluster(address: str) -> Iterator[None]:
    """Let work over shards inside the block be done by the workers of this scheduler, who see the same files."""
    dask = _dask()
    try:
        client = dask.Client(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ShardError(
            f"scheduler {address} cannot be reached ({reason:.80}); start it, or mend --scheduler"
        ) from None
    with client, on_executor(client.get_executor(pure=False, retries=RETRIES)):
        yield
