"""W3C trace context in the properties of messages. The examples are those of https://www.w3.org/TR/trace-context/."""

from __future__ import annotations

import pytest

import kourou
from kourou.client.trace_context import TraceContext

EXAMPLE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_it_is_read_from_a_message_and_written_to_the_next() -> None:
    table = {"traceparent": EXAMPLE, "tracestate": "rojo=00f067aa0ba902b7"}
    context = TraceContext.of(kourou.Message("orders", b"x", properties=table))
    assert context is not None
    assert tuple(context) == (EXAMPLE[3:35], "00f067aa0ba902b7", 1, "rojo=00f067aa0ba902b7")
    assert context.is_sampled
    assert context.properties() == table
    child = context.child()
    assert (child.trace_id, child.flags, child.state) == (context.trace_id, context.flags, context.state)
    assert child.span_id != context.span_id
    assert TraceContext.parse(child.properties()) == child


def test_a_new_trace_is_like_no_other() -> None:
    one, two = TraceContext.new(), TraceContext.new()
    assert one.trace_id != two.trace_id
    assert TraceContext.parse(one.properties()) == one


def test_a_later_version_may_say_more() -> None:
    assert TraceContext.parse({"traceparent": "cc" + EXAMPLE[2:] + "-what-the-future-holds"}) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        EXAMPLE + "-more",
        EXAMPLE.replace("4bf92f", "4BF92F"),
        "ff" + EXAMPLE[2:],
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
        EXAMPLE[:-1],
        EXAMPLE.replace("-", "_"),
    ],
)
def test_what_is_not_valid_is_no_context(text: str) -> None:
    assert TraceContext.parse({"traceparent": text}) is None
