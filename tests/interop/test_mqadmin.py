"""Apache's admin tool says the same of our name server as of Apache's own.

The verbs are run twice, each against a name server with one Apache broker of the same name: once ours, once
Apache's. What mqadmin prints must be equal once addresses and times are masked.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.interop import apache, ours
from tests.interop.round_trip import java_consume, java_send

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

VERBS = [
    "updateTopic -c DefaultCluster -t AdminTopic -r 8 -w 6",
    "topicRoute -t AdminTopic",
    "topicRoute -t NoSuchTopic",
    "topicClusterList -t AdminTopic",
    "topicList",
    "clusterList",
    "updateKvConfig -s space -k key -v value",
    "deleteKvConfig -s space -k key",
    "updateOrderConf -t AdminTopic -v apache-a:4 -m put",
    "updateOrderConf -t AdminTopic -m get",
    "updateOrderConf -t AdminTopic -m delete",
    "updateOrderConf -t AdminTopic -m get",
    "wipeWritePerm -b apache-a",
    "topicRoute -t AdminTopic",
    "addWritePerm -b apache-a",
    "topicRoute -t AdminTopic",
    "deleteTopic -c DefaultCluster -t AdminTopic",
    "topicRoute -t AdminTopic",
]


def test_mqadmin_sees_no_difference_between_the_name_servers(version: str, tmp_path: Path) -> None:
    with (
        apache.name_server(version, tmp_path) as theirs,
        apache.broker(version, tmp_path / "theirs", theirs.address),
    ):
        expected = _run(version, tmp_path, theirs.address)
    with ours.name_server(tmp_path) as mine, apache.broker(version, tmp_path / "mine", mine.address):
        said = _run(version, tmp_path, mine.address)
    for verb, theirs_said, mine_said in zip(VERBS, expected, said, strict=True):
        assert mine_said == theirs_said, verb
    assert any("AdminTopic" in text for text in said)
    assert any("apache-a:4" in text for text in said)


def test_a_broker_that_is_a_little_behind_is_not_a_difference() -> None:
    row = "DefaultCluster apache-a 0 127.0.0.1:{port} V5_3_3 0.00({a},0ms) 1.{a}0({a},{a}ms|{b},0ms) "
    row += "{a}-{b}(0.0w, 0.{a}, 0.0) {b} 0.0{a} 0.4{b}00 true"
    ahead, behind = row.format(port=10911, a=0, b=0), row.format(port=10921, a=1, b=12)
    assert _masked("clusterList", ahead) == _masked("clusterList", behind)
    other = ahead.replace("apache-a 0", "apache-a 1")
    assert _masked("clusterList", ahead) != _masked("clusterList", other)


def test_mqadmin_reads_and_changes_our_configuration(version: str, tmp_path: Path) -> None:
    with ours.name_server(tmp_path) as names:
        before, changed, after, refused = apache.mqadmin(
            version,
            tmp_path,
            f"getNamesrvConfig -n {names.address}",
            f"updateNamesrvConfig -n {names.address} -k orderMessageEnable -v true",
            f"getNamesrvConfig -n {names.address}",
            f"updateNamesrvConfig -n {names.address} -k kvConfigPath -v /tmp/elsewhere",
        )
    assert _configuration(before)["listenPort"] == names.address.rsplit(":", 1)[1]
    assert _configuration(before)["orderMessageEnable"] == "false"
    assert "success" in changed
    assert _configuration(after)["orderMessageEnable"] == "true"
    assert "success" not in refused
    assert "kvConfigPath" in refused


def test_mqadmin_makes_a_topic_on_our_broker(version: str, tmp_path: Path) -> None:
    with ours.name_server(tmp_path) as names, ours.broker(tmp_path, names.address) as broker:
        made, route = apache.mqadmin(
            version,
            tmp_path,
            f"updateTopic -n {names.address} -b {broker.address} -t Made -r 3 -w 2",
            f"topicRoute -n {names.address} -t Made",
        )
        assert f"create topic to {broker.address} success" in made
        assert '"readQueueNums":3' in route
        assert '"writeQueueNums":2' in route
        java_send(version, tmp_path, names.address, "Made", "sync")
        received = java_consume(version, tmp_path, names.address, "Made", 10)
        assert {line["queueId"] for line in received} == {0, 1}


def _run(version: str, folder: Path, name_server: str) -> list[str]:
    for _ in range(10):  # a broker of Apache's that has just started may have no figures of itself yet
        if "CODE: 1 " not in apache.mqadmin(version, folder, f"clusterList -n {name_server}")[0]:
            break
    said = apache.mqadmin(version, folder, *(f"{verb} -n {name_server}" for verb in VERBS))
    return [_masked(verb, text) for verb, text in zip(VERBS, said, strict=True)]


def _masked(verb: str, text: str) -> str:
    """Without what differs from run to run: addresses, times, loads, and the words of an error."""
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
    text = re.sub(r"\d+\.\d+", "FIGURE", text)
    text = re.sub(r"\d+ms", "TIME", text)
    if verb == "clusterList":
        text = _without_backlogs(text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    failed = [line for line in lines if "CODE:" in line]
    if failed:
        return "\n".join(re.sub(r"(CODE: \d+).*", r"\1", line) for line in failed)
    kept = [line for line in lines if line]
    return "\n".join(sorted(kept) if verb == "topicList" else kept)


def _without_backlogs(text: str) -> str:
    """How far behind a broker is at that moment: its timer, its thread pools' queues, its page cache.

    FIGURE(0,TIME)  FIGURE(0,TIME|0,TIME)  1-0(FIGUREw, FIGURE, FIGURE)  0  FIGURE  FIGURE  true
    """
    text = re.sub(r"\b\d+-\d+\(", "TIMER(", text)
    text = re.sub(r"([(|])(?:\d+|N),", r"\1QUEUED,", text)
    return re.sub(r"(?<=\))\s+\d+(?=\s)", " WAITED", text)


def _configuration(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}
