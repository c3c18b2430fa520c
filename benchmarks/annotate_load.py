"""People who answer all at once: starts `prefkin annotate` and drives it over loopback.

    python benchmarks/annotate_load.py              200 people, d = 64, 10,000 pairs; then 20 people, d = 768
    python benchmarks/annotate_load.py --only 64 --seconds 60

Everybody reads for about a second, answers, and waits for the next question; each response is timed from sending the
answer to having the next question. The driver runs beside the server on the same cores; whether other
programs do, too, is told by the load of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import polars as pl

from prefkin import PrefKin, PrefkinWarning
from prefkin.data.synthetic import make_population

PAIRS = 10_000
PORT = 8765
CASES = {
    64: (200, 60, 1.15, 150.0),
    768: (20, 100, 1.15, 300.0),
}  # people, answers of each of 40 users, think, promise in ms


def prepare(folder: Path, dim: int, answers: int) -> None:
    """A model of 40 users in 8 groups, and pairs to ask about."""
    rng = np.random.default_rng(dim)
    people = make_population(rng, n_users=40, n_groups=8, dim=dim, n_comparisons=answers, strength=4.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrefkinWarning)
        PrefKin().fit(people.data).save(folder / "model.safetensors")
    phi = rng.standard_normal((2 * PAIRS, dim)) / np.sqrt(2)
    pl.DataFrame(
        {
            "context": np.repeat([f"story {x}" for x in range(PAIRS)], 2),
            "action": ["a", "b"] * PAIRS,
            "prompt": np.repeat([f"What about story {x}?" for x in range(PAIRS)], 2),
            "text": [f"Version {i} of a story, told in a sentence or two." for i in range(2 * PAIRS)],
            "phi": phi.tolist(),
        }
    ).write_parquet(folder / "items.parquet")


class Connection:
    """One keep-alive connection: HTTP written by hand, because the driver shares two cores with the server."""

    def __init__(self, token: str) -> None:
        self.token = token

    async def call(self, method: str, path: str, body: dict | None = None) -> dict:
        """JSON in, JSON out."""
        if not hasattr(self, "writer"):
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", PORT)
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{PORT}\r\nAuthorization: Bearer {self.token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self.writer.write(head.encode() + content)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        status, length = int(answer.split(b" ", 2)[1]), 0
        for line in answer.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        said = await self.reader.readexactly(length)
        assert status == 200, said
        return json.loads(said)


async def person(link: str, number: int, think: float, until: float, times: list[tuple[float, float]]) -> int:
    """Join, read, answer, and so on."""
    rng = np.random.default_rng(number)
    joined = await Connection(link.rpartition("/")[2]).call("POST", "/api/join", {"name": f"person {number}"})
    mine = Connection(joined["token"])
    question, n = await mine.call("GET", "/api/question"), 0
    await asyncio.sleep(think * rng.random())
    while time.monotonic() < until:
        begun = time.perf_counter()
        choice = ("left", "right")[int(rng.integers(2))]
        taken = await mine.call("POST", "/api/answer", {"id": question["id"], "choice": choice})
        times.append((time.monotonic(), time.perf_counter() - begun))
        question, n = taken["next"], n + 1
        assert taken["answered"] == n
        await asyncio.sleep(think * (0.7 + 0.6 * rng.random()))
    return n


def memory(process: int) -> float:
    """Largest resident size so far, in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def processor_seconds(process: int) -> float:
    """Of the server so far, all its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def crowd(links: dict, people: int, think: float, seconds: float, times: list[tuple[float, float]]) -> list[int]:
    """Everybody at once; how many answers each had acknowledged."""
    until = time.monotonic() + seconds
    return await asyncio.gather(*(person(links["open"], i, think, until, times) for i in range(people)))


def run(dim: int, seconds: float) -> bool:
    """One case; is what was promised kept?"""
    people, answers, think, promise = CASES[dim]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, dim, answers)
        links = folder / "links.json"
        command = [
            sys.executable,
            "-m",
            "prefkin",
            "annotate",
            "model.safetensors",
            "--items",
            "items.parquet",
            "--open",
        ]
        server = subprocess.Popen(
            [*command, "--port", str(PORT), "--links", str(links)],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        try:
            begun = time.monotonic()
            while not links.exists():
                assert server.poll() is None, "the server did not start"
                time.sleep(0.1)
            started, times = time.monotonic() - begun, []
            before, ours = processor_seconds(server.pid), time.process_time()
            counts = asyncio.run(crowd(json.loads(links.read_text()), people, think, seconds, times))
            ours, used = time.process_time() - ours, processor_seconds(server.pid) - before
            largest, load = memory(server.pid), os.getloadavg()[0]
            found = asyncio.run(_stored(json.loads(links.read_text())["organiser"]))
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=20)
    at, took = np.array(times).T
    steady = at > at.min() + 0.2 * (at.max() - at.min())  # after everybody has joined
    rate = steady.sum() / (at.max() - at[steady].min())
    p50, p95, p99 = 1000 * np.quantile(took[steady], [0.5, 0.95, 0.99])
    assert found == sum(counts), "an acknowledged answer is not in the store, or twice"
    print(
        f"d = {dim}, {people} people, {PAIRS} pairs, {os.cpu_count()} cores: {rate:.0f} answers/s; response median "
        f"{p50:.0f} ms, 95 % {p95:.0f} ms (promised {promise:.0f}), 99 % {p99:.0f} ms; memory {largest:.0f} MB; "
        f"{1000 * used / found:.1f} ms of a core per answer, the driver {1000 * ours / found:.1f}; started in "
        f"{started:.1f} s; {found} answers, each in the store once; load of the machine {load:.1f}"
    )
    return bool(p95 <= promise and largest < 1024 and (dim != 64 or rate >= 150))


async def _stored(link: str) -> int:
    """How many answers the store holds, by the organiser's download."""
    process = await asyncio.create_subprocess_exec(
        *(
            "curl",
            "-sf",
            f"http://127.0.0.1:{PORT}/api/answers",
            "-H",
            f"Authorization: Bearer {link.rpartition('/')[2]}",
        ),
        stdout=subprocess.PIPE,
    )
    said, _ = await process.communicate()
    return said.count(b"\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, choices=CASES, help="one of the two cases")
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    kept = [run(dim, given.seconds) for dim in ([given.only] if given.only else CASES)]
    sys.exit(0 if all(kept) else 1)
