"""The Java client and ours through one scripted cluster: the same tries, queues and outcomes."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

import kourou
from kourou.client.sends import RETRIED_CODES
from kourou.protocol.codes import ResponseCode
from tests.interop import apache
from tests.interop.scripted_cluster import BROKERS, QUEUES, Try, scripted_cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC = "Scripted"
TIMEOUT_MS = 3000
CODES = sorted(int(code) for code in ResponseCode if 0 < code < 1000)
REFUSALS = [
    *(f"{code} 0" for code in CODES),
    *(f"{code}" for code in CODES if code in RETRIED_CODES),
    "1 17 0",
    "16 13",
]
CLOSES = ["close 0", "close close 0", "close", "close 13"]
SILENCE = ["silence 0", "0", "0"]
SCRIPTS = {
    # The client of 4.9 does not notice that a broker has closed the connection, and waits until its time is
    # over; ours does as the client of 5.x, and tries the next broker at once.
    "4.9.7": [*REFUSALS, *SILENCE],
    "5.3.3": [*REFUSALS, *CLOSES, *SILENCE],
}
JAVA_RUNS_MAX = 3
RETRIED = {"4.9.7": RETRIED_CODES - {ResponseCode.SYSTEM_BUSY}, "5.3.3": RETRIED_CODES}


@pytest.mark.parametrize("dead", [(), ("broker-a",), BROKERS], ids=["all there", "one dead", "both dead"])
def test_every_try_is_the_java_client_s(version: str, tmp_path: Path, dead: tuple[str, ...]) -> None:
    scripts = SCRIPTS[version] if not dead else ["0", "1 0", "17", "0", "0", "0"]
    java, java_tries = _sent_by_java(version, tmp_path, "sync", scripts, dead)
    ours, our_tries = _sent_by_us(version, "sync", scripts, dead, _first_queue(java_tries))
    assert list(zip(scripts, ours, strict=True)) == list(zip(scripts, java, strict=True))
    if not dead:
        assert our_tries == java_tries
    else:
        assert _brokers(our_tries) == _brokers(java_tries)


def test_what_nobody_waits_for_is_tried_as_the_java_client_does(version: str, tmp_path: Path) -> None:
    # A refusal is final here. The Java client's second try names the queue of its first one, whichever broker
    # it goes to; ours names one of that broker's own: so the number of tries is compared, not their queues.
    scripts = [*REFUSALS, *(CLOSES[:3] if version.startswith("5.") else []), "0"]
    for _ in range(JAVA_RUNS_MAX):
        java, java_tries = _sent_by_java(version, tmp_path, "async", scripts)
        ours, our_tries = _sent_by_us(version, "async", scripts, (), _first_queue(java_tries))
        if not _gave_up_early(scripts, java, ours):
            break
    assert list(zip(scripts, ours, strict=True)) == list(zip(scripts, java, strict=True))
    assert _attempts(our_tries) == _attempts(java_tries)


def _gave_up_early(scripts: list[str], java: list[str], ours: list[str]) -> bool:
    """On a busy machine the Java client may try a connection that is closed and not yet missed, and give up
    where it goes on otherwise: then it is asked again. Whatever else is different stays so."""
    different = {
        (script.split()[0], theirs, our)
        for script, theirs, our in zip(scripts, java, ours, strict=True)
        if theirs != our
    }
    return different == {("close", "unreachable", "stored SEND_OK")}


def _sent_by_java(
    version: str, folder: Path, how: str, scripts: list[str], dead: tuple[str, ...] = ()
) -> tuple[list[str], list[Try]]:
    with scripted_cluster(TOPIC, dead) as cluster:
        said = apache.run(
            version, folder, "Faults", cluster.name_server, TOPIC, str(TIMEOUT_MS), how, *scripts
        )
    events = [json.loads(line) for line in said.splitlines() if line.startswith('{"event"')]
    return [event["outcome"] for event in events], cluster.tries


def _sent_by_us(
    version: str, how: str, scripts: list[str], dead: tuple[str, ...], first_queue: int
) -> tuple[list[str], list[Try]]:
    with (
        scripted_cluster(TOPIC, dead) as cluster,
        kourou.Producer(
            "faults",
            cluster.name_server,
            send_timeout=TIMEOUT_MS / 1000,
            retried_codes=RETRIED[version],
        ) as producer,
    ):
        producer._sending._turns._of_this_thread.counters = {TOPIC: count(first_queue)}
        return [_outcome(producer, how, script) for script in scripts], cluster.tries


def _outcome(producer: kourou.Producer, how: str, script: str) -> str:
    message = kourou.Message(TOPIC, script.encode())
    try:
        sent = producer.send(message) if how == "sync" else producer.send_soon(message).result(60)
    except kourou.Refused as error:
        return f"refused {error.code}"
    except kourou.Unreachable:
        return "unreachable"
    return f"stored {sent.status.value}"


def _first_queue(tries: list[Try]) -> int:
    """Where the Java client's turns began, which is a matter of chance."""
    return BROKERS.index(tries[0].broker) * QUEUES + tries[0].queue if tries else 0


def _brokers(tries: list[Try]) -> list[tuple[str, str]]:
    """What came where, when tries that reach nobody leave the turns unknown."""
    return [(each.body, each.broker) for each in tries]


def _attempts(tries: list[Try]) -> list[tuple[str, int]]:
    return [(each.body, each.attempt) for each in tries]
