"""Running a server in the foreground."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Iterator
from datetime import datetime

import click
import pytest

from kourou.cli.serving import log_options, log_to_stderr, serve
from kourou.errors import ConfigError, DiskFault, MQError


class Served:
    """Notes what happens to it."""

    def __init__(self, *, start_error: Exception | None = None) -> None:
        self.story: list[str] = []
        self._start_error = start_error

    async def start(self) -> None:
        self.story.append("start")
        if self._start_error is not None:
            raise self._start_error

    async def stop(self) -> None:
        self.story.append("stop")


def healthy() -> MQError | None:
    return None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_order_and_the_process_ends_with_0(number: signal.Signals) -> None:
    served = Served()

    def ready() -> None:
        served.story.append("ready")
        os.kill(os.getpid(), number)

    assert serve(lambda: served, ready, healthy) == 0
    assert served.story == ["start", "ready", "stop"]


def test_a_fault_stops_it_and_is_what_the_process_ends_with() -> None:
    served = Served()
    faults: list[MQError] = []

    with pytest.raises(DiskFault, match="the disk failed"):
        serve(
            lambda: served,
            lambda: faults.append(DiskFault("the disk failed")),
            lambda: faults[0] if faults else None,
        )
    assert served.story == ["start", "stop"]


def test_what_cannot_start_is_neither_announced_nor_stopped() -> None:
    served = Served(start_error=ConfigError("port in use"))
    announced: list[None] = []
    with pytest.raises(ConfigError, match="port in use"):
        serve(lambda: served, lambda: announced.append(None), healthy)
    assert served.story == ["start"]
    assert announced == []


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def test_logs_go_to_stderr_one_line_each_and_only_from_the_level_asked_for(
    root_logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stderr("info")
    logging.getLogger("kourou.broker").info("topic %s created", "orders")
    logging.getLogger("kourou.broker").debug("too much detail")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith("INFO    kourou.broker: topic orders created\n")
    assert printed.err.count("\n") == 1


def test_what_a_peer_sends_cannot_forge_a_log_line(
    root_logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stderr("info")
    logging.getLogger("kourou").warning("client %s joined", "a\n2026-01-01 ERROR kourou: b\x1b[2J")
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "a\\x0a2026-01-01 ERROR kourou: b\\x1b[2J" in printed


def test_logs_for_machines_are_one_object_each(
    root_logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    @log_options("info")
    def served(log_level: str) -> None:
        log_to_stderr(log_level)
        logging.getLogger("kourou.broker").info("topic %s created", "or\nders")
        try:
            raise ValueError("why")
        except ValueError:
            logging.getLogger("kourou").exception("failed")

    served.main(["--log-format", "json"], standalone_mode=False)
    created, failed = map(json.loads, capsys.readouterr().err.splitlines())
    assert datetime.fromisoformat(created.pop("time")).tzinfo is not None
    assert created == {"level": "info", "logger": "kourou.broker", "message": "topic or\nders created"}
    assert (failed["level"], failed["message"]) == ("error", "failed")
    assert failed["exception"].endswith("ValueError: why")
