"""Producers of transactions: `TransactionProducer` blocks, `AsyncTransactionProducer` awaits.

    with producer.transaction(message) as transaction:    # the message is stored, nobody sees it
        book(order)                                       # the caller's own work
    # left: committed; left by an exception: rolled back

Whoever crashes in between is asked later what became of it, with the function given as `check`: from another
instance of the same group, if need be.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from queue import Empty, Full, Queue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, Unpack

from kourou.client import transactions
from kourou.client.producer import AsyncProducer, Producer
from kourou.client.sending import Sending, check_message
from kourou.client.sends import SendResult
from kourou.client.steps import Operation
from kourou.client.transactions import Check, TransactionState
from kourou.errors import ConfigError, MQError
from kourou.message import Message, ReceivedMessage
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.remoting.answer import Answer, Handler

if TYPE_CHECKING:
    import asyncio

    from kourou.client.options import ProducerOptions

CHECKS_WAITING_MAX = 2000
"""Questions of brokers beyond this are dropped: they ask again."""

CheckFunction: TypeAlias = Callable[[ReceivedMessage], TransactionState]
"""Says what became of the transaction a message belongs to."""

AsyncCheckFunction: TypeAlias = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]

_log = logging.getLogger("kourou.client")


class TransactionProducer(Producer):
    """Sends messages that become visible when a piece of work is done.

        def is_booked(message: kourou.ReceivedMessage) -> kourou.TransactionState:
            return TransactionState.COMMIT if message.keys in booked else TransactionState.ROLLBACK

        with kourou.TransactionProducer("shop", is_booked, name_server="localhost:9876") as producer:
            with producer.transaction(kourou.Message("orders", b"...", keys="42")) as transaction:
                booked.add("42")

    `check` is asked by brokers, in a thread of its own, about transactions whose end they were not told.
    Everything else is as with `Producer`.
    """

    def __init__(
        self,
        group: str,
        check: CheckFunction,
        name_server: str | Iterable[str] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        _check_callable(check)
        self._check = check
        self._checks: Queue[Check] = Queue(CHECKS_WAITING_MAX)
        self._answering: threading.Thread | None = None
        super().__init__(group, name_server, **options)

    def transaction(self, message: Message, *, timeout: float | None = None) -> Transaction:
        """A transaction with this message; it begins when entered."""
        transaction = Transaction(self, message, timeout)
        self._begin_answering()
        return transaction

    def __enter__(self) -> Self:
        """From now on brokers may ask, also about transactions of an earlier run."""
        self._begin_answering()
        return self

    def _own_handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.CHECK_TRANSACTION_STATE: self._on_check}

    def _begin_answering(self) -> None:
        self._sending.check_open()
        if self._answering is None:
            self._answering = threading.Thread(target=self._answer_checks, name="kourou-check", daemon=True)
            self._answering.start()
            self._driver.attend(self._sending.stay_known)

    def _on_check(self, command: Command, answer: Answer) -> None:
        check = transactions.parse_check(command, answer.connection.peer)
        self._sending.show(check.message)
        if check.group in (None, self._sending.group):
            try:
                self._checks.put_nowait(check)
            except Full:
                _log.warning("%d questions about transactions wait; one more is dropped", CHECKS_WAITING_MAX)

    def _answer_checks(self) -> None:
        while not self._sending.is_ended:
            try:
                check = self._checks.get(timeout=1.0)
            except Empty:
                continue
            try:
                state, why = _checked_state(self._check(check.message)), None
            except BaseException as error:
                # Whatever it is, SystemExit included: without this thread nobody would answer any more.
                state, why = TransactionState.UNKNOWN, error
                _complain(check, error)
            try:
                self._driver.run(_told(self._sending, check, state, why))
            except Exception:  # the top of a loop: nothing may end it
                _log.exception("answering a question about a transaction failed")


class AsyncTransactionProducer(AsyncProducer):
    """Sends messages that become visible when a piece of work is done, for asyncio.

        async with kourou.AsyncTransactionProducer("shop", is_booked, "localhost:9876") as producer:
            async with producer.transaction(kourou.Message("orders", b"...", keys="42")) as transaction:
                await book("42")

    `check` is a coroutine function, or a plain one that does not take long. Everything else is as with
    `TransactionProducer`.
    """

    def __init__(
        self,
        group: str,
        check: AsyncCheckFunction,
        name_server: str | Iterable[str] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        _check_callable(check)
        self._check = check
        self._is_answering = False
        self._checks: set[asyncio.Task[None]] = set()
        super().__init__(group, name_server, **options)

    def transaction(self, message: Message, *, timeout: float | None = None) -> AsyncTransaction:
        """As `TransactionProducer.transaction`."""
        return AsyncTransaction(self, message, timeout)

    async def close(self) -> None:
        """As `Producer.close`."""
        for task in list(self._checks):
            task.cancel()
        await super().close()

    async def __aenter__(self) -> Self:
        """From now on brokers may ask, also about transactions of an earlier run."""
        self._begin_answering()
        return self

    def _own_handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.CHECK_TRANSACTION_STATE: self._on_check}

    def _begin_answering(self) -> None:
        self._sending.check_open()
        if not self._is_answering:
            self._is_answering = True
            self._driver.attend(self._sending.stay_known)

    def _on_check(self, command: Command, answer: Answer) -> None:
        import asyncio

        check = transactions.parse_check(command, answer.connection.peer)
        self._sending.show(check.message)
        if check.group not in (None, self._sending.group):
            return
        if len(self._checks) >= CHECKS_WAITING_MAX:
            _log.warning("%d questions about transactions wait; one more is dropped", CHECKS_WAITING_MAX)
            return
        task = asyncio.get_running_loop().create_task(self._answer(check))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _answer(self, check: Check) -> None:
        try:
            found = self._check(check.message)
            state, why = _checked_state(await found if inspect.isawaitable(found) else found), None
        except Exception as error:
            state, why = TransactionState.UNKNOWN, error
            _complain(check, error)
        await self._driver.run(_told(self._sending, check, state, why))


class _Transaction:
    """What both forms of a transaction have in common: what was sent, and how it shall end."""

    def __init__(self, sending: Sending, message: Message, timeout: float | None) -> None:
        check_message(message)
        self._sending = sending
        self._timeout = timeout
        self._sent: SendResult | None = None
        self._state = TransactionState.COMMIT
        self.message = message

    @property
    def sent(self) -> SendResult:
        """Where the half message is; raises ConfigError before the transaction has begun."""
        if self._sent is None:
            raise ConfigError("this transaction has not begun; enter it with `with`")
        return self._sent

    @property
    def message_id(self) -> str:
        """The id of the message, which is the id of the transaction as well."""
        return self.sent.message_id

    def commit(self) -> None:
        """Commit when the block is left; so it is anyway, unless something else was said."""
        self._state = TransactionState.COMMIT

    def rollback(self) -> None:
        """Roll back when the block is left, without an exception."""
        self._state = TransactionState.ROLLBACK

    def leave_unknown(self) -> None:
        """Say nothing when the block is left: the broker asks `check`, some seconds later."""
        self._state = TransactionState.UNKNOWN

    def _half(self) -> Operation[SendResult]:
        if self._sent is not None:
            raise ConfigError("a transaction is entered once; make a new one")
        return self._sending.send_half(self.message, self._timeout)

    def _check_begun(self, sent: SendResult) -> MQError | None:
        self._sent = sent
        try:
            transactions.check_half_stored(sent)
        except MQError as error:
            return error
        return None

    def _end(self, error: BaseException | None) -> Operation[None]:
        """Tell the broker. An exception rolls back; an interrupt leaves it to the check what was reached."""
        state, why = self._state, None
        if isinstance(error, Exception):
            state, why = TransactionState.ROLLBACK, error
        elif error is not None:
            state = TransactionState.UNKNOWN
        sent = self.sent
        try:
            deadline = self._sending.clock.monotonic() + transactions.TIMEOUT_SECONDS
            topic = self._sending.topic_at_broker(self.message.topic)
            route = yield from self._sending.routes.to_publish(topic, deadline)
            address = route.master(sent.broker_name)
        except MQError as unknown:
            _log.warning("the end of a transaction was not told, the broker will ask for it: %s", unknown)
            return
        command = transactions.end_of(self._sending.group, topic, sent, state, why)
        hooks = self._sending.end_transaction_hooks
        yield from transactions.tell(address, command, hooks, self.message.properties)


class Transaction(_Transaction):
    """A message, and the work it waits for. Made by `TransactionProducer.transaction`."""

    def __init__(self, producer: TransactionProducer, message: Message, timeout: float | None) -> None:
        super().__init__(producer._sending, message, timeout)
        self._driver = producer._driver

    def __enter__(self) -> Self:
        if (unsafe := self._check_begun(self._driver.run(self._half()))) is not None:
            self.rollback()
            self._driver.run(self._end(None))
            raise unsafe
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._driver.run(self._end(error))


class AsyncTransaction(_Transaction):
    """A message, and the work it waits for. Made by `AsyncTransactionProducer.transaction`."""

    def __init__(self, producer: AsyncTransactionProducer, message: Message, timeout: float | None) -> None:
        super().__init__(producer._sending, message, timeout)
        self._begin_answering = producer._begin_answering
        self._driver = producer._driver

    async def __aenter__(self) -> Self:
        self._begin_answering()
        if (unsafe := self._check_begun(await self._driver.run(self._half()))) is not None:
            self.rollback()
            await self._driver.run(self._end(None))
            raise unsafe
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._driver.run(self._end(error))


def _told(
    sending: Sending, check: Check, state: TransactionState, why: BaseException | None
) -> Operation[None]:
    """Answer a broker's question."""
    command = check.answer(sending.group, state, why)
    return transactions.tell(check.address, command, sending.end_transaction_hooks, check.message.properties)


def _check_callable(check: Any) -> None:
    if not callable(check):
        raise ConfigError(
            f"check is {check!r}, but must be a function that says what became of a transaction: "
            "it gets the message and returns a TransactionState"
        )


def _checked_state(state: object) -> TransactionState:
    if not isinstance(state, TransactionState):
        raise ConfigError(f"the check function returned {state!r}; it has to return a TransactionState")
    return state


def _complain(check: Check, error: BaseException) -> None:
    _log.warning(
        "the check function failed for message %s, so the broker will ask again: %s: %s",
        check.message.message_id,
        type(error).__name__,
        error,
    )
