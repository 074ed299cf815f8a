"""A text without a seal is never refused; a sealed one that was harmed a little always is."""

from __future__ import annotations

import json
from operator import eq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ProtocolError
from kourou.protocol.sealed import check_seal, sealed

names = st.from_regex(r"(%RETRY%)?kourou[-_a-zA-Z0-9@%]{0,8}", fullmatch=True).filter(
    lambda name: sum(map(eq, "Crc32", name.removeprefix("%RETRY%")[6:])) < 3
)
tables = st.dictionaries(names, st.integers(0, 2**40), min_size=1, max_size=3)
layouts = st.sampled_from([{}, {"indent": 1}, {"indent": "\t"}, {"separators": (",", ":")}])
LAYOUT_BYTES = b'\n\t {}[]",: 0123456789kourou'


@given(tables, layouts, st.booleans(), st.sampled_from(["", "\n", "\r\n"]))
def test_names_that_begin_with_kourou_are_no_seal(
    table: dict[str, int], layout: dict[str, object], is_wrapped: bool, end: str
) -> None:
    content = {"offsetTable": table} if is_wrapped else table
    check_seal((json.dumps(content, **layout) + end).encode())  # type: ignore[arg-type]


@given(st.binary(max_size=8), st.lists(st.sampled_from([*LAYOUT_BYTES]), max_size=60).map(bytes))
def test_what_has_no_letters_of_crc32_at_its_end_is_not_judged(head: bytes, end: bytes) -> None:
    check_seal(head + end.translate(None, b"r3"))


@given(tables, st.integers(0), st.integers(0, 7))
def test_a_flipped_bit_in_a_sealed_text_is_seen(table: dict[str, int], place: int, bit: int) -> None:
    harmed = bytearray(sealed(json.dumps(table, indent=1).encode()))
    harmed[place % len(harmed)] ^= 1 << bit
    with pytest.raises(ProtocolError):
        check_seal(bytes(harmed))
