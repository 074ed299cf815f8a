"""Message trace, and OpenTelemetry, with a real broker: both forms of every client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

import kourou
from kourou.local.published import Published, make_topic
from tests.system.client_forms import Form, forms

_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[kourou.LocalBroker]:
    with kourou.LocalBroker(
        memory=True, trace_topic=True, transaction_timeout_ms=200, transaction_check_interval_ms=200
    ) as running:
        yield running


@pytest.fixture(params=["blocking", "async"])
def form(request: pytest.FixtureRequest) -> Iterator[Form]:
    with forms() as both:
        yield both[request.param]


@pytest.fixture
def topic(broker: kourou.LocalBroker) -> str:
    name = f"traced-{next(_numbers)}"
    make_topic(broker.address, name, 1)
    return name


# ------------------------------------------------------------------------------------------- message trace


def told_of(broker: kourou.LocalBroker, message_id: str, kinds: list[str]) -> list[list[str]]:
    """What the trace says about a message, once it says all this."""

    def lines(body: bytes) -> list[list[str]]:
        told = [line.split("\x01") for line in body.decode().split("\x02")[:-1]]
        return [fields for fields in told if message_id in fields]

    def found() -> list[list[str]]:
        every = Published(broker.name_server).messages("RMQ_SYS_TRACE_TOPIC")
        return [fields for message in every for fields in lines(message.body)]

    with forms() as both:
        both["blocking"].until(lambda: sorted(fields[0] for fields in found()) == sorted(kinds))
    return sorted(found(), key=lambda fields: kinds.index(fields[0]))


def test_a_producer_tells_the_trace_of_what_it_sent(
    form: Form, broker: kourou.LocalBroker, topic: str
) -> None:
    with form.producer("shop", name_server=broker.name_server, trace=True) as producer:
        sent = producer.send(kourou.Message(topic, b"espresso", tags="new", keys="k1"))
    (pub,) = told_of(broker, sent.message_id, ["Pub"])
    assert pub[2:10] == ["DefaultRegion", "shop", topic, sent.message_id, "new", "k1", broker.address, "8"]
    assert pub[11:] == ["0", sent.offset_id, "true"]
    (found,) = Published(broker.name_server).assert_published("RMQ_SYS_TRACE_TOPIC", keys=sent.message_id)
    assert found.keys == f"{sent.message_id} k1"


def test_a_transaction_is_told_with_its_end(form: Form, broker: kourou.LocalBroker, topic: str) -> None:
    def check(message: kourou.ReceivedMessage) -> kourou.TransactionState:
        return kourou.TransactionState.COMMIT

    with form.transactions("shop", check, name_server=broker.name_server, trace=True) as producer:
        begun = (producer.itself if form.name == "async" else producer).transaction(
            kourou.Message(topic, b"espresso")
        )
        with form.inside(begun) as transaction:
            message_id = transaction.message_id
    pub, end = told_of(broker, message_id, ["Pub", "EndTransaction"])
    assert (pub[11], end[9], end[11], end[12]) == ("1", "2", "COMMIT_MESSAGE", "false")


def test_a_thousand_sends_are_told_in_messages_of_twenty(broker: kourou.LocalBroker, topic: str) -> None:
    before = len(Published(broker.name_server).messages("RMQ_SYS_TRACE_TOPIC"))
    with kourou.Producer("shop", broker.name_server, trace=True) as producer:
        ids = {producer.send(kourou.Message(topic, b"x")).message_id for _ in range(1000)}
    told = Published(broker.name_server).messages("RMQ_SYS_TRACE_TOPIC")[before:]
    assert {key for message in told for key in (message.keys or "").split()} == ids
    assert 50 <= len(told) <= 250  # on a slow machine some go before twenty have gathered


def test_a_push_consumer_tells_the_trace_of_what_it_handled(broker: kourou.LocalBroker, topic: str) -> None:
    with kourou.Producer("shop", broker.name_server) as producer:
        sent = producer.send(kourou.Message(topic, b"espresso", keys="k1"))
    with kourou.PushConsumer("billing", broker.name_server, start="earliest", trace=True) as consumer:

        @consumer.on(topic)
        def bill(message: kourou.ReceivedMessage) -> None:
            consumer.stop()

        consumer.run_until_stopped()
    before, after = told_of(broker, sent.message_id, ["SubBefore", "SubAfter"])
    assert before[2:4] + before[5:] == ["DefaultRegion", "billing", sent.message_id, "0", "k1"]
    assert after[1:3] + after[4:7] == [before[4], sent.message_id, "true", "k1", "0"]


def test_a_loop_and_a_poll_are_told_as_well(broker: kourou.LocalBroker, topic: str) -> None:
    with kourou.Producer("shop", broker.name_server) as producer:
        sent = producer.send(kourou.Message(topic, b"espresso"))
    with kourou.Consumer("loop", topic, broker.name_server, start="earliest", trace=True) as messages:
        message = messages.receive(timeout=10)
        assert message is not None
        message.retry(1)
        messages.close(5)
    before, after = told_of(broker, sent.message_id, ["SubBefore", "SubAfter"])
    assert (before[3], after[4], after[6]) == ("loop", "false", "4")
    with kourou.LitePullConsumer("poll", broker.name_server, start="earliest", trace=True) as consumer:
        consumer.subscribe(topic)
        assert consumer.poll(timeout=10)
    told_of(broker, sent.message_id, ["SubBefore", "SubAfter", "SubBefore", "SubAfter"])


def test_without_the_option_nothing_is_told(form: Form, broker: kourou.LocalBroker, topic: str) -> None:
    before = len(Published(broker.name_server).messages("RMQ_SYS_TRACE_TOPIC"))
    with form.producer("shop", name_server=broker.name_server) as producer:
        producer.send(kourou.Message(topic, b"espresso"))
    assert len(Published(broker.name_server).messages("RMQ_SYS_TRACE_TOPIC")) == before


def test_a_trace_topic_that_cannot_be_is_named(broker: kourou.LocalBroker) -> None:
    with pytest.raises(kourou.ConfigError, match="no good"):
        kourou.Producer("shop", broker.name_server, trace="no good")


# ------------------------------------------------------------------------------------------- OpenTelemetry


class Recorded:
    """A Telemetry, and what it told."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        spans = TracerProvider(shutdown_on_exit=False)
        spans.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = spans.get_tracer("the application")
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.telemetry = kourou.Telemetry(spans, meters)

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span

    def figures(self) -> dict[str, list[Any]]:
        data = self._reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def context_of(span: Any) -> SpanContext:
    context = span.get_span_context()
    assert isinstance(context, SpanContext)
    return context


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def test_a_send_is_a_span_whose_context_travels_along(
    form: Form, broker: kourou.LocalBroker, topic: str, recorded: Recorded
) -> None:
    with (
        recorded.tracer.start_as_current_span("place order") as above,
        form.producer("shop", name_server=broker.name_server, telemetry=recorded.telemetry) as producer,
    ):
        sent = producer.send(kourou.Message(topic, b"espresso", tags="new", keys="k1 k2"))
    span = recorded.span(f"send {topic}")
    assert span.kind is SpanKind.PRODUCER
    attributes = dict(span.attributes or {})
    assert attributes["messaging.system"] == "rocketmq"
    assert attributes["messaging.destination.name"] == topic
    assert attributes["messaging.message.id"] == sent.message_id
    assert attributes["messaging.rocketmq.message.keys"] == ("k1", "k2")
    (message,) = Published(broker.name_server).messages(topic)
    context = kourou.TraceContext.of(message)
    assert context is not None
    assert int(context.span_id, 16) == context_of(span).span_id
    if form.name == "blocking":  # the other form runs on a loop with a context of its own
        assert span.parent is not None
        assert span.parent.span_id == context_of(above).span_id
    figures = recorded.figures()
    assert figures["messaging.client.sent.messages"][0].value == 1
    assert figures["messaging.client.operation.duration"][0].count == 1


def test_a_failed_send_is_a_failed_span(form: Form, broker: kourou.LocalBroker, recorded: Recorded) -> None:
    options: dict[str, Any] = {"telemetry": recorded.telemetry, "send_timeout": 0.5}
    with (
        form.producer("shop", name_server="127.0.0.1:1", **options) as producer,
        pytest.raises(kourou.Unreachable),
    ):
        producer.send(kourou.Message("orders", b"x"))
    span = recorded.span("send orders")
    assert span.status.status_code is StatusCode.ERROR
    assert "error.type" in (span.attributes or {})
    assert [event.name for event in span.events] == ["exception"]


def test_every_way_to_send_is_a_span(
    form: Form, broker: kourou.LocalBroker, topic: str, recorded: Recorded
) -> None:
    with form.producer("shop", name_server=broker.name_server, telemetry=recorded.telemetry) as producer:
        producer.send_one_way(kourou.Message(topic, b"1"))
        producer.send_batch([kourou.Message(topic, b"2"), kourou.Message(topic, b"3")])
        producer.send_soon(kourou.Message(topic, b"4"))
    assert len(recorded.spans(f"send {topic}")) == 3
    found = Published(broker.name_server).assert_published(topic, count=4)
    contexts = {message.body: kourou.TraceContext.of(message) for message in found}
    assert None not in contexts.values()
    assert contexts[b"2"] == contexts[b"3"]
    assert sum(point.value for point in recorded.figures()["messaging.client.sent.messages"]) == 4


def test_a_handler_runs_in_a_span_that_continues_the_senders_trace(
    broker: kourou.LocalBroker, topic: str, recorded: Recorded
) -> None:
    answers = f"{topic}-answers"
    with kourou.Producer("shop", broker.name_server, telemetry=recorded.telemetry) as producer:
        producer.send(kourou.Message(topic, b"espresso"))
        seen: list[Any] = []
        options: dict[str, Any] = {"start": "earliest", "telemetry": recorded.telemetry}
        with kourou.PushConsumer("billing", broker.name_server, **options) as consumer:

            @consumer.on(topic)
            def bill(message: kourou.ReceivedMessage) -> None:
                seen.append(trace.get_current_span().get_span_context())
                producer.send(kourou.Message(answers, b"the bill"))
                consumer.stop()

            consumer.run_until_stopped()
    sent, handled = recorded.span(f"send {topic}"), recorded.span(f"process {topic}")
    answered = recorded.span(f"send {answers}")
    assert handled.kind is SpanKind.CONSUMER
    assert handled.parent is not None
    assert handled.parent.span_id == context_of(sent).span_id
    assert seen == [handled.get_span_context()]
    assert answered.parent is not None
    assert answered.parent.span_id == context_of(handled).span_id
    assert {context_of(span).trace_id for span in (sent, handled, answered)} == {context_of(sent).trace_id}
    assert recorded.figures()["messaging.client.consumed.messages"][0].value == 1


def test_a_coroutine_that_fails_is_a_failed_span(
    form: Form, broker: kourou.LocalBroker, topic: str, recorded: Recorded
) -> None:
    if form.name == "blocking":
        return  # coroutines are for the async form
    with kourou.Producer("shop", broker.name_server) as producer:
        producer.send_all([kourou.Message(topic, b"1"), kourou.Message(topic, b"2")])

    async def consume() -> None:
        options: dict[str, Any] = {"start": "earliest", "telemetry": recorded.telemetry}
        async with kourou.AsyncPushConsumer("failing", broker.name_server, **options) as consumer:

            @consumer.on(topic, batch_size=2)
            async def bill(messages: list[kourou.ReceivedMessage]) -> None:
                consumer.stop()
                raise ValueError("no ink")

            await consumer.run_until_stopped()

    form.run(consume())
    span = recorded.spans(f"process {topic}")[0]
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "ValueError"


def test_without_the_extra_it_is_named(tmp_path: Any) -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import kourou\n"
        "try: kourou.Telemetry()\n"
        "except kourou.MissingExtra as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == (
        "telemetry needs the package opentelemetry-api; install it with: pip install 'kourou[otel]'\n"
    )
