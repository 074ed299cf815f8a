"""What a timed message is taken back with."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.recall_handle import RecallHandle, parse_recall_handle


def test_a_handle_is_the_originals_text_in_base64() -> None:
    handle = RecallHandle("orders", "broker-a", 1_700_000_000_001, "7F00000100072265B1F547B760000000")
    text = b"v1 orders broker-a 1700000000001 7F00000100072265B1F547B760000000"
    assert handle.encode() == urlsafe_b64encode(text).decode()
    assert parse_recall_handle(handle.encode()) == handle


@pytest.mark.parametrize(
    "text",
    [b"", b"v1", b"v2 a b 1 c", b"v1 a b 1", b"v1 a b soon c", b"v1 a b -1 c", b"v1 a b 1 ", b"\xff\xfe"],
)
def test_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError, match="recall handle"):
        parse_recall_handle(urlsafe_b64encode(text).decode())


@pytest.mark.parametrize("text", ["?", "djEg*", "é", "A"])
def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="recall handle"):
        parse_recall_handle(text)
