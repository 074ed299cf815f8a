"""Every page of the console, over a live cluster of two brokers."""

from __future__ import annotations

import re
import time
from pathlib import Path
from urllib.parse import quote

import pytest

import kourou
from tests.console.cluster import Person, Running, first_login, notices, running_console

PAGES = [
    "/",
    "/brokers",
    "/brokers/broker-a",
    "/brokers/broker-a?tab=settings&search=flush",
    "/brokers/broker-a?tab=figures",
    "/topics",
    "/topics?kind=dlq",
    "/topics?search=ord&everything=true",
    "/new-topic",
    "/topics/orders",
    "/topics/orders?tab=route",
    "/topics/orders?tab=groups",
    "/topics/orders?tab=send",
    "/topics/orders?tab=edit",
    "/topics/orders/delete",
    "/groups",
    "/new-group",
    "/groups/billing",
    "/groups/billing?tab=members",
    "/groups/billing?tab=reset",
    "/groups/billing?tab=settings",
    "/groups/billing/delete",
    "/groups/billing/reset?topic=orders&where=earliest",
    "/groups/billing/reset?topic=orders&where=time&time=2026-01-01T00:00:00",
    "/groups/billing/skip?topic=orders",
    "/messages",
    "/messages?topic=orders",
    "/messages?by=key&topic=orders&key=order-3",
    "/messages?by=id",
    "/messages?by=offset&topic=orders&broker=broker-a&queue_id=0&queue_offset=0",
    "/tail",
    "/tail?topic=orders",
    "/dead-letters",
    "/dead-letters/mailing",
    "/dead-letters/mailing?contains=nobody+1",
    "/dead-letters/mailing/purge",
    "/delayed",
    "/transactions",
    "/traces",
    "/connections",
    "/connections?tab=consumers",
    "/access",
    "/users",
    "/audit",
    "/api",
    "/account",
    "/password",
    "/find?q=order",
]


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_page_comes_soon_and_whole(admin: Person, path: str, language: str) -> None:
    admin.client.cookies.set("kourou_language", language)
    began = time.monotonic()
    page = admin.get(path)
    admin.client.cookies.delete("kourou_language")
    assert page.status_code == 200, notices(page.text)
    assert time.monotonic() - began < 5
    assert page.text.rstrip().endswith("</html>")
    assert "<h1" in page.text
    assert f'lang="{"zh-CN" if language == "zh" else "en"}"' in page.text


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("/topics/orders?tab=edit", "kourou topic create orders -r 4 -w 4 "),
        ("/topics?everything=true", "kourou topic ls --all "),
        ("/dead-letters/mailing", "kourou dlq resend mailing --all --skip-sent --yes "),
        ("/dead-letters/mailing?key=mail-1", "kourou dlq resend mailing --key mail-1 --skip-sent --yes "),
    ],
)
def test_the_line_to_type_does_what_the_page_shows(admin: Person, path: str, line: str) -> None:
    assert line in admin.get(path).text


def test_every_link_of_the_console_leads_to_a_page(admin: Person) -> None:
    seen: set[str] = set()
    for path in PAGES:
        for target in re.findall(r'href="(/[^"]*)"', admin.get(path).text):
            shape = re.sub(r"[0-9A-F]{16,}|\d+", "0", target)
            if shape not in seen and "/export" not in target:
                seen.add(shape)
                page = admin.get(target.replace("&amp;", "&").replace("&#39;", "'"))
                assert page.status_code in (200, 404), f"{target}: {page.status_code}"
                is_there = page.status_code == 200 or notices(page.text)
                assert is_there, f"{target} on {path} leads nowhere"
    assert len(seen) > 60


@pytest.mark.parametrize("name", ["new", "save", "tail", "delete", "%RETRY%a", "a|b"])
def test_a_topic_may_be_called_like_a_page(admin: Person, name: str) -> None:
    admin.post("/topics/save", topic=name, read_queues=1, write_queues=1)
    page = admin.get(f"/topics/{quote(name, safe='')}")
    assert page.status_code == 200
    assert f"<h1>{name}</h1>" in page.text
    admin.post("/topics/delete", topic=name)


def test_a_form_sent_after_the_session_has_ended_leads_back_to_its_page(console: Running) -> None:
    with console.client() as client:
        page = client.post("/topics/save", data={"topic": "late", "back": "/new-topic"})
        assert page.url.path == "/login"
        assert page.url.params["to"] == "/new-topic"


def test_what_does_not_exist_is_a_page_that_says_so(admin: Person) -> None:
    for path in (
        "/topics/no-such-topic",
        "/groups/no-such-group",
        "/brokers/nobody",
        "/messages/7F00",
        "/nowhere",
    ):
        page = admin.get(path)
        assert page.status_code in (400, 404), path
        assert "<h1" in page.text
        assert "Traceback" not in page.text


def test_a_broker_that_goes_takes_only_its_own_away(tmp_path: Path) -> None:
    with running_console(tmp_path / "console") as running:
        with kourou.Producer("shop", running.name_server) as producer:
            for number in range(8):
                producer.send(kourou.Message("orders", b"%d" % number))
        first_login(running)
        person = Person(running)
        assert person.get("/topics/orders").text.count("broker-b") >= 4
        running.stop_broker("broker-b")
        for path in (
            "/",
            "/brokers",
            "/topics",
            "/topics/orders",
            "/groups",
            "/messages?topic=orders",
            "/delayed",
        ):
            page = person.get(path)
            assert page.status_code == 200, notices(page.text)
        gone = person.get("/brokers/broker-b")
        assert gone.status_code in (404, 502)
        assert "broker-b" in gone.text
        sent = person.post("/topics/send", topic="orders", body="still taken")
        assert notices(sent.text)[0][0] == "good"
        running.stop_broker("broker-a")
        page = person.post("/topics/save", topic="invoices", read_queues=4, write_queues=4)
        assert notices(page.text)[0][0] == "bad"
        assert person.get("/").status_code == 200
        person.close()


def test_a_group_whose_members_want_different_things_is_warned_of(console: Running, admin: Person) -> None:
    with (
        kourou.PushConsumer("undecided", console.name_server) as one,
        kourou.PushConsumer("undecided", console.name_server) as other,
    ):
        one.on("orders", tags="new")(lambda message: None)
        other.on("orders", tags="paid")(lambda message: None)
        one.start()
        other.start()
        deadline = time.monotonic() + 20
        while "Messages may be missed" not in (page := admin.get("/groups/undecided").text):
            assert time.monotonic() < deadline, notices(page)
            time.sleep(0.2)
        assert "members disagree" in admin.get("/groups?search=undecided").text


def test_ten_thousand_topics_are_shown_a_page_at_a_time(
    admin: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kourou.admin import topics

    many = [
        topics.Topic(f"topic-{number:05}", "normal", ("broker-a", "broker-b"), 16, 16, 6)
        for number in range(10_000)
    ]
    monkeypatch.setattr(topics, "all_topics", lambda *_, **__: many)
    began = time.monotonic()
    page = admin.get("/topics?page=3")
    assert time.monotonic() - began < 5
    assert "10,000" in page.text
    assert "topic-00100" in page.text
    assert "topic-00099" not in page.text
    assert len(page.text) < 60_000
    found = admin.get("/topics?search=09999")
    assert "topic-09999" in found.text
    assert "topic-00001" not in found.text


def test_all_that_a_browser_loads_is_small_and_from_here(console: Running, admin: Person) -> None:
    page = admin.get("/").text
    loaded = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page))
    assert loaded >= {"/static/kourou.svg"}
    total = len(page) + sum(len(admin.get(path).content) for path in loaded)
    assert total < 300 * 1024
    assert not re.search(r'(?:src|href|action)="(?:https?:)?//', page)
    assert "style=" not in page
    assert "<script>" not in page
    assert not re.search(r"\son\w+=", page)
