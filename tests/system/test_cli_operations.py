"""The commands of operators, against a real broker: what they show, what they change, and how they end."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kourou
from kourou.broker.handlers import figures
from kourou.cli.main import run

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def broker() -> Iterator[kourou.LocalBroker]:
    with kourou.LocalBroker(
        broker_name="broker-a",
        recall_enabled=True,
        transaction_timeout_ms=300_000,
        transaction_check_interval_ms=300_000,
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def _environment(broker: kourou.LocalBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", broker.name_server)
    monkeypatch.setenv("KOUROU_CONTEXTS", str(tmp_path / "contexts.toml"))


class Shell:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.err = ""

    def __call__(self, line: str, *more: str, code: int = 0) -> str:
        self._capsys.readouterr()
        ended = run([*line.split(), *more])
        printed = self._capsys.readouterr()
        self.err = printed.err
        assert ended == code, f"{line} {more} ended with {ended}: {printed.err}{printed.out}"
        return printed.out

    def json(self, line: str, *more: str, code: int = 0) -> Any:
        return json.loads(self(line, *more, "-o", "json", code=code))


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def filled(
    broker: kourou.LocalBroker, topic: str, count: int = 10, queues: int = 2
) -> list[kourou.SendResult]:
    assert run(["topic", "create", topic, "-r", str(queues), "-w", str(queues)]) == 0
    with kourou.Producer("story", broker.name_server) as producer:
        return [
            producer.send(kourou.Message(topic, f"body {number}".encode(), tags="new", keys=f"key-{number}"))
            for number in range(count)
        ]


def handled(broker: kourou.LocalBroker, group: str, topic: str, count: int) -> None:
    """Have `group` read `count` messages, and leave."""
    seen: list[kourou.ReceivedMessage] = []
    with kourou.PullConsumer(group, topic, broker.name_server, start="earliest") as consumer:
        while len(seen) < count:
            seen += consumer.receive(count, 5)
        consumer.commit()


def eventually(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# -------------------------------------------------------------------------------------------------- topics


def test_a_topic_is_made_shown_changed_and_deleted(shell: Shell) -> None:
    shell("topic create life -r 4 -w 4 --type FIFO")
    (shown,) = shell.json("topic show life")
    assert (shown["read_queues"], shown["attributes"]) == (4, {"message.type": "FIFO"})
    assert [row["topic"] for row in shell.json("topic ls --kind fifo")] == ["life"]
    shell("topic perm life 4 --yes")
    assert shell.json("topic show life")[0]["perm"] == 4
    shell("topic rm life --dry-run")
    assert shell.json("topic show life")
    shell("topic rm life --yes")
    shell("topic show life", code=3)
    assert "no topic 'life'" in shell.err
    shell("topic rm life --yes --idempotent")
    shell("topic rm life --yes", code=3)


def test_what_changes_something_asks_first(shell: Shell) -> None:
    shell("topic create asked")
    shell("topic rm asked", code=2)
    assert "say --yes" in shell.err
    assert shell.json("topic show asked")


def test_a_topic_that_is_there_does_not_lose_queues_unasked(shell: Shell) -> None:
    shell("topic create wide -r 4 -w 4")
    shell("topic create wide -r 1 -w 1", code=2)
    assert "4/4 at" in shell.err
    assert "topic resize" in shell.err
    assert shell.json("topic show wide")[0]["read_queues"] == 4
    shell("topic create wide -r 1 -w 1 --yes")
    assert shell.json("topic show wide")[0]["read_queues"] == 1


def test_stats_say_what_is_in_a_topic(shell: Shell, broker: kourou.LocalBroker) -> None:
    filled(broker, "counted", 10, 2)
    rows = shell.json("topic stats counted")
    assert sum(row["messages"] for row in rows) == 10
    assert "10 messages" in shell("topic stats counted")
    handled(broker, "counters", "counted", 10)
    assert shell.json("topic groups counted") == [{"group": "counters"}]


# -------------------------------------------------------------------------------------------------- groups


def test_lag_is_the_truth(shell: Shell, broker: kourou.LocalBroker) -> None:
    filled(broker, "lagging", 10, 2)
    handled(broker, "laggards", "lagging", 10)
    filled(broker, "lagging", 5, 2)
    rows = shell.json("group lag laggards")
    assert sum(row["lag"] for row in rows) == 5
    (state,) = [row for row in shell.json("group ls") if row["group"] == "laggards"]
    assert (state["lag"], state["members"]) == (5, 0)
    shell("group lag nobody", code=3)
    assert "no group 'nobody'" in shell.err
    with kourou.PullConsumer("laggards", "lagging", broker.name_server) as consumer:
        while not consumer.receive(1, 5):
            pass
        eventually(lambda: sum(row["in_flight"] for row in shell.json("group lag laggards")) > 0)
    left = shell.json("group lag laggards")
    assert (sum(row["lag"] for row in left), sum(row["in_flight"] for row in left)) == (5, 0), (
        "nobody is there"
    )


@pytest.mark.parametrize(
    ("where", "lag"), [("--earliest", 10), ("--latest", 0), ("--to-time 1h", 10), ("--to-time now", 0)]
)
def test_a_group_without_members_goes_on_where_it_is_told(
    shell: Shell, broker: kourou.LocalBroker, where: str, lag: int
) -> None:
    topic, group = f"reset{where.strip('-').replace(' ', '-')}", "resetters"
    filled(broker, topic, 10, 2)
    handled(broker, group, topic, 7)
    preview = shell.json(f"group reset {group} -t {topic} {where} --dry-run")
    before = {(row["broker"], row["queue_id"]): row["before"] for row in preview}
    assert sum(row["lag_after"] for row in preview) == lag
    shell.json(f"group reset {group} -t {topic} {where} --dry-run")
    unchanged = shell.json(f"group lag {group} -t {topic}")
    assert {(row["broker"], row["queue_id"]): row["consumer_offset"] for row in unchanged} == before
    shell(f"group reset {group} -t {topic} {where} --yes")
    assert sum(row["lag"] for row in shell.json(f"group lag {group} -t {topic}")) == lag


def test_one_queue_is_reset_to_an_offset(shell: Shell, broker: kourou.LocalBroker) -> None:
    filled(broker, "one-queue", 10, 2)
    handled(broker, "oners", "one-queue", 10)
    shell("group reset oners -t one-queue --to-offset 2 --queue 1 --yes")
    places = {row["queue_id"]: row["consumer_offset"] for row in shell.json("group lag oners")}
    assert places == {0: 5, 1: 2}
    shell("group reset oners -t one-queue --to-offset 99 --yes", code=2)
    assert "it holds 0 to 5" in shell.err
    shell("group reset oners -t one-queue --latest --queue 9 --yes", code=3)
    shell("group reset oners -t one-queue --latest --earliest --yes", code=2)


def test_members_that_are_there_go_on_where_the_group_is_told(
    shell: Shell, broker: kourou.LocalBroker
) -> None:
    filled(broker, "told", 6, 1)
    seen: list[int] = []
    with kourou.PushConsumer("hearers", broker.name_server, start="earliest") as consumer:

        @consumer.on("told")
        def hear(message: kourou.ReceivedMessage) -> None:
            seen.append(message.queue_offset)

        consumer.start()
        eventually(lambda: len(seen) >= 6)
        (member,) = shell.json("group members hearers")
        assert member["language"] == "PYTHON"
        assert member["subscriptions"]["told"] == "TAG *"
        (held,) = [row for row in shell.json("group info hearers") if row["topic"] == "told"]
        assert held["client_id"] == member["client_id"]
        assert "Thread" in shell("group info hearers --stacks") or "thread" in shell(
            "group info hearers --stacks"
        )
        shell("group reset hearers -t told --to-offset 3 --yes")
        eventually(lambda: len(seen) >= 9)
    assert seen[6:9] == [3, 4, 5]


def test_a_backlog_is_skipped_and_a_place_is_cloned(shell: Shell, broker: kourou.LocalBroker) -> None:
    filled(broker, "skipped", 8, 2)
    handled(broker, "skippers", "skipped", 4)
    shell("group clone skippers twins -t skipped --yes")
    assert sum(row["lag"] for row in shell.json("group lag twins")) == 4
    shell("group skip skippers -t skipped --yes")
    assert sum(row["lag"] for row in shell.json("group lag skippers")) == 0
    assert sum(row["lag"] for row in shell.json("group lag twins")) == 4


def test_a_group_is_made_changed_and_deleted(shell: Shell) -> None:
    shell("group create made --retries 3")
    (shown,) = shell.json("group show made")
    assert (shown["retry_max_times"], shown["consume_enable"]) == (3, True)
    shell("group create made --disable")
    (shown,) = shell.json("group show made")
    assert (shown["retry_max_times"], shown["consume_enable"]) == (3, False)
    shell("group rm made --yes")
    shell("group show made", code=3)


# ------------------------------------------------------------------------------------------------ messages


def test_a_message_is_found_by_id_key_time_place_and_content(
    shell: Shell, broker: kourou.LocalBroker
) -> None:
    sent = filled(broker, "sought", 10, 2)
    third = sent[3]
    by_offset_id = shell.json(f"message get {third.offset_id}")[0]
    assert by_offset_id["body"] == "body 3"
    eventually(lambda: run(["message", "get", third.message_id, "-t", "sought"]) == 0)
    place = f"-b broker-a --queue {third.queue.queue_id} --offset {third.queue_offset}"
    assert shell.json(f"message get -t sought {place}")[0]["message_id"] == third.message_id
    (by_key,) = shell.json("message find sought --key key-3")
    assert by_key["message_id"] == third.message_id
    assert [row["body"] for row in shell.json("message find sought --contains", "body 7")] == ["body 7"]
    newest = shell.json("message find sought --since 1h --count 3")
    assert [row["body"] for row in newest] == ["body 9", "body 8", "body 7"]
    assert shell.json("message find sought --until 1h") == []
    shell("message get 00000000000000000000000000000000", code=2)
    shell("message get -t sought -b broker-a --queue 0 --offset 99", code=3)


def test_a_delayed_message_waits_and_is_taken_back(shell: Shell) -> None:
    shell("topic create later")
    (sent,) = shell.json("message send later hello --delay 5m")
    shell("message send later hello --delay", "level 16")
    shell("message send later hello --delay soon", code=2)
    eventually(lambda: len(shell.json("timer ls -t later")) == 2)
    rows = shell.json("timer ls -t later")
    assert [row["kind"] for row in rows] == ["timer", "level"]
    assert 200 < rows[0]["in_seconds"] <= 300
    assert shell.json("timer count") == [{"topic": "later", "messages": 1}]
    shell(f"timer cancel {rows[0]['message_id']} --dry-run")
    shell(f"timer cancel {rows[0]['message_id']} --yes")
    eventually(lambda: [row["kind"] for row in shell.json("timer ls -t later")] == ["level"])
    shell(f"timer cancel {rows[1]['message_id']} --yes", code=2)
    assert "cannot be taken back" in shell.err
    shell(f"timer cancel {sent['message_id']} --yes", code=3)


def test_half_messages_are_committed_and_rolled_back(shell: Shell, broker: kourou.LocalBroker) -> None:
    shell("topic create halves -r 1 -w 1")

    def undecided(message: kourou.ReceivedMessage) -> kourou.TransactionState:
        return kourou.TransactionState.UNKNOWN

    with kourou.TransactionProducer("undecided", undecided, broker.name_server) as producer:
        sent = []
        for body in (b"one", b"two"):
            with producer.transaction(kourou.Message("halves", body)) as transaction:
                transaction.leave_unknown()
            sent.append(transaction.sent)
    first, second = sent
    rows = shell.json("tx ls -t halves")
    assert {row["message_id"] for row in rows} == {first.message_id, second.message_id}
    assert {row["producer_group"] for row in rows} == {"undecided"}
    assert shell.json(f"tx show {first.message_id}")[0]["body"] == "one"
    shell(f"tx commit {first.message_id} --dry-run")
    shell(f"tx commit {first.message_id} --yes")
    shell(f"tx rollback {second.message_id} --yes")
    assert shell.json("tx ls -t halves") == []
    assert [row["body"] for row in shell.json("message find halves")] == ["one"]
    shell(f"tx commit {second.message_id} --yes", code=3)
    shell(f"tx resume {first.message_id} --yes", code=3)


def test_half_messages_that_were_given_up_are_resumed_and_ended(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kourou.LocalBroker(
        transaction_timeout_ms=1, transaction_check_interval_ms=100, transaction_checks_max=1
    ) as hasty:
        monkeypatch.setenv("NAMESRV_ADDR", hasty.name_server)
        shell("topic create given_up -r 1 -w 1")

        def unknown(message: kourou.ReceivedMessage) -> kourou.TransactionState:
            return kourou.TransactionState.UNKNOWN

        with kourou.TransactionProducer("forgetful", unknown, hasty.name_server) as producer:
            with producer.transaction(kourou.Message("given_up", b"who knows")) as transaction:
                transaction.leave_unknown()
            eventually(lambda: len(shell.json("tx ls --discarded")) == 1)
        assert shell.json("tx ls") == []
        (half,) = shell.json("tx ls --discarded")
        shell(f"tx resume {half['message_id']} --dry-run")
        shell(f"tx commit {half['message_id']} --yes")
        eventually(lambda: [row["body"] for row in shell.json("message find given_up")] == ["who knows"])


# -------------------------------------------------------------------------------------------- dead letters


def test_dead_letters_are_seen_sent_again_exported_and_purged(
    shell: Shell, broker: kourou.LocalBroker, tmp_path: Path
) -> None:
    filled(broker, "doomed", 3, 1)
    with kourou.PushConsumer("givers-up", broker.name_server, start="earliest") as consumer:

        @consumer.on("doomed")
        def give_up(message: kourou.ReceivedMessage) -> None:
            raise kourou.DeadLetter

        consumer.start()
        eventually(lambda: any(row["messages"] == 3 for row in shell.json("dlq ls")))
    letters = shell.json("dlq show givers-up")
    assert [row["body"] for row in letters] == ["body 0", "body 1", "body 2"]
    assert {row["first_topic"] for row in letters} == {"doomed"}
    assert len(shell.json("dlq show givers-up --key key-1")) == 1
    shell("dlq show strangers", code=3)
    assert "has no dead letters" in shell.err
    exported = tmp_path / "letters.jsonl"
    shell(f"dlq export givers-up {exported}")
    assert len(exported.read_text().splitlines()) == 3
    shell(f"dlq export givers-up --key key-1 {exported}", code=2)
    assert "is there already" in shell.err
    assert len(exported.read_text().splitlines()) == 3
    shell(f"dlq export givers-up --key key-1 --force {exported}")
    assert len(exported.read_text().splitlines()) == 1
    shell("dlq purge strangers --yes", code=3)
    assert "has no dead letters" in shell.err
    shell("check lag --warn 10 --crit 1", code=2)
    assert "it would never warn" in shell.err

    shell("dlq resend givers-up --yes", code=2)
    assert "say which" in shell.err
    (would,) = shell.json(f"dlq resend givers-up --id {letters[1]['offset_id']} --dry-run")
    assert would["status"] == "would be sent"
    heard: list[kourou.ReceivedMessage] = []
    with kourou.PushConsumer("givers-up", broker.name_server) as consumer:

        @consumer.on("doomed")
        def hear(message: kourou.ReceivedMessage) -> None:
            heard.append(message)

        consumer.start()
        eventually(lambda: run(["group", "members", "givers-up"]) == 0)
        shell(f"dlq resend givers-up --id {letters[1]['offset_id']} --yes")
        eventually(lambda: len(heard) == 1)
    assert (heard[0].body, heard[0].topic, heard[0].keys) == (b"body 1", "doomed", "key-1")
    again = shell.json("dlq resend givers-up --all --dry-run")
    assert [row["sent_before"] for row in again] == [False, True, False]
    shell("dlq resend givers-up --all", code=2)
    assert "3 dead letters of group 'givers-up'. 1 of them went there before" in shell.err
    before = sum(row["messages"] for row in shell.json("topic stats doomed"))
    shell("dlq resend givers-up --all --to topic --yes")
    assert sum(row["messages"] for row in shell.json("topic stats doomed")) == before + 3
    assert shell.json("dlq resend givers-up --all --to topic --skip-sent --yes") == []
    assert sum(row["messages"] for row in shell.json("topic stats doomed")) == before + 3
    shell("dlq purge givers-up --yes")
    assert shell.json("dlq ls") == []


# ------------------------------------------------------------------------------------ brokers, name servers


def test_brokers_are_listed_shown_and_set(shell: Shell, broker: kourou.LocalBroker) -> None:
    (row,) = shell.json("broker ls")
    assert (row["broker"], row["address"], row["state"]) == ("broker-a", broker.address, "active")
    figures = {each["key"]: each["value"] for each in shell.json("broker show broker-a")}
    assert figures["brokerVersionDesc"] == "V4_9_8"
    shell("broker show broker-z", code=3)
    shell("broker config set broker-a fileReservedTime=48 --dry-run")
    shell("broker config set broker-a fileReservedTime=48 --yes")
    (setting,) = shell.json("broker config show broker-a --match fileReserved")
    assert setting["value"] == "48"
    shell("broker config set broker-a rocketmqHome=/tmp --yes", code=4)
    shell("broker config set broker-a fileReservedTime=0 --yes", code=1)
    assert "whole number from 1" in shell.err
    shell("broker clean broker-a queues --yes")


def test_writing_to_a_broker_is_switched_off_and_on(shell: Shell) -> None:
    shell("topic create stopped")
    shell("broker write broker-a off --yes")
    assert shell.json("topic route stopped")[0]["perm"] == 4
    shell("broker write broker-a on --yes")
    assert shell.json("topic route stopped")[0]["perm"] == 6


def test_name_servers_are_listed_and_set(shell: Shell, broker: kourou.LocalBroker) -> None:
    assert shell.json("nameserver ls") == [{"address": broker.name_server, "state": "up", "error": None}]
    shell("nameserver config set orderMessageEnable=true --yes")
    (setting,) = shell.json("nameserver config show --match orderMessage")
    assert setting["value"] == "true"
    shell("nameserver config set kvConfigPath=/tmp/x --yes", code=4)
    shell("nameserver kv put space key value --yes")
    assert shell.json("nameserver kv ls space") == [{"key": "key", "value": "value"}]
    shell("nameserver kv rm space key --yes")
    shell("nameserver kv get space key", code=3)
    shell("nameserver ls -n 127.0.0.1:1", code=5)


# ------------------------------------------------------------------------------------------------- watching


def test_checks_end_with_what_monitoring_expects(shell: Shell, broker: kourou.LocalBroker) -> None:
    filled(broker, "checked", 10, 1)
    handled(broker, "checkers", "checked", 4)
    assert shell("check lag -g checkers --warn 100").startswith("LAG OK - ")
    printed = shell("check lag -g checkers --warn 5 --crit 50", code=6)
    assert printed == "LAG WARNING - group checkers is 6 messages (0 s) behind | 'checkers'=6;5;50;0\n"
    assert shell("check lag -g checkers --crit 6 --nagios", code=2).startswith("LAG CRITICAL - ")
    assert "UNKNOWN" in shell("check lag -g nobody --crit 6 --nagios", code=3)
    shell("check lag -g nobody --crit 6", code=3)
    shell("check lag -g checkers", code=2)
    assert shell("check cluster --warn-disk 100 --crit-disk 100").startswith("CLUSTER OK - ")
    assert "no name server answers" in shell("check cluster -n 127.0.0.1:1", code=6)
    assert shell("check dlq").startswith("DLQ OK")


def test_the_doctor_knows_a_broker_without_native_loops(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, is_told in ((None, True), (figures, False)):
        monkeypatch.setattr(figures, "native", module)
        findings = shell.json("doctor")
        about = [each for each in findings if "native loops" in each["what"]]
        assert [each["verdict"] for each in about] == (["hint"] if is_told else [])


def test_the_doctor_finds_what_is_wrong(shell: Shell, broker: kourou.LocalBroker) -> None:
    filled(broker, "sick", 2, 1)
    wants = iter(["one", "two"])
    with (
        kourou.PushConsumer("at-odds", broker.name_server) as first,
        kourou.PushConsumer("at-odds", broker.name_server) as second,
    ):
        for consumer in (first, second):
            consumer.on("sick", tags=next(wants))(lambda message: None)
            consumer.start()
        eventually(lambda: len(shell.json("group members at-odds")) == 2)
        findings = shell.json("doctor", code=6)
        assert any(
            each["verdict"] == "trouble" and each["about"] == "group at-odds" and each["do"]
            for each in findings
        ), findings
        assert [each for each in findings if each["verdict"] != "ok" and not each["do"]] == []
        assert re.search(r"\n\d+ troubles?, \d+ hints?\n", shell("doctor", code=6))
    assert any(each["about"].startswith("name server") and each["verdict"] == "ok" for each in findings)
    assert any(each["about"] == "clock of broker-a" and each["verdict"] == "ok" for each in findings)
    assert any(f"Kourou {kourou.__version__}" in each["what"] for each in findings)
    assert shell("doctor -q -n 127.0.0.1:1", code=6).endswith("\n2 troubles, 0 hints\n")


def test_top_tells_how_things_stand(shell: Shell) -> None:
    (line,) = shell("top --count 1").splitlines()
    assert line.startswith("1/1 brokers, in ")
    looks = [json.loads(line) for line in shell("top --json --count 2 --interval 0.2").splitlines()]
    assert [each["broker"] for each in looks[1]["brokers"]] == ["broker-a"]


def test_a_bench_says_how_fast_it_was_and_tidies_up(shell: Shell) -> None:
    sent, read = shell.json("bench --messages 200 --size 100 --in-flight 8 --consume")
    assert (sent["messages"], sent["failed"], read["messages"]) == (200, 0, 200)
    assert 0 < sent["p50_ms"] <= sent["p99_ms"] <= sent["max_ms"]
    shell("topic show kourou-bench", code=3)


# --------------------------------------------------------------------------------------------------- habits


def test_every_format_says_the_same(shell: Shell) -> None:
    shell("topic create shaped")
    rows = [row for row in shell.json("topic ls") if row["topic"] == "shaped"]
    lines = [json.loads(line) for line in shell("topic ls -o jsonl").splitlines()]
    assert rows == [row for row in lines if row["topic"] == "shaped"]
    table = list(csv.DictReader(io.StringIO(shell("topic ls -o csv"))))
    assert [row["perm"] for row in table if row["topic"] == "shaped"] == ["6"]
    assert "settings differ" in shell("topic ls -o wide").splitlines()[0]
    assert shell("topic ls --no-headers").splitlines()[0] != "topic"


def test_contexts_name_clusters(
    shell: Shell, broker: kourou.LocalBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR")
    shell(f"context add here -n {broker.name_server}")
    shell("context add there -n 127.0.0.1:1")
    assert [row["name"] for row in shell.json("context ls") if row["current"]] == ["here"]
    assert shell.json("broker ls")
    shell("broker ls --context there", code=5)
    shell("broker ls --context nowhere", code=2)
    assert "known: here, there" in shell.err
    shell("context use there")
    shell("broker ls", code=5)
    assert shell.json(f"broker ls -n {broker.name_server}")
    monkeypatch.setenv("KOUROU_CONTEXT", "here")
    assert shell.json("broker ls")
    shell("context rm there")
    assert (tmp_path / "contexts.toml").stat().st_mode & 0o77 == 0


def test_a_secret_is_read_from_a_file_and_never_shown(
    shell: Shell, broker: kourou.LocalBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("very-secret-key\n")
    shell(f"context add signed -n {broker.name_server} --access-key me --secret-key-file {secret} --use")
    monkeypatch.delenv("NAMESRV_ADDR")
    assert shell.json("broker ls")
    assert "very-secret-key" not in shell("context ls -o wide")
    secret.unlink()
    shell("broker ls", code=2)
    assert "cannot be read" in shell.err


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("KOUROU_BROKR_LISTEN_PORT", "did you mean KOUROU_BROKER_LISTEN_PORT?"),
        ("KOUROU_CONTEX", "did you mean KOUROU_CONTEXT?"),
        ("KOUROU_BROKER_LISTN_PORT", "did you mean KOUROU_BROKER_LISTEN_PORT?"),
    ],
)
def test_a_misspelt_variable_is_an_error(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, variable: str, says: str
) -> None:
    monkeypatch.setenv(variable, "1")
    shell("config check broker", code=2)
    assert says in shell.err


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_shells_get_what_they_need_to_complete(shell: Shell, name: str) -> None:
    assert "_KOUROU_COMPLETE" in shell(f"completion {name}")


def test_words_are_completed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from kourou.cli.main import main; main()"],
        env={"_KOUROU_COMPLETE": "bash_complete", "COMP_WORDS": "kourou gr", "COMP_CWORD": "1", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert "plain,group" in done.stdout


def test_the_command_starts_quickly() -> None:
    """200 ms are promised; a busy machine gets three tries."""
    spent = []
    for _ in range(3):
        begun = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", "from kourou.cli.main import main; main()", "group", "--help"],
            check=False,
            capture_output=True,
            timeout=20,
        )
        spent.append(time.perf_counter() - begun)
    assert min(spent) < 1.0


def test_no_command_imports_a_server_before_it_is_needed() -> None:
    """What makes the start quick: help and usage load click and nothing of a broker, a client or Spark."""
    program = (
        "import sys\nfrom kourou.cli.main import run\nrun(['group', 'lag', '--help'])\n"
        "heavy = [name for name in sys.modules if name.startswith(('kourou.broker', 'kourou.client', "
        "'kourou.admin', 'kourou.store', 'asyncio', 'rich', 'msgspec', 'pyspark', 'starlette'))]\n"
        "print(heavy, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=20
    )
    assert done.stderr.strip() == "[]"
