"""Handling a message once, though it may come twice.

RocketMQ delivers at least once: after a crash, or when queues change hands, what was in flight comes again.
`idempotent` wraps a handler so that a message with a key it has seen is passed over.

                 claim                  handler                  finish
    (unknown) ----------> being handled ------> returns -------> done: passed over from now on
                                  \\----------> raises --release-> unknown again: comes again, is handled

What is known lies in a store of marks: in memory (this process, until it ends), in an SQLite file (every
process of this machine, over restarts), or anything with the same three methods, in a database of yours. A
store that keeps its marks in the same transaction as the handler's own work makes it exactly once.
"""

from __future__ import annotations

import functools
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol, Self, TypeVar, cast, overload

from kourou.client.handlers import check_handled, is_async
from kourou.client.outcomes import RetryLater, failures_in
from kourou.doors.clock import Clock, RealClock
from kourou.errors import ConfigError
from kourou.message import ReceivedMessage

Handled = TypeVar("Handled", bound=Callable[[Any], object])
KeyOf = Callable[[ReceivedMessage], str]

MARKS_MAX = 100_000
KEEP_SECONDS = 7 * 24 * 3600.0
"""How long a message is remembered: longer than brokers keep it."""
CLAIM_SECONDS = 900.0
"""How long a claim counts whose owner was not heard of again: as long as a handler may take."""
BUSY_RETRY_SECONDS = 10


class Mark(Enum):
    """What `claim` found."""

    NEW = "it is the caller's to handle now"
    BUSY = "somebody else is at it"
    DONE = "it was handled"


class Marks(Protocol):
    """Remembers keys. Called by many threads at once."""

    def claim(self, key: str) -> Mark:
        """Take the key, if nobody has it."""

    def finish(self, key: str) -> None:
        """It is done, for good."""

    def release(self, key: str) -> None:
        """It is not done: whoever comes next may take it."""


class MemoryMarks:
    """Marks of this process, the newest `most` of them."""

    def __init__(self, most: int = MARKS_MAX) -> None:
        self._most = most
        self._done: OrderedDict[str, None] = OrderedDict()
        self._claimed: set[str] = set()
        self._lock = threading.Lock()

    def claim(self, key: str) -> Mark:
        with self._lock:
            if key in self._done:
                self._done.move_to_end(key)
                return Mark.DONE
            if key in self._claimed:
                return Mark.BUSY
            self._claimed.add(key)
            return Mark.NEW

    def finish(self, key: str) -> None:
        with self._lock:
            self._claimed.discard(key)
            self._done[key] = None
            while len(self._done) > self._most:
                self._done.popitem(last=False)

    def release(self, key: str) -> None:
        with self._lock:
            self._claimed.discard(key)


class SqliteMarks:
    """Marks in an SQLite file, for all processes that open it; kept for `keep_seconds`.

    A claim whose process died counts for `claim_seconds`; then the message may be handled again.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep_seconds: float = KEEP_SECONDS,
        claim_seconds: float = CLAIM_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or RealClock()
        self._keep_ms = round(keep_seconds * 1000)
        self._claim_ms = round(claim_seconds * 1000)
        self._lock = threading.Lock()
        self._swept_ms = self._clock.now_ms()
        try:
            self._database = self._opened(path)
        except sqlite3.Error as error:
            raise ConfigError(
                f"marks cannot be kept in '{os.fspath(path)}': {error}; name a file of its own in a folder "
                "that is there and can be written to"
            ) from None

    def _opened(self, path: str | os.PathLike[str]) -> sqlite3.Connection:
        database = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
        try:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute(
                "CREATE TABLE IF NOT EXISTS kourou_marks (key TEXT PRIMARY KEY, done INTEGER, at_ms INTEGER) "
                "WITHOUT ROWID"
            )
        except sqlite3.Error:
            database.close()
            raise
        return database

    def claim(self, key: str) -> Mark:
        now = self._clock.now_ms()
        with self._lock:
            self._sweep(now)
            # One statement, so that of two processes one gets it.
            taken = self._database.execute(
                "INSERT INTO kourou_marks VALUES (?, 0, ?) ON CONFLICT (key) "
                "DO UPDATE SET at_ms = excluded.at_ms WHERE NOT done AND at_ms <= ? RETURNING 1",
                (key, now, now - self._claim_ms),
            ).fetchall()
            if taken:
                return Mark.NEW
            row = self._database.execute("SELECT done FROM kourou_marks WHERE key = ?", (key,)).fetchone()
        return Mark.DONE if row is not None and row[0] else Mark.BUSY

    def finish(self, key: str) -> None:
        with self._lock:
            self._database.execute(
                "INSERT OR REPLACE INTO kourou_marks VALUES (?, 1, ?)", (key, self._clock.now_ms())
            )

    def release(self, key: str) -> None:
        with self._lock:
            self._database.execute("DELETE FROM kourou_marks WHERE key = ? AND NOT done", (key,))

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _sweep(self, now: int) -> None:
        if now - self._swept_ms > self._keep_ms / 100:
            self._swept_ms = now
            self._database.execute("DELETE FROM kourou_marks WHERE at_ms < ?", (now - self._keep_ms,))


def by_message_id(message: ReceivedMessage) -> str:
    """The id its producer gave it: the same through retries, another for each send."""
    return message.message_id


def by_keys(message: ReceivedMessage) -> str:
    """The message's own keys: what was sent twice by its producer is handled once as well."""
    return f"{message.topic} {message.keys}" if message.keys else message.message_id


@overload
def idempotent(handler: Handled, *, marks: Marks | None = None, key: KeyOf = ...) -> Handled: ...
@overload
def idempotent(
    handler: None = None, *, marks: Marks | None = None, key: KeyOf = ...
) -> Callable[[Handled], Handled]: ...
def idempotent(
    handler: Handled | None = None, *, marks: Marks | None = None, key: KeyOf = by_message_id
) -> Any:
    """Decorates a handler: what it has handled before is passed over.

        @consumer.on("orders")
        @kourou.idempotent(marks=kourou.SqliteMarks("billing.db"), key=kourou.by_keys)
        def bill(message): ...

    Works with functions, coroutine functions, and handlers of batches, which are given the messages that are
    new, one of each key. A message somebody else is at work on comes again 10 s later.
    """
    store: Marks = MemoryMarks() if marks is None else _checked_marks(marks)
    if not callable(key):
        raise ConfigError(f"key is {key!r}, but must be a function of a message, as kourou.by_keys is one")

    def wrap(inner: Handled) -> Handled:
        if not callable(inner):
            raise ConfigError(f"{inner!r} cannot be a handler: it cannot be called")

        @functools.wraps(inner)
        def call(given: Any) -> object:
            with _Claims(store, key, given) as claims:
                returned = None if claims.new is None else inner(claims.new)
                check_handled(inner, returned)
                return claims.told(returned)

        @functools.wraps(inner)
        async def call_async(given: Any) -> object:
            with _Claims(store, key, given) as claims:
                return claims.told(None if claims.new is None else await cast("Any", inner(claims.new)))

        return cast("Handled", call_async if is_async(inner) else call)

    return wrap if handler is None else wrap(handler)


def _checked_marks(given: object) -> Marks:
    missing = [name for name in ("claim", "finish", "release") if not callable(getattr(given, name, None))]
    if missing:
        raise ConfigError(f"marks is {given!r}, which cannot {', '.join(missing)}; see kourou.Marks")
    return cast("Marks", given)


class _Claims:
    """The messages that are new, from before they are handled until it is known what became of them."""

    def __init__(self, store: Marks, key: KeyOf, given: Any) -> None:
        self._store = store
        self._key = key
        self._given = given
        self._keys: list[str] = []
        self._claimed: dict[str, None] = {}  # in the order they were claimed
        self.new: Any = None
        """What is to be handled, in the form it was given; None when there is nothing."""

    def __enter__(self) -> Self:
        messages = self._given if isinstance(self._given, list) else [self._given]
        new = []
        for message in messages:
            key = self._key(message)
            self._keys.append(key)
            if key in self._claimed:
                continue  # twice in one batch: done with the first of them
            mark = self._store.claim(key)
            if mark is Mark.BUSY:
                self._release()
                raise RetryLater(BUSY_RETRY_SECONDS)
            if mark is Mark.NEW:
                self._claimed[key] = None
                new.append(message)
        if new:
            self.new = new if isinstance(self._given, list) else new[0]
        return self

    def told(self, returned: object) -> object:
        """What a handler returned, as if it had been given all: of a batch, what failed may come again."""
        is_batch = isinstance(self._given, list)
        failures = failures_in(returned, len(self._claimed)) if is_batch else None
        if failures is None:
            return returned
        failed = {key: each for key, each in zip(self._claimed, failures, strict=True) if each is not None}
        for key in failed:
            self._store.release(key)
            del self._claimed[key]
        return [failed.get(key) for key in self._keys]

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._release()
            return
        for key in self._claimed:
            self._store.finish(key)

    def _release(self) -> None:
        for key in self._claimed:
            self._store.release(key)
