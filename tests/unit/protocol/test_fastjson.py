"""JSON as RocketMQ's peers write it."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest

from kourou.errors import ProtocolError
from kourou.protocol import fastjson
from kourou.protocol.bodies import HeartbeatData, MessageQueue
from kourou.protocol.fastjson import DEPTH_MAX, decode, dumps, dumps_fastjson, loads, pairs
from kourou.protocol.fastjson_by_hand import read_by_hand

QUEUE = MessageQueue(broker_name="b", queue_id=1, topic="t")


class Point(msgspec.Struct):
    x: int
    y: int = 0
    names: list[str] = []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("  \n", None),
        ("null", None),
        ('{"a":1}\n', {"a": 1}),
        ('{0:"a",-1:"b"}', {"0": "a", "-1": "b"}),
        ('{"t@g":{0:5,1:6}}', {"t@g": {"0": 5, "1": 6}}),
        ('{"text":"like {0:this} and ,1:that",2:3}', {"text": "like {0:this} and ,1:that", "2": 3}),
        ("{a:1,_b$:2,@type:'x',中:3}", {"a": 1, "_b$": 2, "@type": "x", "中": 3}),
        ("{'single':'q\"uote',}", {"single": 'q"uote'}),
        ("[1,2,]", [1, 2]),
        ("{'d':1.0E8,'e':-0.5,'f':.5,'g':+1}", {"d": 1e8, "e": -0.5, "f": 0.5, "g": 1}),
        ("{'a':true,'b':false,'c':null,'d':NaN}", {"a": True, "b": False, "c": None, "d": None}),
        ("{'n':9223372036854775807}", {"n": 2**63 - 1}),
        (r"['\"\'\\\/\b\f\n\r\t\v\0\x41\u4e2d\ud83d\ude00']", ["\"'\\/\b\f\n\r\t\v\0A中\U0001f600"]),
        (
            '{"@type":"com.sun.rowset.JdbcRowSetImpl","a":1}',
            {"@type": "com.sun.rowset.JdbcRowSetImpl", "a": 1},
        ),
        ('{{"q":1}:{"x":2},{"q":2}:3}', [({"q": 1}, {"x": 2}), ({"q": 2}, 3)]),
        ("{ 0 : 1 , 'a' : [ ] }", {"0": 1, "a": []}),
    ],
)
def test_the_dialect_is_read(text: str, value: Any) -> None:
    assert loads(text.encode()) == value


def test_a_standard_document_reads_the_same_both_ways() -> None:
    document = {"a": [1, 2.5, None, True, {"b": 'ü\n"\\'}], "": {}, "c": "x\u0001y"}
    text = json.dumps(document)
    assert loads(text.encode()) == read_by_hand(text) == document


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[",
        '{"a"',
        '{"a":',
        '{"a":1',
        "[1",
        '"a',
        "'a\\",
        "{a}",
        "{,:1}",
        "[1 2]",
        '{"a":1 "b":2}',
        "1 2",
        "-",
        ".",
        "1e",
        "--1",
        "tru",
        "nul",
        r"'\q'",
        r"'\u12'",
        r"'\x1'",
        r"'\ud800'",
        "{'a':1}}",
        "]",
        ":",
        "{1.5:2}",
        "1-2",
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        loads(text.encode())


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        loads(b'{"a":"\xff"}')


@pytest.mark.parametrize(
    ("opening", "inside", "closing"), [("[", "", "]"), ('{"a":', "1", "}"), ("{a:", "1", "}")]
)
def test_nesting_is_bounded(opening: str, inside: str, closing: str) -> None:
    loads((opening * DEPTH_MAX + inside + closing * DEPTH_MAX).encode())
    for depth in (DEPTH_MAX + 1, 1_000, 100_000):
        with pytest.raises(ProtocolError):
            loads((opening * depth + inside + closing * depth).encode())


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert len(loads(b"[" + b",".join([b"{}"] * 1000) + b"]")) == 1000


def test_long_numbers_are_refused() -> None:
    with pytest.raises(ProtocolError, match="number of 65 characters"):
        loads(b"{a:" + b"1" * 65 + b"}")


def test_a_huge_document_is_read_only_when_that_is_quick() -> None:
    longest = "x" * fastjson.LENIENT_BYTES_MAX
    assert loads(f'{{"a":"{longest}"}}'.encode()) == {"a": longest}
    assert loads(f'{{0:"{longest}"}}'.encode()) == {"0": longest}
    with pytest.raises(ProtocolError, match="non-standard JSON"):
        loads(f"{{'a':'{longest}'}}".encode())


# --------------------------------------------------------------------------------------------- references


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{"x":1},"b":{"$ref":"$.a"}}', {"a": {"x": 1}, "b": {"x": 1}}),
        ('{"a":[{"x":[7]}],"b":{"$ref":"$.a[0].x[0]"}}', {"a": [{"x": [7]}], "b": 7}),
        ('{"b":{"$ref":"$.a"},"a":{"$ref":"$.c"},"c":[1]}', {"b": [1], "a": [1], "c": [1]}),
        (r'{"%RETRY%g":[1],"b":{"$ref":"$.\\%RETRY\\%g"}}', {"%RETRY%g": [1], "b": [1]}),
        ('{"t":{0:[5]},"b":{"$ref":"$.t[0]"}}', {"t": {"0": [5]}, "b": [5]}),
        ('{"a b":[1],"b":{"$ref":"$[\'a b\']"}}', {"a b": [1], "b": [1]}),
        ('{"$ref":5}', {"$ref": 5}),
        ('{"$ref":"$.a","more":1}', {"$ref": "$.a", "more": 1}),
    ],
)
def test_references_are_followed(text: str, value: Any) -> None:
    assert loads(text.encode()) == value


@pytest.mark.parametrize(
    "path", ["@", "..", "$", "$.a", "$.a.b", "a", "", "$..", "$.x", "$.c[0]", "$.c[z]", "$.d[9]"]
)
def test_references_that_lead_nowhere_or_in_circles_are_refused(path: str) -> None:
    with pytest.raises(ProtocolError, match="reference"):
        loads(json.dumps({"a": {"b": {"$ref": path}}, "c": 1, "d": []}).encode())


def test_references_cannot_blow_up_a_document() -> None:
    document: dict[str, list[Any]] = {"0": [1]}
    for level in range(1, 20):
        document[str(level)] = [{"$ref": f"$.{level - 1}"}] * 10
    with pytest.raises(ProtocolError, match="far larger"):
        loads(json.dumps(document).encode())


# -------------------------------------------------------------------------------------------------- typed


@pytest.mark.parametrize(
    "text",
    [
        '{"x":1,"y":2,"names":["a"]}',
        '{"x":"1","y":"2","names":["a"],"unknown":{"deep":[]}}',
        "{x:1,y:2.0,names:['a']}",
        '{"x":1,"y":2,"names":["a"],"z":null}',
    ],
)
def test_typed_documents_may_be_sloppy(text: str) -> None:
    assert decode(text.encode(), Point) == Point(1, 2, ["a"])


def test_null_means_absent() -> None:
    assert decode(b'{"x":1,"y":null,"names":null}', Point) == Point(1)


def test_a_typed_document_follows_references() -> None:
    two = decode(b'[{"x":1},{"$ref":"$[0]"}]', list[Point])
    assert two == [Point(1), Point(1)]


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b'{"y":1}', b'{"x":"one"}', b'{"x":1', b'{"x":{}}'])
def test_a_document_of_another_kind_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data, Point)


def test_maps_keyed_by_queues_come_in_three_forms() -> None:
    key = {"brokerName": "b", "queueId": 1}
    assert pairs(loads(b'{{"brokerName":"b","queueId":1}:5}')) == [(key, 5)]
    assert pairs(loads(rb'{"{\"brokerName\":\"b\",\"queueId\":1}":5}')) == [(key, 5)]
    assert pairs(loads(b"{}")) == []
    with pytest.raises(ProtocolError, match="a map was expected"):
        pairs(5)


# ------------------------------------------------------------------------------------------------ writing


def test_standard_json_quotes_every_key_and_has_no_blanks() -> None:
    assert dumps({"a": {0: "x", 1: [1, 2.5, None, True]}}) == b'{"a":{"0":"x","1":[1,2.5,null,true]}}'


def test_fastjson_leaves_integer_keys_bare_and_writes_queues_as_keys() -> None:
    table = {"t": {0: "x", 1: [1, "ü"]}, "q": {QUEUE: {"y": None, "z": 1}}, "empty": {}, "none": {"n": None}}
    assert dumps_fastjson(table).decode() == (
        '{"t":{0:"x",1:[1,"ü"]},"q":{{"brokerName":"b","queueId":1,"topic":"t"}:{"z":1}},"empty":{},"none":{}}'
    )


def test_what_fastjson_writes_is_read_back() -> None:
    table = {QUEUE: 5}
    [(key, value)] = pairs(loads(dumps_fastjson(table)))
    assert (fastjson.convert(key, MessageQueue), value) == (QUEUE, 5)


@pytest.mark.parametrize(
    "body",
    [
        b'{clientID:"x",a:[' + b"0," * 2_000_000 + b"0]}",
        b'{"clientID":null,"a":[' + b"{}," * 2_000_000 + b"{}]}",
        b'{"clientID":"x",' + b"0:0," * 1_000_000 + b"1:1}",
    ],
    ids=["by hand", "nulls", "bare keys"],
)
def test_little_of_a_request_is_read_the_slow_way(body: bytes) -> None:
    began = time.process_time()
    with pytest.raises(ProtocolError, match="20000 are read at most"):
        HeartbeatData.decode_request(body)
    assert time.process_time() - began < 2.0, "6 seconds it would take"


def test_a_request_in_the_dialect_is_read_as_long_as_it_is_short() -> None:
    members = b",".join(b'{groupName:"g%d"}' % number for number in range(1000))
    asked = HeartbeatData.decode_request(b'{clientID:"x",producerDataSet:[%b]}' % members)
    assert len(asked.producer_data_set) == 1000
