"""The HTTP interface, as somebody with curl would use it."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kourou
from tests.console.cluster import Person, Program, Running, first_login, running_console, token_for


def test_a_message_is_sent_received_and_acknowledged(program: Program) -> None:
    sent = program.post(
        "/topics/parcels/messages",
        json={"body": "one parcel", "tags": "small", "keys": "p-1", "properties": {"colour": "red"}},
    )
    assert sent.status_code == 200, sent.text
    assert sent.json()["status"] == "SEND_OK"
    wish = {"group": "depot", "wait": 20, "max": 4}
    received = program.post("/topics/parcels/receive", json=wish).json()["messages"]
    assert [message["body"] for message in received] == ["one parcel"]
    assert received[0]["message_id"] == sent.json()["message_id"]
    assert received[0]["properties"]["colour"] == "red"
    receipt = received[0]["receipt"]
    assert program.post(f"/receipts/{receipt}").json()["outcome"] == "done"
    again = program.post(f"/receipts/{receipt}")
    assert again.status_code == 404
    assert program.post("/topics/parcels/receive", json={**wish, "wait": 1}).json()["messages"] == []


def test_any_bytes_can_be_sent(program: Program) -> None:
    sent = program.post(
        "/topics/parcels/messages", json={"body_base64": b64encode(b"\x00\xff").decode()}
    ).json()
    found = program.get(f"/messages/{sent['offset_id']}").json()
    assert found["body_base64"] == b64encode(b"\x00\xff").decode()


def test_what_is_not_acknowledged_comes_again(program: Program) -> None:
    program.post("/topics/letters/messages", json={"body": "slow"})
    wish = {"group": "readers", "wait": 20, "hold": 1}
    first = program.post("/topics/letters/receive", json=wish).json()["messages"]
    assert [message["body"] for message in first] == ["slow"]
    deadline = time.monotonic() + 40
    second: list[dict[str, Any]] = []
    while not second and time.monotonic() < deadline:
        second = program.post("/topics/letters/receive", json={**wish, "wait": 15, "hold": 60}).json()[
            "messages"
        ]
    assert [message["body"] for message in second] == ["slow"]
    assert second[0]["reconsume_times"] == 1
    program.post(f"/receipts/{second[0]['receipt']}")


def test_a_receipt_is_worth_nothing_to_others(console: Running, program: Program, admin: Any) -> None:
    program.post("/topics/cards/messages", json={"body": "mine"})
    held = program.post("/topics/cards/receive", json={"group": "players", "wait": 20}).json()["messages"]
    with Program(console, token_for(admin)) as other:
        assert other.post(f"/receipts/{held[0]['receipt']}").status_code == 404
    assert program.post(f"/receipts/{held[0]['receipt']}").status_code == 200


def events(program: Program, path: str) -> Iterator[dict[str, Any]]:
    with program.stream("GET", path) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])


def test_a_stream_of_events_brings_messages_with_receipts(console: Running, program: Program) -> None:
    for number in range(3):
        program.post("/topics/news/messages", json={"body": f"news {number}"})
    stream = events(program, "/topics/news/stream?group=listeners")
    bodies = set()
    with Program(console, program.headers["authorization"].removeprefix("Bearer ")) as other:
        for message in stream:
            bodies.add(message["body"])
            assert other.post(f"/receipts/{message['receipt']}").status_code == 200
            if len(bodies) == 3:
                break
    stream.close()  # type: ignore[attr-defined]
    assert bodies == {"news 0", "news 1", "news 2"}


def test_watching_a_topic_takes_nothing(console: Running, program: Program) -> None:
    program.put("/topics/watched", json={"read_queues": 2, "write_queues": 2})
    stop = threading.Event()

    def send_now_and_then() -> None:
        with kourou.Producer("shop", console.name_server) as producer:
            while not stop.wait(0.2):
                producer.send(kourou.Message("watched", b"tick"))

    sender = threading.Thread(target=send_now_and_then)
    sender.start()
    try:
        stream = events(program, "/topics/watched/tail")
        assert next(stream)["body"] == "tick"
        stream.close()  # type: ignore[attr-defined]
    finally:
        stop.set()
        sender.join()
    assert program.get("/topics/watched/groups").json() == []


def test_who_waits_for_messages_does_not_keep_the_console_from_ending(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_console(tmp_path / "console") as running:
        first_login(running)
        person = Person(running)
        token = token_for(person)
        person.close()
        with (
            Program(running, token) as one,
            Program(running, token) as other,
            Program(running, token) as third,
        ):
            one.put("/topics/quiet", json={})
            tail = other.stream("GET", "/topics/quiet/tail")
            assert tail.__enter__().status_code == 200
            stream = third.stream("GET", "/topics/quiet/stream?group=listeners")
            assert stream.__enter__().status_code == 200
            answers: list[int] = []

            def wait_long() -> None:
                answers.append(one.post("/topics/quiet/receive", json={"group": "g", "wait": 30}).status_code)

            waiting = threading.Thread(target=wait_long)
            waiting.start()
            time.sleep(1)
            began = time.monotonic()
            running.stop_console()
            assert time.monotonic() - began < 4
            waiting.join(5)
            for each in (tail, stream):
                each.__exit__(None, None, None)
            assert answers == [503]
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_group_is_looked_at_reset_and_skipped(program: Program) -> None:
    plan = program.get("/groups/billing/reset", params={"topic": "orders", "where": "latest"}).json()
    assert sum(move["skipped"] for move in plan) > 0
    before = program.get("/groups/billing/lag", params={"topic": "orders"}).json()["total"]
    assert before > 0
    done = program.post("/groups/billing/skip", json={"topic": "orders"})
    assert done.status_code == 200, done.text
    assert program.get("/groups/billing/lag", params={"topic": "orders"}).json()["total"] == 0
    again = program.post("/groups/billing/reset", json={"topic": "orders", "where": "earliest"})
    assert again.status_code == 200
    assert program.get("/groups/billing/lag", params={"topic": "orders"}).json()["total"] > before


@pytest.mark.parametrize(
    ("method", "path", "fields", "status", "words"),
    [
        ("GET", "/topics/no-such-topic", None, 404, "no-such-topic"),
        ("GET", "/groups/no-such-group/lag", None, 404, "no-such-group"),
        ("GET", "/brokers/nobody/settings", None, 404, "nobody"),
        ("GET", "/nowhere", None, 404, "openapi.json"),
        ("GET", "/topics?page=0", None, 400, "page"),
        ("GET", "/topics?page=one", None, 400, "whole number"),
        ("PUT", "/topics/orders", {"read_queues": 0}, 400, "read_queues"),
        ("PUT", "/topics/or ders", {}, 400, "or ders"),
        ("POST", "/topics/orders/messages", {}, 400, "body is missing"),
        ("POST", "/topics/orders/messages", {"body_base64": "???"}, 400, "base64"),
        ("POST", "/topics/orders/receive", {}, 400, "group is missing"),
        ("POST", "/topics/orders/receive", {"group": "g", "wait": 9999}, 400, "wait"),
        ("POST", "/groups/billing/reset", {"topic": "orders", "where": "sideways"}, 400, "earliest"),
        (
            "POST",
            "/groups/billing/reset",
            {"topic": "orders", "where": "time", "time": "soon"},
            400,
            "moment",
        ),
        ("POST", "/dead-letters/mailing/resend", {}, 400, "nothing is chosen"),
        ("POST", "/transactions/none", {"outcome": "commit"}, 404, "none"),
        ("DELETE", "/timers/none", None, 404, "none"),
        ("DELETE", "/topics/no-such-topic", None, 404, "no topic 'no-such-topic'"),
        ("DELETE", "/groups/no-such-group", None, 404, "no group 'no-such-group'"),
    ],
)
def test_what_cannot_be_done_is_told_with_a_status_and_a_reason(
    program: Program, method: str, path: str, fields: dict[str, Any] | None, status: int, words: str
) -> None:
    answer = program.request(method, path, json=fields)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize("body", [b"{", b"[1]", b'{"a": ' * 2000, b"\xff\xfe", b"null"])
def test_a_body_that_is_no_json_object_is_told_so(program: Program, body: bytes) -> None:
    answer = program.post(
        "/topics/orders/messages", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400
    assert "JSON" in answer.json()["error"]["message"]


def test_without_a_token_nothing_is_told(console: Running) -> None:
    with console.client() as client:
        for path in ("/api/v1/topics", "/api/v1/openapi.json", "/api/v1/topics/orders/tail"):
            answer = client.get(path)
            assert answer.status_code == 401
            assert "you make one at /account" in answer.json()["error"]["message"]


def test_every_operation_is_described_and_everything_described_is_there(program: Program) -> None:
    from kourou.console.deeds.catalogue import DEEDS

    document = program.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    operations = {
        operation["operationId"]: (method.upper(), path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert operations.keys() == {deed.name for deed in DEEDS} | {
        *("message.receive", "message.stream", "message.settle", "message.tail")
    }
    for path, methods in document["paths"].items():
        for operation in methods.values():
            places = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert places == {part[1:-1] for part in path.split("/") if part.startswith("{")}


def test_whoever_wants_to_receive_from_no_topic_does_not_join_the_group(program: Program) -> None:
    """A member that wants another topic would take queues from those that work."""
    wish = {"group": "careful", "start": "earliest", "wait": 1}
    refused = program.post("/topics/no-such-topic/receive", json=wish)
    assert refused.status_code == 404, refused.text
    assert "no-such-topic" in refused.text
