"""A wall clock that is set by writing to a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.doors.adjusted_clock import VARIABLE, AdjustedClock, machine_clock, set_clock
from kourou.doors.clock import RealClock
from kourou.errors import ConfigError

DAY_MS = 24 * 3_600_000


def test_who_writes_to_the_file_sets_the_clock_of_those_who_look_into_it(tmp_path: Path) -> None:
    path = str(tmp_path / "clock")
    set_clock(path, 0)
    clock, machine = machine_clock({VARIABLE: path}), RealClock()
    assert abs(clock.now_ms() - machine.now_ms()) < DAY_MS // 2
    for ahead_ms in (DAY_MS, -DAY_MS, 30 * DAY_MS):
        before = clock.monotonic()
        set_clock(path, ahead_ms)
        assert abs(clock.now_ms() - machine.now_ms() - ahead_ms) < DAY_MS // 2
        assert 0 <= clock.monotonic() - before < DAY_MS


def test_without_the_variable_a_process_has_the_machines_clock() -> None:
    assert type(machine_clock({})) is RealClock


@pytest.mark.parametrize("content", [None, b"", b"1234567"])
def test_a_file_that_is_none_is_named_with_the_way_out(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "clock"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"KOUROU_CLOCK is '{path}'.*name a file of 8 bytes"):
        AdjustedClock(str(path))
