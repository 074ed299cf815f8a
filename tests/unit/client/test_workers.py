"""Threads and tasks that call handlers. Nothing sleeps: handlers wait for each other, or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kourou.client.consume_hooks import ConsumeHooks
from kourou.client.held_queue import HeldQueue
from kourou.client.operations import Subscription
from kourou.client.workers import Listener, Task, TaskWorkers, ThreadWorkers
from kourou.doors.clock import RealClock
from kourou.errors import ConfigError
from kourou.message import ReceivedMessage
from kourou.protocol import record
from kourou.protocol.bodies import MessageQueue
from tests.unit.client.conversation import stored

WAIT_SECONDS = 10


def held_queue() -> HeldQueue:
    queue = MessageQueue(topic="t", broker_name="a", queue_id=0)
    return HeldQueue(queue, Subscription("t", "*", 1), ordered=False)


def messages(count: int) -> list[ReceivedMessage]:
    return [record.to_received(record.decode(stored(number, None)), "a") for number in range(count)]


def tasks(handler: Callable[[Any], object], count: int, held: HeldQueue | None = None) -> list[Task]:
    listener, held = Listener(handler), held or held_queue()
    return [Task(held, listener, [[message]]) for message in messages(count)]


def run(
    kind: type[ThreadWorkers] | type[TaskWorkers],
    given: list[Task],
    *,
    threads: int = 4,
    meanwhile: Callable[[Any], Awaitable[None]] | None = None,
    ended: int | None = None,
) -> list[Task]:
    """What has ended when all of it, or `ended` of it, has."""

    async def work() -> list[Task]:
        workers = kind(threads, "test", RealClock())
        finished: list[Task] = []
        enough = asyncio.Event()

        def told(some: list[Task]) -> None:
            finished.extend(some)
            if len(finished) >= (len(given) if ended is None else ended):
                enough.set()

        workers.start(told)
        workers.submit(given)
        if meanwhile is not None:
            await meanwhile(workers)
        async with asyncio.timeout(WAIT_SECONDS):
            await enough.wait()
        workers.stop()
        return finished

    return asyncio.run(work())


def test_every_task_is_done_and_told() -> None:
    seen: list[int] = []
    finished = run(ThreadWorkers, tasks(lambda message: seen.append(message.queue_offset), 1000))
    assert sorted(seen) == list(range(1000))
    assert len(finished) == 1000
    assert all(task.done == 1 and task.failure is None for task in finished)


def test_as_many_run_at_a_time_as_there_are_threads() -> None:
    barrier = threading.Barrier(4)  # nobody passes before four are there
    run(ThreadWorkers, tasks(lambda message: barrier.wait(WAIT_SECONDS), 8))


def test_what_comes_one_by_one_runs_beside_each_other_all_the_same() -> None:
    barrier = threading.Barrier(4)
    given = tasks(lambda message: barrier.wait(WAIT_SECONDS), 4)

    async def meanwhile(workers: ThreadWorkers) -> None:
        for task in given[1:]:
            await asyncio.sleep(0)
            workers.submit([task])

    finished = run(ThreadWorkers, given[:1], meanwhile=meanwhile, ended=4)
    assert [task.failure for task in finished] == [None] * 4


def test_no_more_run_at_a_time_than_there_are_threads() -> None:
    at_work: set[int] = set()
    most = [0]

    def handle(message: ReceivedMessage) -> None:
        at_work.add(threading.get_ident())
        most[0] = max(most[0], len(at_work))
        at_work.discard(threading.get_ident())

    run(ThreadWorkers, tasks(handle, 200), threads=2)
    assert most[0] <= 2


@pytest.mark.parametrize("failure", [ValueError("no"), SystemExit(3)])
def test_whatever_a_handler_raises_its_thread_goes_on(failure: BaseException) -> None:
    def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 1:
            raise failure

    finished = run(ThreadWorkers, tasks(handle, 10), threads=1)
    assert [task.failure for task in finished if task.failure] == [failure]
    assert sum(task.done for task in finished) == 9


@pytest.mark.parametrize("kind", [ThreadWorkers, TaskWorkers])
def test_units_come_one_after_the_other_up_to_the_first_that_fails(
    kind: type[ThreadWorkers] | type[TaskWorkers],
) -> None:
    seen: list[list[int]] = []

    def note(batch: list[ReceivedMessage]) -> None:
        seen.append([message.queue_offset for message in batch])
        if len(seen) == 3:
            raise ValueError("no")

    async def note_async(batch: list[ReceivedMessage]) -> None:
        note(batch)

    listener = Listener(note if kind is ThreadWorkers else note_async, batch_size=2)
    task = Task(held_queue(), listener, listener.units(messages(9)))
    run(kind, [task])
    assert seen == [[0, 1], [2, 3], [4, 5]]
    assert task.done == 2
    assert str(task.failure) == "no"


@pytest.mark.parametrize("kind", [ThreadWorkers, TaskWorkers])
def test_a_handler_of_a_batch_may_say_of_each_message_what_became_of_it(
    kind: type[ThreadWorkers] | type[TaskWorkers],
) -> None:
    failure = ValueError("no")

    def handle(batch: list[ReceivedMessage]) -> list[object]:
        return [failure if message.queue_offset == 1 else "done" for message in batch]

    async def handle_async(batch: list[ReceivedMessage]) -> list[object]:
        return handle(batch)

    listener = Listener(handle if kind is ThreadWorkers else handle_async, batch_size=3)
    task = Task(held_queue(), listener, listener.units(messages(3)))
    run(kind, [task])
    assert task.done == 0
    assert [outcome for _, outcome in task.outcomes()] == [None, failure, None]


@pytest.mark.parametrize("kind", [ThreadWorkers, TaskWorkers])
def test_nothing_more_of_a_queue_is_handled_once_it_is_lost(
    kind: type[ThreadWorkers] | type[TaskWorkers],
) -> None:
    held = held_queue()
    seen: list[int] = []

    def lose(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)
        held.is_ending = True

    async def lose_async(message: ReceivedMessage) -> None:
        lose(message)

    listener = Listener(lose if kind is ThreadWorkers else lose_async)
    task = Task(held, listener, listener.units(messages(5)))
    run(kind, [task])
    assert seen == [0]
    assert (task.done, task.failure) == (1, None)


def test_what_has_not_begun_can_be_cancelled() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def handle(message: ReceivedMessage) -> None:
        begun.set()
        assert go_on.wait(WAIT_SECONDS)

    given = tasks(handle, 10)

    async def meanwhile(workers: ThreadWorkers) -> None:
        assert await asyncio.get_running_loop().run_in_executor(None, begun.wait, WAIT_SECONDS)
        assert workers.running() == given[:1]
        assert workers.cancel_waiting() == given[1:]
        go_on.set()

    assert run(ThreadWorkers, given, threads=1, meanwhile=meanwhile, ended=1) == given[:1]


def test_coroutines_run_beside_each_other_up_to_a_number() -> None:
    at_work = [0]
    most = [0]

    async def handle(message: ReceivedMessage) -> None:
        at_work[0] += 1
        most[0] = max(most)
        most[0] = max(most[0], at_work[0])
        await asyncio.sleep(0)
        at_work[0] -= 1

    finished = run(TaskWorkers, tasks(handle, 20), threads=3)
    assert len(finished) == 20
    assert most[0] == 3


def test_what_is_done_is_told_while_others_wait() -> None:
    go_on = asyncio.Event()
    told = []

    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 1:
            await go_on.wait()

    async def meanwhile(workers: TaskWorkers) -> None:
        while len(workers.running()) != 1:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        told.append(workers.running())
        go_on.set()

    given = tasks(handle, 3)
    finished = run(TaskWorkers, given, threads=1, meanwhile=meanwhile)
    assert told == [[given[1]]]
    assert finished == given


def test_a_coroutine_that_is_cancelled_has_failed() -> None:
    async def handle(message: ReceivedMessage) -> None:
        raise asyncio.CancelledError

    (task,) = run(TaskWorkers, tasks(handle, 1))
    assert "cancelled" in str(task.failure)


def test_plain_functions_go_to_threads() -> None:
    names: list[str] = []
    run(TaskWorkers, tasks(lambda message: names.append(threading.current_thread().name), 3))
    assert len(names) == 3
    assert threading.main_thread().name not in names


@pytest.mark.parametrize("kind", [ThreadWorkers, TaskWorkers])
@pytest.mark.parametrize("observed", [False, True])
def test_a_message_whose_handler_only_made_a_coroutine_is_not_done(
    kind: type[ThreadWorkers] | type[TaskWorkers], observed: bool
) -> None:
    async def handle(message: Any) -> None: ...

    given = tasks(lambda message: handle(message), 1)
    if observed:
        given[0].listener.observe(ConsumeHooks("g", (), RealClock()))
    (ended,) = run(kind, given)
    assert isinstance(ended.failure, ConfigError)
    assert ended.done == 0
