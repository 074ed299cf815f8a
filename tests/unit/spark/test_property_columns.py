"""Properties of many messages at once, against `protocol/properties.py`."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kourou.protocol import properties
from kourou.spark.property_columns import Properties, texts

# Few characters, so that empty entries, missing ends and repeated names come often.
encoded = st.lists(st.sampled_from([b"\x01", b"\x02", b"a", b"b", b"TAGS", "é".encode()]), max_size=14).map(
    b"".join
)


@given(st.lists(encoded, max_size=6))
@example([b"a\x01b\x02", b"", b"\x02a\x01b", b"a\x01b\x02a\x01c\x02"])
@settings(max_examples=200, deadline=None)
def test_maps_and_single_values_are_what_the_plain_parser_says(many: list[bytes]) -> None:
    found = Properties(pa.array(many, pa.binary()))
    expected = [properties.parse(each) for each in many]
    assert [dict(each) for each in found.maps().to_pylist()] == expected
    assert [len(each) for each in found.maps().to_pylist()] == [len(each) for each in expected]
    for name in ("a", "TAGS", "never"):
        assert found.values(name).to_pylist() == [each.get(name) for each in expected]


def test_more_names_than_a_word_has_bits_are_told_apart() -> None:
    many = [b"".join(b"n%d\x01v%d\x02" % (number % 70, number) for number in range(100))]
    assert dict(Properties(pa.array(many, pa.binary())).maps().to_pylist()[0]) == properties.parse(many[0])


def test_a_slice_of_an_array_is_read_from_its_own_beginning() -> None:
    many = pa.array([b"a\x011\x02", b"a\x012\x02", b"a\x013\x02"], pa.binary()).slice(1, 2)
    assert Properties(many).values("a").to_pylist() == ["2", "3"]


def test_text_that_is_no_utf_8_shows_where() -> None:
    assert texts(pa.array([b"ok", b"\xffx"], pa.binary())).to_pylist() == ["ok", "�x"]
