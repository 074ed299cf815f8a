"""The encoded properties of a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ProtocolError
from kourou.protocol.properties import encode, find, find_each, parse, terminated, with_added, without

COLOURS = b"a\x01red\x02b\x01blue\x02"


@pytest.mark.parametrize(
    ("encoded", "table"),
    [
        (b"", {}),
        (COLOURS, {"a": "red", "b": "blue"}),
        (COLOURS[:-1], {"a": "red", "b": "blue"}),
        (b"a\x01\x02\x01x\x02b\x02\x02c\x01y\x02", {"c": "y"}),
        (b"a\x011\x02a\x012\x02", {"a": "2"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
    ],
)
def test_properties_are_read_as_the_original_reads_them(encoded: bytes, table: dict[str, str]) -> None:
    assert parse(encoded) == table


def test_properties_are_written_with_their_last_separator() -> None:
    assert encode({"a": "red", "b": "blue", "empty": "", "": "nameless"}) == COLOURS


@pytest.mark.parametrize("properties", [{"a": "x\x01"}, {"a": "x\x02"}, {"a\x01": "x"}, {"a\x02b": "x"}])
def test_separators_inside_a_property_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ProtocolError, match="inside a property"):
        encode({"fine": "yes", **properties})


def test_text_that_is_no_unicode_is_refused_both_ways() -> None:
    with pytest.raises(ProtocolError, match="not valid Unicode"):
        encode({"a": "\udc80"})
    with pytest.raises(ProtocolError, match="not UTF-8"):
        parse(b"a\x01\xff\x02")


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        (b"", None),
        (b"KEY\x01v\x02", b"v"),
        (b"KEY\x01v", b"v"),
        (b"x\x01y\x02KEY\x01v\x02z\x01q\x02", b"v"),
        (b"MONKEY\x01v\x02", None),
        (b"KEYS\x01v\x02", None),
        (b"x\x01KEY\x02", None),
        (b"x\x01 KEY\x01v\x02", None),
        (b"KEY\x011\x02KEY\x012\x02", b"2"),
        (b"KEY\x011\x02KEY\x01\x02", b"1"),
        (b"KEY\x01\x02", None),
    ],
)
def test_one_property_is_found_without_the_others(encoded: bytes, value: bytes | None) -> None:
    assert find(encoded, b"KEY") == value


@given(
    st.lists(
        st.one_of(st.none(), st.lists(st.sampled_from([b"a", b"ba", b"x", b"\x01", b"\x02"])).map(b"".join))
    )
)
def test_one_property_of_many_messages_is_found_as_in_each(many: list[bytes | None]) -> None:
    assert find_each(many, b"a") == [None if each is None else find(each, b"a") for each in many]


def test_a_property_is_taken_away() -> None:
    assert without(COLOURS, b"a") == b"b\x01blue\x02"
    assert without(b"x\x01a\x01y\x02a\x011\x02a\x012", b"a") == b"x\x01a\x01y\x02"
    assert without(COLOURS, b"c") == COLOURS


def test_a_property_is_added_or_replaced() -> None:
    assert with_added(b"", b"a", b"1") == b"a\x011\x02"
    assert with_added(COLOURS[:-1], b"c", b"1") == COLOURS + b"c\x011\x02"
    assert with_added(COLOURS, b"a", b"1") == b"b\x01blue\x02a\x011\x02"


def test_properties_are_terminated_once() -> None:
    assert terminated(COLOURS[:-1]) == terminated(COLOURS) == COLOURS
    assert terminated(b"") == b""
