"""OpenTelemetry: a span and figures for every send and every handling. Optional: the extra `kourou[otel]`.

    telemetry = kourou.Telemetry()                       the program's own tracer and meter providers
    kourou.Producer("shop", telemetry=telemetry)         "send orders", and its context travels along
    kourou.PushConsumer("billing", telemetry=telemetry)  "process orders", a child of the send

Names are those of the semantic conventions for messaging. Only the API of OpenTelemetry is used here: without
an SDK in the program nothing is recorded, and little is spent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kourou.client.consume_hooks import ConsumeAttempt
from kourou.client.trace_context import TRACE_PARENT, TRACE_STATE
from kourou.errors import MissingExtra
from kourou.message import KEYS, TAGS, ReceivedMessage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from kourou.client.sends import SendResult

SYSTEM = "rocketmq"


class Telemetry:
    """Tells OpenTelemetry what producers and consumers do. One serves any number of them.

    Without providers it uses those the program has set for all.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        try:
            from opentelemetry import metrics, trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise MissingExtra(
                "telemetry needs the package opentelemetry-api; install it with: pip install 'kourou[otel]'"
            ) from None
        from kourou import __version__

        self._tracer = trace.get_tracer("kourou", __version__, tracer_provider)
        meter = metrics.get_meter("kourou", __version__, meter_provider)
        self._propagator = TraceContextTextMapPropagator()
        self._operation_seconds = meter.create_histogram(
            "messaging.client.operation.duration", unit="s", description="How long a send took."
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", unit="{message}", description="Messages sent."
        )
        self._process_seconds = meter.create_histogram(
            "messaging.process.duration", unit="s", description="How long a handler took."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", unit="{message}", description="Messages handed out."
        )

    # ------------------------------------------------------------------------------------------- sending

    def begin_send(self, topic: str, group: str, messages: int) -> SendSpan:
        from opentelemetry.trace import SpanKind

        attributes = {
            **_operation("send", topic),
            "messaging.rocketmq.client_group": group,
        }
        if messages > 1:
            attributes["messaging.batch.message_count"] = messages
        span = self._tracer.start_span(f"send {topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        return SendSpan(self, span, topic, messages)

    def inject(self, span: Span, table: dict[str, str]) -> None:
        """Have a message carry the context of a span, unless its sender gave it one."""
        from opentelemetry.trace import set_span_in_context

        if TRACE_PARENT not in table:
            self._propagator.inject(table, context=set_span_in_context(span))

    def sent(self, topic: str, messages: int, seconds: float, error: BaseException | None) -> None:
        labels = _operation("send", topic) | _failure(error)
        self._operation_seconds.record(seconds, labels)
        self._sent.add(messages, labels)

    # ----------------------------------------------------------------------------------------- consuming

    def before_consume(self, attempt: ConsumeAttempt) -> None:
        """A hook of a consumer."""
        from opentelemetry import context
        from opentelemetry.trace import Link, SpanKind, get_current_span, set_span_in_context

        first = attempt.messages[0]
        parents = [self._context_of(message) for message in attempt.messages]
        is_batch = len(parents) > 1
        attributes = _operation("process", first.topic) | {"messaging.consumer.group.name": attempt.group}
        if is_batch:
            attributes["messaging.batch.message_count"] = len(parents)
        else:
            attributes |= _about(first)
        links = [Link(get_current_span(parent).get_span_context()) for parent in parents if parent]
        span = self._tracer.start_span(
            f"process {first.topic}",
            context=None if is_batch else parents[0],  # several parents are links, one is a parent
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links if is_batch else None,
        )
        token = context.attach(set_span_in_context(span)) if attempt.in_handler else None
        attempt.notes[self] = (span, token)

    def after_consume(self, attempt: ConsumeAttempt) -> None:
        """A hook of a consumer."""
        from opentelemetry import context

        span, token = attempt.notes[self]
        if token is not None:
            context.detach(token)
        _end(span, attempt.failure)
        topic = attempt.messages[0].topic
        labels = (
            _operation("process", topic)
            | {"messaging.consumer.group.name": attempt.group}
            | _failure(attempt.failure)
        )
        self._process_seconds.record((attempt.ended_ms - attempt.began_ms) / 1000, labels)
        self._consumed.add(len(attempt.messages), labels)

    def _context_of(self, message: ReceivedMessage) -> Context | None:
        table = message.properties
        if TRACE_PARENT not in table:
            return None
        carried = {name: table[name] for name in (TRACE_PARENT, TRACE_STATE) if name in table}
        return self._propagator.extract(carried)


class SendSpan:
    """One send, with all its tries."""

    __slots__ = ("_messages", "_span", "_telemetry", "_topic")

    def __init__(self, telemetry: Telemetry, span: Span, topic: str, messages: int) -> None:
        self._telemetry = telemetry
        self._span = span
        self._topic = topic
        self._messages = messages

    def carry(self, tables: Sequence[dict[str, str]]) -> None:
        """Have the messages with these properties carry its context."""
        for table in tables:
            self._telemetry.inject(self._span, table)
        if len(tables) == 1:
            self._span.set_attributes(_sent_about(tables[0]))

    def end(self, seconds: float, result: SendResult | None, error: BaseException | None = None) -> None:
        if result is not None:
            self._span.set_attributes(
                {
                    "messaging.message.id": result.message_id,
                    "messaging.destination.partition.id": str(result.queue_id),
                    "messaging.rocketmq.broker_name": result.broker_name,
                }
            )
        _end(self._span, error)
        self._telemetry.sent(self._topic, self._messages, seconds, error)


def _operation(name: str, topic: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": name,
        "messaging.destination.name": topic,
    }


def _failure(error: BaseException | None) -> dict[str, str]:
    return {} if error is None else {"error.type": type(error).__name__}


def _sent_about(table: Mapping[str, str]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    if TAGS in table:
        attributes["messaging.rocketmq.message.tag"] = table[TAGS]
    if KEYS in table:
        attributes["messaging.rocketmq.message.keys"] = table[KEYS].split()
    return attributes


def _about(message: ReceivedMessage) -> dict[str, Any]:
    return {
        **_sent_about(message.properties),
        "messaging.message.id": message.message_id,
        "messaging.message.body.size": len(message.body),
        "messaging.destination.partition.id": str(message.queue_id),
        "messaging.rocketmq.message.delivery_attempt": message.reconsume_times + 1,
    }


def _end(span: Span, error: BaseException | None) -> None:
    from opentelemetry.trace import Status, StatusCode

    if error is not None:
        span.record_exception(error)
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()
