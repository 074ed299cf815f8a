"""Whatever bytes come, a parser gives a value or its documented error, soon and within bounds.

`make fuzz SECONDS=60` looks for new inputs, guided by coverage (`__main__.py`); here are the same targets
with a few hundred inputs each, the same for everybody: real frames and files, what becomes of them under
`mutation.py`, and more of one thing than anybody needs.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from unittest import mock

import pytest

from kourou.broker.handlers.offsets import MaxOffsetHandler
from tests.fuzz.mutation import TEXTS, mutated, swollen
from tests.fuzz.target import Target, TooMuch, judge
from tests.fuzz.targets import TARGETS

FOUND = Path(__file__).parent / "found"
SWOLLEN = (
    b"[",
    b'{"a":',
    b"(",
    b"NOT ",
    b"a=1 OR ",
    b"\\",
    b"\x00",
    b"\xff",
    b"9",
    b"- ",
    b"a\x01b\x02",
    b"||a",
)
SWOLLEN_BYTES = 4_096
each_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


@each_target
def test_an_input_is_understood_or_refused(target: Target) -> None:
    chance, seeds = Random(target.name), target.seeds()
    assert seeds
    for data in (b"", *seeds, *(mutated(chance, seeds, target.words) for _ in range(target.examples))):
        try:
            judge(target, data)
        except BaseException as error:
            error.add_note(f"{target.name}: {data[:500]!r}")
            raise


@each_target
def test_much_of_one_thing_costs_no_more_than_its_size_explains(target: Target) -> None:
    for word in (*SWOLLEN, *target.words[:3]):
        judge(target, swollen(word, SWOLLEN_BYTES), weigh=word == SWOLLEN[1])


@pytest.mark.parametrize("path", sorted(FOUND.iterdir()), ids=lambda path: path.name)
def test_what_once_broke_something_is_refused(path: Path) -> None:
    names = [name for name in TARGETS if path.name.startswith(f"{name}-")]
    judge(TARGETS[max(names, key=len)], path.read_bytes())


# ------------------------------------------------------------------------------------- the tests themselves


def test_a_fault_inside_a_server_is_seen() -> None:
    target = TARGETS["broker"]
    with mock.patch.object(MaxOffsetHandler, "__call__", side_effect=KeyError("a fault")):
        broken = [seed for seed in target.seeds() if not is_survived(target, seed)]
    assert len(broken) == 1
    assert is_survived(target, broken[0])


def is_survived(target: Target, data: bytes) -> bool:
    try:
        judge(target, data)
    except (KeyError, AssertionError):
        return False
    return True


def test_an_input_that_costs_too_much_is_seen() -> None:
    def hungry(data: bytes) -> None:
        assert len([None] * 2_000_000)

    target = Target("hungry", hungry, lambda: [])
    with pytest.raises(TooMuch):
        judge(target, b"x", weigh=True)
    with mock.patch("tests.fuzz.target.SECONDS_MAX", 0.0), pytest.raises(TooMuch):
        judge(target, b"x")


def test_inputs_are_the_same_for_everybody() -> None:
    one, other = ([mutated(Random(7), TEXTS, ()) for _ in range(50)] for _ in range(2))
    assert one == other
