"""A server reads what anybody may have sent by `decode_request`, which bounds the time that takes.

Reading the dialect of fastjson by hand takes microseconds a value, during which a server serves nobody else;
`decode` and `loads` allow millions of values, for replies of a server that one has chosen to ask. This test
reads the sources of the servers and finds every other way from a body to its meaning.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.bodies import MessageQueue, QueuePlaces

SOURCES = Path(__file__).parents[2] / "src" / "kourou"
SERVERS = ("access", "broker", "nameserver", "replication", "remoting", "console")

UNBOUNDED = {"decode", "loads"}
BOUND = "values_max"
NATIVE = {"msgspec.json.decode", "json.loads"}  # refuse what is no standard JSON, and are fast with what is
TRUSTED = {
    "reply",  # of a server that this one asked
    "record",  # of this server's own log
}


def test_servers_read_what_strangers_send_within_bounds() -> None:
    strays = [
        f"{path.relative_to(SOURCES.parent)}:{line}"
        for package in SERVERS
        for path in sorted((SOURCES / package).rglob("*.py"))
        for line in unbounded_in(path.read_text())
    ]
    assert not strays, "read without bounds, use decode_request:\n  " + "\n  ".join(strays)


def unbounded_in(source: str) -> list[int]:
    """The lines on which a stranger's body is decoded with no bound."""
    tree = ast.parse(source)
    bodies = {"body"} | {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_strangers_body(node.value, set())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return [
        call.lineno
        for call in _unbounded_calls(tree)
        if any(_is_strangers_body(part, bodies) for given in call.args for part in ast.walk(given))
    ]


def _unbounded_calls(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) in NATIVE:
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        bounded = len(node.args) > 2 or any(given.arg == BOUND for given in node.keywords)
        if name in UNBOUNDED and not bounded:
            yield node


def _is_strangers_body(node: ast.AST, bodies: set[str]) -> bool:
    """`request.body`, `frame.body`, …; or a name of `bodies`, where such a one was put."""
    if isinstance(node, ast.Attribute) and node.attr == "body":
        return ast.unparse(node.value) not in TRUSTED
    return isinstance(node, ast.Name) and node.id in bodies


@pytest.mark.parametrize(
    "source",
    [
        "HeartbeatData.decode(request.body)",
        "said = HeartbeatData.decode(request.body) if request.body else None",
        "fastjson.decode(request.body, list[str])",
        "fastjson.loads(command.body)",
        "from fastjson import decode\ndecode(bytes(frame.body), dict)",
        "QueuePlaces.decode(outcome.body)",
        "data = request.body\nTopicTable.decode(data)",
        "def read(body): return TopicTable.decode(body)",
    ],
)
def test_a_body_read_without_bounds_is_found(source: str) -> None:
    assert len(unbounded_in(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "HeartbeatData.decode_request(request.body)",
        "fastjson.decode(request.body, list[str], fastjson.REQUEST_VALUES_MAX)",
        "fastjson.decode(request.body, list[str], values_max=10)",
        "KVTable.decode(reply.body)",
        "import msgspec\nmsgspec.json.decode(request.body)",
        "frame.header.decode()",
    ],
)
def test_what_is_bounded_or_no_strangers_is_left_alone(source: str) -> None:
    assert unbounded_in(source) == []


def test_a_body_keyed_by_objects_is_bounded_too() -> None:
    queues = [MessageQueue(broker_name="a", queue_id=number, topic="T") for number in range(5000)]
    few = QueuePlaces(message_queue_table=dict.fromkeys(queues[:3], 1)).encode_fastjson()
    many = QueuePlaces(message_queue_table=dict.fromkeys(queues, 1)).encode_fastjson()
    assert len(QueuePlaces.decode_request(few).message_queue_table) == 3
    assert len(QueuePlaces.decode(many).message_queue_table) == 5000
    with pytest.raises(ProtocolError, match=r"body: .* 20000 are read at most"):
        QueuePlaces.decode_request(many)
