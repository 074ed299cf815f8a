"""JSON and Java properties: what is written is read, and garbage is refused politely."""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ProtocolError
from kourou.protocol import bodies, fastjson, java_properties
from kourou.protocol.bodies import Body, RegisterBrokerBody, TopicConfig, TopicTable
from kourou.protocol.fastjson_by_hand import read_by_hand

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
documents = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(texts.filter(lambda key: key != "$ref"), inner, max_size=4),
    ),
    max_leaves=20,
)
scraps = st.sampled_from(
    [*"{}[]:,\"'\\ $-.0123e", '"$ref"', '"$.a"', "true", "null", '"a"', "a", "\\u00", "中"]
)
BODIES = [kind for kind in vars(bodies).values() if isinstance(kind, type) and issubclass(kind, Body)]


@given(documents)
def test_standard_json_is_read_as_it_was_written(document: Any) -> None:
    assert fastjson.loads(fastjson.dumps(document)) == document


@given(documents)
def test_the_slow_reader_agrees_with_the_standard_library(document: Any) -> None:
    for text in (json.dumps(document), json.dumps(document, ensure_ascii=False, indent=1)):
        assert read_by_hand(text) == document


@given(st.dictionaries(st.integers(-(2**31), 2**31 - 1), texts, max_size=6))
def test_integer_keys_come_back_quoted_or_bare(table: dict[int, str]) -> None:
    for write in (fastjson.dumps, fastjson.dumps_fastjson):
        assert fastjson.decode(write({"t": table}), dict[str, dict[int, str]]) == {"t": table}


@given(st.lists(scraps, max_size=30).map("".join))
def test_scraps_of_json_are_a_value_or_a_protocol_error(text: str) -> None:
    with suppress(ProtocolError):
        value = fastjson.loads(text.encode())
        with suppress(ProtocolError):
            fastjson.pairs(value)


@given(st.binary(max_size=100))
def test_garbage_is_a_value_or_a_protocol_error(garbage: bytes) -> None:
    for read in (fastjson.loads, java_properties.parse):
        with suppress(ProtocolError):
            read(garbage)


@pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.__name__)
@given(
    st.one_of(
        st.binary(max_size=60),
        documents.map(fastjson.dumps),
        st.lists(scraps).map(lambda s: "".join(s).encode()),
    )
)
def test_garbage_is_a_body_or_a_protocol_error(kind: type[Body], garbage: bytes) -> None:
    with suppress(ProtocolError):
        read = kind.decode(garbage)
        assert kind.decode(read.encode_fastjson()) == read


@given(st.binary(max_size=100), st.booleans(), st.integers(0, 500))
def test_a_garbled_registration_is_a_registration_or_a_protocol_error(
    garbage: bytes, compressed: bool, version: int
) -> None:
    for data in (garbage, zlib.compress(garbage)):
        with suppress(ProtocolError):
            RegisterBrokerBody.decode_from(data, version, compressed)


names = st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="%_-|"), min_size=1)
numbers = st.integers(0, 2**31 - 1)
topic_configs = st.builds(
    TopicConfig,
    topic_name=names,
    read_queue_nums=numbers,
    write_queue_nums=numbers,
    perm=st.integers(0, 15),
    attributes=st.dictionaries(texts, texts, max_size=3),
)


@given(st.lists(topic_configs, max_size=5), st.sampled_from([409, 413, 479]))
def test_a_registration_is_read_as_it_was_written(topics: list[TopicConfig], version: int) -> None:
    table = TopicTable(topic_config_table={topic.topic_name: topic for topic in topics})
    body = RegisterBrokerBody(topic_table=table)
    assert RegisterBrokerBody.decode_from(body.encode(), version) == body
    read = RegisterBrokerBody.decode_from(body.encode_compressed(version), version, compressed=True)
    assert read.topic_table.topic_config_table == table.topic_config_table


@given(st.dictionaries(texts, texts, max_size=6))
def test_java_properties_are_read_as_they_were_written(table: dict[str, str]) -> None:
    assert java_properties.parse(java_properties.format(table)) == table


@given(st.lists(st.sampled_from([*"a=: \\\n\r\t#!u", "\\u0041", "\\\n"]), max_size=30).map("".join))
def test_scraps_of_java_properties_are_a_table_or_a_protocol_error(text: str) -> None:
    with suppress(ProtocolError):
        table = java_properties.parse(text)
        assert java_properties.parse(java_properties.format(table)) == table
