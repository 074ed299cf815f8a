"""Java's `.properties` text."""

from __future__ import annotations

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.java_properties import format, parse


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("", {}),
        ("# no\n! no\n\n   \t\nlistenPort=9876\n", {"listenPort": "9876"}),
        ("a=1\nb:2\nc 3\nd\t=\t4\ne", {"a": "1", "b": "2", "c": "3", "d": "4", "e": ""}),
        ("a = b = c:d ", {"a": "b = c:d "}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=one \\\n    two\\\n# three", {"a": "one two# three"}),
        ("a=ends in a backslash\\\\\nb=2", {"a": "ends in a backslash\\", "b": "2"}),
        ("a\\ b\\=c\\:d=x", {"a b=c:d": "x"}),
        (r"path=C\:\\data\tx\n\q", {"path": "C:\\data\tx\nq"}),
        (r"name=\u4e2d\u6587 \ud83d\ude00", {"name": "中文 \U0001f600"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=breaks off\\", {"a": "breaks off"}),
        ("=x", {"": "x"}),
        ("brokerIP1 = 127.0.0.1", {"brokerIP1": "127.0.0.1"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, table: dict[str, str]) -> None:
    assert parse(text) == parse(text.encode()) == table


def test_bytes_may_be_utf_8_or_iso_8859_1() -> None:
    assert parse("ä=ö".encode()) == parse("ä=ö".encode("iso-8859-1")) == {"ä": "ö"}
    assert parse(b"\xef\xbb\xbfa=1") == {"a": "1"}


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\uxyz1", r"a=\u", r"a=\ud800"])
def test_broken_escapes_are_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="properties"):
        parse(text)


def test_what_is_written_is_plain_where_it_can_be() -> None:
    assert format({"brokerName": "broker-a", "address": "127.0.0.1:9876;127.0.0.1:9877"}) == (
        "brokerName=broker-a\naddress=127.0.0.1:9876;127.0.0.1:9877\n"
    )


def test_what_is_written_can_be_read() -> None:
    odd = {
        " a=b:c#!": "  two blanks",
        "tab\t": "line\nbreak\r\f",
        "back\\slash": "\\",
        "ä": "中\U0001f600",
        "e": "",
    }
    assert parse(format(odd)) == odd
