"""A small round of what `make fuzz` and `make kills` do for long."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import kills
from tests.fuzz.targets import TARGETS, tried

ROUND = {"readers": 40, "folders": 10, "models": 15, "states": 10, "options": 6, "after": 12, "damage": 12, "fits": 10}


@pytest.mark.parametrize("name", TARGETS)
def test_odd_inputs_work_or_are_refused_in_a_line(name, capfd):
    target = TARGETS[name]

    @settings(max_examples=ROUND[name], database=None)
    @given(value=st.deferred(target.inputs))
    def holds(value):
        assert tried(target, value) is None

    holds()


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="processes are looked for in /proc")
@pytest.mark.parametrize("job", ["fit", "reproduce"])
def test_a_kill_leaves_all_or_nothing(job):
    wrong, _ = kills.JOBS[job](1, np.random.default_rng(1))
    assert wrong == []


def test_an_interrupt_in_the_first_second_is_one_line():
    wrong, _ = kills.interrupt(4, None)
    assert [line for line in wrong if "prefkin/" in line or "written" in line.rpartition(":")[2]] == []
