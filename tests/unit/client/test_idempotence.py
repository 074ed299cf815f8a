from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kourou.client.idempotence import (
    Mark,
    Marks,
    MemoryMarks,
    SqliteMarks,
    by_keys,
    idempotent,
)
from kourou.client.outcomes import RetryLater
from kourou.doors.clock import SimulatedClock
from kourou.errors import ConfigError
from kourou.message import ReceivedMessage
from kourou.protocol import record
from tests.unit.client.conversation import stored


def message(number: int, keys: str | None = None) -> ReceivedMessage:
    data = stored(number, None)
    received = record.to_received(record.decode(data), "a")
    received.properties["UNIQ_KEY"] = f"id-{number}"
    if keys:
        received.properties["KEYS"] = keys
    return received


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture(params=["memory", "sqlite"])
def marks(request: pytest.FixtureRequest, tmp_path: Path, clock: SimulatedClock) -> Iterator[Marks]:
    if request.param == "memory":
        yield MemoryMarks()
    else:
        store = SqliteMarks(str(tmp_path / "marks.db"), clock=clock)
        yield store
        store.close()


def test_a_key_is_new_then_busy_then_done(marks: Marks) -> None:
    assert marks.claim("1") is Mark.NEW
    assert marks.claim("1") is Mark.BUSY
    assert marks.claim("2") is Mark.NEW
    marks.finish("1")
    assert marks.claim("1") is Mark.DONE
    marks.release("2")
    assert marks.claim("2") is Mark.NEW


def test_what_is_done_stays_done_when_it_is_released(marks: Marks) -> None:
    marks.claim("1")
    marks.finish("1")
    marks.release("1")
    assert marks.claim("1") is Mark.DONE


def test_memory_forgets_the_oldest() -> None:
    marks = MemoryMarks(most=2)
    for key in ("1", "2", "3"):
        marks.claim(key)
        marks.finish(key)
    assert [marks.claim(key) for key in ("1", "2", "3")] == [Mark.NEW, Mark.DONE, Mark.DONE]


def test_another_process_finds_the_marks_of_the_first(tmp_path: Path, clock: SimulatedClock) -> None:
    path = str(tmp_path / "marks.db")
    first, second = SqliteMarks(path, clock=clock), SqliteMarks(path, clock=clock)
    first.claim("1")
    first.claim("2")
    first.finish("1")
    assert [second.claim(key) for key in ("1", "2")] == [Mark.DONE, Mark.BUSY]
    clock.advance(901)  # the first one crashed with the second message in hand
    assert second.claim("2") is Mark.NEW
    clock.advance(8 * 24 * 3600)
    assert second.claim("1") is Mark.NEW
    first.close()
    second.close()


def test_a_message_is_handled_once(marks: Marks) -> None:
    handled: list[ReceivedMessage] = []
    handler = idempotent(handled.append, marks=marks)
    for number in (1, 2, 1, 1):
        handler(message(number))
    assert [each.message_id for each in handled] == ["id-1", "id-2"]


def test_a_message_that_failed_is_handled_again(marks: Marks) -> None:
    failures = [ValueError("no")]

    @idempotent(marks=marks)
    def handler(given: ReceivedMessage) -> str:
        if failures:
            raise failures.pop()
        return "done"

    with pytest.raises(ValueError, match="no"):
        handler(message(1))
    assert handler(message(1)) == "done"
    assert handler(message(1)) is None


def test_a_message_somebody_else_is_at_work_on_comes_later(marks: Marks) -> None:
    @idempotent(marks=marks)
    def handler(given: ReceivedMessage) -> None:
        with pytest.raises(RetryLater):
            handler(given)

    handler(message(1))


def test_coroutines_are_awaited(marks: Marks) -> None:
    handled: list[str] = []

    @idempotent(marks=marks)
    async def handler(given: ReceivedMessage) -> None:
        handled.append(given.message_id)

    async def twice() -> None:
        await handler(message(1))
        await handler(message(1))

    asyncio.run(twice())
    assert handled == ["id-1"]


def test_a_batch_is_handled_without_what_is_known(marks: Marks) -> None:
    handled: list[list[str]] = []

    @idempotent(marks=marks)
    def handler(given: list[ReceivedMessage]) -> None:
        handled.append([each.message_id for each in given])

    handler([message(1), message(2)])
    handler([message(2), message(3)])
    handler([message(1)])
    assert handled == [["id-1", "id-2"], ["id-3"]]


def test_of_a_batch_only_what_failed_is_handled_again(marks: Marks) -> None:
    handled: list[list[str]] = []
    failure = ValueError("no")

    @idempotent(marks=marks)
    def handler(given: list[ReceivedMessage]) -> list[object]:
        handled.append([each.message_id for each in given])
        return [failure if len(handled) == 2 and each.message_id == "id-3" else None for each in given]

    handler([message(1)])
    assert handler([message(1), message(2), message(3)]) == [None, None, failure]
    handler([message(2), message(3)])
    assert handled == [["id-1"], ["id-2", "id-3"], ["id-3"]]


def test_by_its_keys_a_message_sent_twice_is_handled_once(marks: Marks) -> None:
    handled: list[Any] = []
    handler = idempotent(handled.append, marks=marks, key=by_keys)
    for each in (message(1, "order-42"), message(2, "order-42"), message(3, "order-43"), message(4)):
        handler(each)
    assert [each.message_id for each in handled] == ["id-1", "id-3", "id-4"]


def test_only_what_can_be_called_is_a_handler() -> None:
    with pytest.raises(ConfigError, match="cannot be called"):
        idempotent(marks=MemoryMarks())(3)  # type: ignore[type-var]


def test_a_key_that_is_in_one_batch_twice_is_handled_once(marks: Marks) -> None:
    handled: list[int] = []

    @idempotent(marks=marks, key=by_keys)
    def handle(messages: list[ReceivedMessage]) -> None:
        handled.extend(message.queue_offset for message in messages)

    handle([message(1, "order-1"), message(2, "order-2"), message(3, "order-1")])
    assert handled == [1, 2]
    handle([message(4, "order-1")])
    assert handled == [1, 2]


def test_marks_that_cannot_be_kept_or_are_none_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere/marks\.db.*a folder"):
        SqliteMarks(tmp_path / "nowhere" / "marks.db")
    (tmp_path / "text").write_text("this is no database, and long enough for SQLite to see that " * 9)
    with pytest.raises(ConfigError, match="text': file is not a database"):
        SqliteMarks(tmp_path / "text")
    with pytest.raises(ConfigError, match="marks is 3, which cannot claim"):
        idempotent(marks=3)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="key is 'id'"):
        idempotent(key="id")  # type: ignore[call-overload]


def test_a_handler_that_only_made_a_coroutine_has_not_handled_its_message(marks: Marks) -> None:
    async def handle(message: ReceivedMessage) -> None: ...

    def hiding(message: ReceivedMessage) -> Any:
        return handle(message)

    hidden = idempotent(marks=marks)(hiding)
    for _ in range(2):  # and so it comes again
        with pytest.raises(ConfigError, match="returned a coroutine"):
            hidden(message(1))
