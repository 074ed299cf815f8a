"""W3C trace context: which trace a message belongs to, in its properties `traceparent` and `tracestate`.

    00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
    version    trace id (16 bytes)      span id (8 bytes)  flags: 01 sampled

The names and texts are those of the HTTP headers (https://www.w3.org/TR/trace-context/), so that whatever
reads the one reads the other. With `telemetry=` this is done by itself; without OpenTelemetry a program can
pass a trace on by hand:

    context = kourou.TraceContext.of(received) or kourou.TraceContext.new()
    producer.send(kourou.Message("bills", body, properties=context.child().properties()))
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, Self

from kourou.doors.chance import Chance
from kourou.message import Message, ReceivedMessage

TRACE_PARENT = "traceparent"
TRACE_STATE = "tracestate"
SAMPLED = 1

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class TraceContext(NamedTuple):
    """A place in a trace."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits: of the span that sends."""
    flags: int = SAMPLED
    state: str | None = None
    """What tracing systems have added, passed on as it is."""

    @classmethod
    def new(cls) -> Self:
        """The beginning of a trace."""
        chance = Chance()
        return cls(chance.secret_bytes(16).hex(), chance.secret_bytes(8).hex())

    @classmethod
    def of(cls, message: Message | ReceivedMessage) -> Self | None:
        """The one a message carries; None when it carries none, or none that is valid."""
        return cls.parse(message.properties)

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> Self | None:
        found = _FORM.fullmatch(properties.get(TRACE_PARENT, "").strip())
        if found is None:
            return None
        version, trace_id, span_id, flags, more = found.groups()
        # A later version may say more; this one may not. All zeros mean: no trace.
        if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
            return None
        return cls(trace_id, span_id, int(flags, 16), properties.get(TRACE_STATE))

    def child(self) -> Self:
        """The next place in the same trace."""
        return self._replace(span_id=Chance().secret_bytes(8).hex())

    @property
    def is_sampled(self) -> bool:
        return bool(self.flags & SAMPLED)

    def properties(self) -> dict[str, str]:
        """What a message carries it in."""
        table = {TRACE_PARENT: f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"}
        if self.state:
            table[TRACE_STATE] = self.state
        return table
