"""Wherever a broker ends, everything it has promised holds (`failpoint_story.py`, of two `pair_story.py`).

Every failpoint is reached here, and each is an ending: by a kill, and because the power fails. An error of
the disk at any of them is told honestly. A handful of kills with real processes is in test_kill_nine.py.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import Counter

import pytest

from kourou.doors import failpoints
from kourou.doors.chance import Chance
from kourou.errors import ConfigError, MQError
from tests.chaos import pair_story
from tests.chaos.failpoint_story import Ending, Story, judge
from tests.chaos.pair_story import PairStory
from tests.chaos.power_cuts import quiet

ENDINGS_A_PLACE = int(os.environ.get("ENDINGS", "4"))
PROMISES_MIN, PAIR_PROMISES_MIN = 20, 10
ENDINGS_AFTER_AN_ERROR = 3
NEXT_APPEND = "before-append-pwrite"
OF_ONE_BROKER = [place for place in failpoints.POINTS if place not in failpoints.BETWEEN_BROKERS]


def test_a_day_comes_past_every_failpoint() -> None:
    story = Story()
    with quiet(), story.watched():
        story.tell()
    story.close()
    assert len(failpoints.POINTS) >= 45
    assert [place for place in OF_ONE_BROKER if place not in story.reached] == []


def test_a_pair_comes_past_every_failpoint_between_brokers() -> None:
    story = PairStory()
    with quiet(), story.watched():
        story.tell()
    story.close()
    assert [place for place in failpoints.BETWEEN_BROKERS if place not in story.reached] == []


@pytest.mark.slow
@pytest.mark.timeout(600 * ENDINGS_A_PLACE)
@pytest.mark.parametrize("is_power_cut", [False, True], ids=["kill", "power cut"])
def test_what_was_promised_holds_wherever_it_ends(is_power_cut: bool) -> None:
    chance = Chance(7)
    endings: list[Ending] = []
    taken: Counter[str] = Counter()

    def watch(story: Story, place: str) -> None:
        # The first times, and some at random later: early and late in the story.
        if taken[place] < ENDINGS_A_PLACE and (taken[place] < 1 or chance.random() < 0.2):
            taken[place] += 1
            endings.append(story.ending(place, chance if is_power_cut else None))

    with quiet():
        story = Story(watch)
        with story.watched():
            story.tell()
        story.close()
        faults = [fault for ending in endings for fault in judge(ending)]
    assert faults == []
    assert set(taken) == set(OF_ONE_BROKER)
    assert sum(len(ending.promises) >= PROMISES_MIN for ending in endings) > len(endings) // 3


@pytest.mark.slow
@pytest.mark.timeout(600 * ENDINGS_A_PLACE)
@pytest.mark.parametrize("is_power_cut", [False, True], ids=["kill", "power cut"])
def test_what_a_pair_promised_holds_wherever_it_ends(is_power_cut: bool) -> None:
    chance = Chance(11)
    endings: list[pair_story.Ending] = []
    taken: Counter[tuple[str, str]] = Counter()

    def watch(story: PairStory, place: str) -> None:
        # The first time in each chapter, and some at random later.
        count = taken[place, story.chapter]
        if count < 1 or (count < ENDINGS_A_PLACE and chance.random() < 0.2):
            taken[place, story.chapter] += 1
            endings.append(story.ending(place, chance if is_power_cut else None))

    with quiet():
        story = PairStory(watch)
        with story.watched():
            story.tell()
        story.close()
        faults = [fault for ending in endings for fault in pair_story.judge(ending)]
    assert faults == []
    assert {ending.place for ending in endings} == set(failpoints.BETWEEN_BROKERS)
    rich = [ending for ending in endings if len(ending.history.acknowledged) >= PAIR_PROMISES_MIN]
    assert len(rich) > len(endings) // 3


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_an_error_at_any_place_of_the_disk_breaks_no_promise(number: int) -> None:
    faults: list[str] = []
    with quiet():
        for place in [f"before-{place}" for place in failpoints.AT_THE_DISK]:
            faults += _faults_after_an_error(place, number)
    assert faults == []


def _faults_after_an_error(place: str, number: int) -> list[str]:
    story = Story()
    endings: list[Ending] = []

    def fail(name: str) -> None:
        if name.endswith("-fdatasync"):  # fails as a disk does: what it was to write counts as written
            story.files.fail("sync", error=number)
        else:
            raise OSError(number, os.strerror(number), name)

    def look(_: str) -> None:
        """What is acknowledged after a failure had better be there when the power fails."""
        if armed.reached >= 2 and len(endings) < ENDINGS_AFTER_AN_ERROR:
            endings.append(story.ending(place, Chance(len(endings))))

    armed = failpoints.arm(place, 2, fail)
    if place != NEXT_APPEND:  # before its page is written once more, and with it what may be missing there
        failpoints.arm(NEXT_APPEND, 1, look, is_repeated=True)
    try:
        _tell_until_it_fails(story)
        assert armed.reached >= 2, f"{place}: nothing failed"
        endings += [story.ending(place), story.ending(place, Chance(number))]
    finally:
        failpoints.disarm()
        story.world.broker = None  # type: ignore[assignment]
        story.close()
    return [fault for ending in endings for fault in judge(ending)]


def _tell_until_it_fails(story: Story) -> None:
    """A broker whose disk has failed says yes no more; its operator starts another, as `judge` does."""
    with contextlib.suppress(MQError, OSError):  # a start or a stop that met the error, and said so
        story.tell()


# What the variable may say.


@pytest.fixture(autouse=True)
def _disarmed() -> None:
    failpoints.disarm()


def test_the_variable_names_places_times_and_actions() -> None:
    assert not failpoints.arm_from({})
    assert failpoints.arm_from(
        {"KOUROU_FAILPOINT": "before-append-pwrite:2:error,after-lock-grant:1+:delay=1"}
    )
    failpoints.reached("before-append-pwrite")
    with pytest.raises(OSError, match="Input/output error"):
        failpoints.reached("before-append-pwrite")
    failpoints.reached("before-append-pwrite")  # only that once
    for _ in range(3):
        failpoints.reached("after-lock-grant")
    assert failpoints.ARMED["after-lock-grant"].reached == 3
    failpoints.disarm()


@pytest.mark.parametrize(
    "text",
    [
        "before-append-pwrite",
        "before-append-pwrite:0:kill",
        "before-append-pwrite:1:maim",
        "nowhere:1:kill",
        "x:y:z",
    ],
)
def test_a_variable_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="KOUROU_FAILPOINT"):
        failpoints.arm_from({"KOUROU_FAILPOINT": text})
