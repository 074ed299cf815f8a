"""Messages to their handlers, and what comes of it.

    concurrent    every message on its own, in any order
                    done -> its place may be committed
                    failed -> handed back to its broker, which delivers it again later, or lays it with the
                    dead letters; when that fails, too, it is tried again here after 5 s
    ordered       the messages of a queue one after the other
                    failed -> the queue waits, then the same message is tried again; after `retries` times it
                    becomes a dead letter, so that the rest of the queue goes on; with `ordered_key`, only
                    those of the same key wait

In a broadcast group nothing is handed back: the log tells what failed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from itertools import islice, takewhile
from typing import Any, cast

from kourou.client import membership
from kourou.client.brokers import Brokers
from kourou.client.consumer_settings import ConsumerSettings
from kourou.client.figures import Figures
from kourou.client.held_keys import KeyOf
from kourou.client.held_queue import HeldQueue
from kourou.client.namespaces import without_namespace
from kourou.client.outcomes import GIVE_UP, DeadLetter, RetryLater, delay_level
from kourou.client.workers import Listener, Task, Workers
from kourou.doors.clock import Clock
from kourou.errors import MQError
from kourou.message import ReceivedMessage, Source
from kourou.protocol.names import RETRY_PREFIX

HAND_BACK_AGAIN_SECONDS = 5.0
EXPIRED_LEVEL = 3
"""The delay of a message whose handler took too long, as in the original: 10 s."""
ORDERED_RETRIES = 16
ORDERED_RUN = 32
"""How many messages of a queue an ordered handler gets before others have their turn."""
RETRY_TOPIC = "RETRY_TOPIC"

_log = logging.getLogger("kourou.client")

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class _Ended:
    """What ended together, of one queue: added up, so that the figures cost nothing per message."""

    __slots__ = ("calls", "done", "seconds")

    def __init__(self) -> None:
        self.calls = 0
        self.seconds = 0.0
        self.done = 0


class Handling:
    """Hands messages to the workers, and does what their outcome asks for. Belongs to the event loop."""

    def __init__(
        self,
        group: str,
        listeners: Mapping[str, Listener],
        brokers: Brokers,
        workers: Workers,
        settings: ConsumerSettings,
        clock: Clock,
        *,
        figures: Figures,
        spawn: Spawn,
        went_on: Callable[[HeldQueue], None],
    ) -> None:
        """`spawn` runs a coroutine; `went_on` is told whenever fewer messages of a queue are in flight."""
        self._group = group
        self._listeners = listeners
        self._brokers = brokers
        self._workers = workers
        self._settings = settings
        self._clock = clock
        self._broadcast = settings.broadcast
        self._retries = settings.retries
        self._key_of = None if settings.ordered_key is None else partial(_key, settings.ordered_key)
        self._figures = figures
        self._spawn = spawn
        self._went_on = went_on
        self.is_stopped = False

    def arrived(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        """New messages of a queue."""
        if held.ordered:
            held.waiting.extend(messages)
            self.go_on(held)
        elif held.queue.topic.startswith(RETRY_PREFIX):
            for message in messages:
                self._submit(held, self._listener(held, message), [message])
        else:
            if self._settings.namespace is not None:
                for message in messages:
                    self._show_to_program(message)
            self._submit(held, self._listeners[held.queue.topic], messages)

    def finished(self, tasks: list[Task]) -> None:
        """The workers are through with these."""
        touched: dict[HeldQueue, _Ended] = {}
        now_ms = self._clock.now_ms()
        for task in tasks:
            held = task.held
            if not held.counts(task.generation):
                continue
            held.consumed_at_ms = now_ms
            ended = touched.get(held)
            if ended is None:
                ended = touched[held] = _Ended()
            if task.ended_at is not None and task.started_at is not None:
                ended.calls += 1
                ended.seconds += task.ended_at - task.started_at
            if held.ordered:
                self._ordered_ended(task)
            elif task.failure is None and task.done:
                held.finish(task.units[0])
                ended.done += len(task.units[0])
            elif task.failure is not None:
                ended.done += self._failed(task)
        for held, ended in touched.items():
            self._figures.of(held.queue.topic).called(ended.calls, ended.seconds, ended.done)
            self._went_on(held)

    def _submit(self, held: HeldQueue, listener: Listener, messages: list[ReceivedMessage]) -> None:
        self._workers.submit([Task(held, listener, [unit]) for unit in listener.units(messages)])

    def _listener(self, held: HeldQueue, message: ReceivedMessage) -> Listener:
        """Whose message it is; from now on it is shown as that handler knows it."""
        if not held.queue.topic.startswith(RETRY_PREFIX):
            listener = self._listeners[held.queue.topic]
        else:
            origin = message.properties.get(RETRY_TOPIC)
            listener = self._listeners.get(origin or "") or Listener(_nobody)
            if origin:
                message.show_as(origin)
        self._show_to_program(message)
        return listener

    def _show_to_program(self, message: ReceivedMessage) -> None:
        if self._settings.namespace is not None:
            message.show_as(without_namespace(self._settings.namespace, message.topic))

    # ------------------------------------------------------------------------------------------- concurrent

    def _failed(self, task: Task) -> int:
        """Have those come again that failed; how many of the others there are."""
        held = task.held
        done = []
        for message, failure in task.outcomes():
            if failure is None:
                done.append(message)
                continue
            self._complain(message, failure)
            if self._broadcast:
                held.finish([message])
            else:
                self._spawn(self._hand_back(held, task, message, delay_level(failure)))
        held.finish(done)
        (messages,) = task.units
        self._figures.of(held.queue.topic).failed(len(messages) - len(done))
        return len(done)

    async def _hand_back(self, held: HeldQueue, task: Task, message: ReceivedMessage, level: int) -> None:
        try:
            await self._send_back(message, level, self._retries)
        except MQError as error:
            if not held.counts(task.generation):
                return
            _log.warning(
                "a message could not be handed back, and is tried again here in %g s: %s",
                HAND_BACK_AGAIN_SECONDS,
                error,
            )
            again = Task(held, task.listener, [[message]])
            self._clock.later(HAND_BACK_AGAIN_SECONDS, partial(self._again, again))
            return
        if held.counts(task.generation):
            held.finish([message])
            self._went_on(held)

    def _again(self, task: Task) -> None:
        if task.goes_on and not self.is_stopped:
            self._workers.submit([task])

    async def _send_back(self, message: ReceivedMessage, level: int, retries: int | None) -> None:
        address = self._brokers.master_named(message.broker_name)
        await self._brokers.run(membership.send_back(address, self._group, message, level, retries))

    def expire(self) -> None:
        """Hand back messages whose handler has not returned for too long: another attempt may fare better.

        Nobody can stop the handler itself; what it does in the end no longer counts.
        """
        last = self._clock.monotonic() - self._settings.consume_timeout
        for task in self._workers.running():
            held = task.held
            began = task.started_at
            if held.ordered or began is None or began > last or not held.counts(task.generation):
                continue
            task.generation = -1
            _log.error(
                "a handler has not returned for %g s: handing back %r",
                self._settings.consume_timeout,
                task.messages(),
            )
            expired = Task(held, task.listener, task.units)
            for message in task.messages():
                if self._broadcast:
                    held.finish([message])
                else:
                    self._spawn(self._hand_back(held, expired, message, EXPIRED_LEVEL))
            self._went_on(held)

    # --------------------------------------------------------------------------------------------- ordered

    def go_on(self, held: HeldQueue) -> None:
        """Hand out the next messages of an ordered queue, if it is their turn."""
        if held.is_busy or held.is_ending or held.is_dropped or self.is_stopped:
            return
        if self._key_of is not None and not held.keys.is_idle:
            held.keys.sort_out(held.waiting, self._key_of)
        if not held.waiting:
            return
        now = self._clock.monotonic()
        if held.resumes_at > now or held.locked_until <= now:
            return  # a timer, or the lock, comes back here
        listener = self._listener(held, held.waiting[0])
        run = takewhile(
            lambda message: self._listener(held, message) is listener, islice(held.waiting, ORDERED_RUN)
        )
        held.is_busy = True
        self._workers.submit([Task(held, listener, listener.units(list(run)))])

    def _ordered_ended(self, task: Task) -> None:
        held = task.held
        held.is_busy = False
        done = [message for unit in task.units[: task.done] for message in unit]
        for _ in done:
            held.waiting.popleft()
        held.finish(done)
        if done:
            held.attempts = 0
            self._keys_went_on(held, done)
            self._figures.of(held.queue.topic).done(len(done))
        if task.failure is not None:
            self._ordered_failed(held, task.units[task.done], task.failure)
        self.go_on(held)

    def _ordered_failed(self, held: HeldQueue, unit: list[ReceivedMessage], failure: BaseException) -> None:
        self._figures.of(held.queue.topic).failed(len(unit))
        for message in unit:
            self._complain(message, failure)
        if self._holds_up_its_keys(held, unit, failure):
            return
        held.attempts += 1
        retries = ORDERED_RETRIES if self._retries is None else self._retries
        is_bad = isinstance(failure, DeadLetter)
        if is_bad or (held.attempts > retries and self._settings.ordered_failure != "block"):
            if self._broadcast or (not is_bad and self._settings.ordered_failure == "skip"):
                _log.error("skipping %r after %d attempts", unit, held.attempts)
                self._pass_over(held, unit)
            else:
                held.is_busy = True
                self._spawn(self._lay_aside(held, held.generation, unit))
            return
        for at, message in enumerate(unit):
            held.waiting[at] = tried_again(message)
        asked = failure.seconds if isinstance(failure, RetryLater) else None
        self._pause(held, self._settings.ordered_pause if asked is None else asked)

    def _holds_up_its_keys(
        self, held: HeldQueue, unit: list[ReceivedMessage], failure: BaseException
    ) -> bool:
        """Take what failed out of the way of others, when it is known which those are."""
        keys = [self._key_of(message) for message in unit] if self._key_of is not None else [""]
        if "" in keys or isinstance(failure, DeadLetter):
            return False
        retries = ORDERED_RETRIES if self._retries is None else self._retries
        attempts = max(held.keys.failed(key) for key in set(keys))
        if attempts > retries and self._settings.ordered_failure != "block":
            held.attempts = retries  # and so the last one
            return False
        asked = failure.seconds if isinstance(failure, RetryLater) else None
        pause = self._settings.ordered_pause if asked is None else asked
        for key, message in zip(keys, unit, strict=True):
            held.waiting.popleft()
            held.keys.hold_up(key, tried_again(message))
        self._clock.later(pause, partial(self._keys_are_free, held, held.generation, keys))
        return True

    def _keys_are_free(self, held: HeldQueue, generation: int, keys: list[str]) -> None:
        if held.counts(generation):
            for key in keys:
                held.keys.free(key)
            self.go_on(held)

    def _keys_went_on(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        if self._key_of is not None and not held.keys.is_idle:
            for message in messages:
                held.keys.went_on(self._key_of(message))

    async def _lay_aside(self, held: HeldQueue, generation: int, unit: list[ReceivedMessage]) -> None:
        """Make dead letters of them; then the rest of the queue goes on."""
        try:
            for message in unit:
                await self._send_back(message, GIVE_UP, None)
        except MQError as error:
            if held.counts(generation):
                _log.warning("a message could not be laid with the dead letters, trying again: %s", error)
                held.is_busy = False
                self._pause(held, HAND_BACK_AGAIN_SECONDS)
            return
        if held.counts(generation):
            held.is_busy = False
            self._pass_over(held, unit)
            self.go_on(held)
            self._went_on(held)

    def _pass_over(self, held: HeldQueue, unit: list[ReceivedMessage]) -> None:
        for _ in unit:
            held.waiting.popleft()
        held.finish(unit)
        held.attempts = 0
        self._keys_went_on(held, unit)

    def _pause(self, held: HeldQueue, seconds: float) -> None:
        held.resumes_at = self._clock.monotonic() + seconds
        self._clock.later(seconds, partial(self._pause_is_over, held, held.resumes_at))

    def _pause_is_over(self, held: HeldQueue, until: float) -> None:
        if held.resumes_at == until:  # not by the clock: a timer may ring a nanosecond early
            held.resumes_at = 0.0
        self.go_on(held)

    def _complain(self, message: ReceivedMessage, failure: BaseException) -> None:
        if isinstance(failure, RetryLater):
            _log.info("%r: %s", message, failure)
        elif isinstance(failure, DeadLetter):
            _log.warning("%r goes to the dead letters: %s", message, failure)
        else:
            _log.error("the handler failed on %r", message, exc_info=failure)


def _key(key_of: KeyOf, message: ReceivedMessage) -> str:
    """The key of a message; none, so that all behind it wait, when the program cannot tell it."""
    try:
        key = key_of(message)
    except Exception:
        _log.exception(
            "what was given as ordered_key failed on %r, which counts as one without a key", message
        )
        return ""
    return "" if key is None else str(key)


def _nobody(message: ReceivedMessage) -> None:
    raise RuntimeError(f"nobody here handles messages of topic '{message.topic}'")


def tried_again(message: ReceivedMessage) -> ReceivedMessage:
    """The same message, tried once more often."""
    source = cast("Source", _TriedAgain(message.source))
    again = ReceivedMessage(source, message.broker_name)
    again.show_as(message.topic)
    return again


class _TriedAgain:
    """A message's source, all but one number."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.reconsume_times = source.reconsume_times + 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)
