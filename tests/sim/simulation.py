"""One run from one integer, and many of them."""

from __future__ import annotations

import itertools
import logging
import os
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

from kourou.remoting.connection import Connection
from tests.sim.virtual_time import StandStill, VirtualLoop
from tests.sim.world import World


class Outcome(NamedTuple):
    """What came of one seed."""

    seed: int
    found: list[str]
    digest: str
    acknowledged: int
    handled: int
    crashes: int
    virtual_seconds: float
    seconds: float

    @property
    def replay(self) -> str:
        return f"make sim SEED={self.seed}"


def simulate(seed: int, mutation: str | None = None, keep: list[World] | None = None) -> Outcome:
    """Run the world of this seed; the same seed gives the same history, to the letter."""
    from tests.sim.mutations import mutated

    began = time.perf_counter()
    loop = VirtualLoop()
    worlds: list[World] = []
    with _nothing_from_outside(), mutated(mutation):
        try:
            found = loop.run_until_complete(_run(seed, worlds))
        except StandStill as error:
            found = [*worlds[0].found, f"I12: at {loop.time():.1f} s: {error}"]
        finally:
            loop.close()
    if keep is not None:
        keep += worlds
    history = worlds[0].history
    return Outcome(
        seed,
        found,
        history.digest(),
        len(history.acknowledged) + len(history.promised),
        sum(len(each) for each in history.handled.values()),
        sum(1 for each in history.operations if each[1] == "fault" and each[3].endswith(("killed", "power"))),
        loop.time(),
        time.perf_counter() - began,
    )


async def _run(seed: int, worlds: list[World]) -> list[str]:
    world = World(seed)
    worlds.append(world)
    try:
        return await world.run()
    except Exception as error:
        broke = "" if isinstance(error, AssertionError) else traceback.format_exc()
        found = [*world.found, f"{error}{broke}"]
        await world._bury()
    return found


@contextmanager
def _nothing_from_outside() -> Iterator[None]:
    """What names a process must not differ from one to the next, nor is anything said of simulated faults."""
    with (
        mock.patch("os.getpid", return_value=7),
        mock.patch("kourou.client.presence._clients", itertools.count(1)),
        mock.patch.object(os, "uname", return_value=mock.Mock(nodename="simulated")),
        mock.patch.object(Connection, "__hash__", lambda self: hash((self.peer_host, self.peer_port))),
    ):
        was_disabled = logging.root.manager.disable
        if "SIM_LOG" not in os.environ:
            logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(was_disabled)
