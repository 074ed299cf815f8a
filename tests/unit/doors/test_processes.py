"""Processes are known by their number and when they began; a number alone may be somebody else's."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from kourou.doors import processes
from kourou.doors.processes import Process


def sleeping(folder: Path) -> Process:
    command = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(60)"]
    return processes.start(command, str(folder / "log"), os.environ)


def test_a_process_is_started_paused_resumed_and_ended(tmp_path: Path) -> None:
    process = sleeping(tmp_path)
    try:
        assert processes.is_running(process)
        assert processes.tell(process, signal.SIGSTOP)
        assert wait_until(lambda: processes.is_paused(process))
        assert processes.tell(process, signal.SIGCONT)
        assert wait_until(lambda: not processes.is_paused(process))
    finally:
        processes.tell(process, signal.SIGKILL)
    assert processes.wait_for_end([process], 10.0) == []
    assert not processes.is_running(process)
    assert not processes.tell(process, signal.SIGKILL)


def test_another_process_of_the_same_number_is_left_in_peace() -> None:
    ourselves = Process(os.getpid(), "some other moment")
    assert not processes.is_running(ourselves)
    assert not processes.tell(ourselves, signal.SIGTERM)


def test_no_number_means_no_process() -> None:
    for number in (0, -1):  # to the system these mean whole groups of processes
        assert not processes.tell(Process(number, ""), signal.SIGTERM)


def test_a_free_port_has_free_neighbours() -> None:
    port = processes.free_port((-2, 1))
    assert not any(processes.listens(each) for each in (port - 2, port, port + 1))


def wait_until(is_so: object) -> bool:
    import time

    deadline = time.monotonic() + 10
    while not is_so():  # type: ignore[operator]
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
