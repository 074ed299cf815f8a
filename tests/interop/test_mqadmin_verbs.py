"""Every verb of the real admin tool against a cluster of ours, and ours against an Apache cluster.

The real tool, of both releases, tells the story of `tests/mqadmin_story.py` to our name server and broker:
what it prints must have the shape it has with an Apache cluster. Our commands look at an Apache cluster and
change it: they must find there what the Java client and tool put there.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kourou.cli.main import run
from tests import mqadmin_story
from tests.interop import apache, ours
from tests.system import test_cli_mqadmin as shapes

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

ONLY_5 = ("updateTopicList", "updateSubGroupList", "setConsumeMode", "haStatus", "producer")
"""Verbs that the tool of 4.9 does not know."""

OTHER_IN_4 = frozenset(
    """
    cloneGroupOffset clusterList consumeMessage consumerConnection consumerProgress consumerStatus
    exportMetadata getConsumerConfig printMsg printMsgByQueue producerConnection queryCq
    queryMsgById queryMsgByKey queryMsgByOffset queryMsgByUniqueKey queryMsgTraceById
    resetOffsetByTime sendMsgStatus statsAll topicList topicRoute topicStatus updateSubGroup
    updateTopic updateTopicPerm
    """.split()  # noqa: SIM905 - one text rather than many quoted words
)
"""What 4.9 prints with other columns, fields or words than were recorded of 5.3.3: it counts that the verb
succeeds."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, str]]:
    with (
        ours.name_server(tmp_path) as names,
        ours.broker(tmp_path, names.address, name="broker-a", traceTopicEnable="true") as broker,
    ):
        yield names.address, broker.address


def test_the_real_tool_says_of_our_cluster_what_it_says_of_apaches(
    version: str, cluster: tuple[str, str], tmp_path: Path
) -> None:
    names, address = cluster
    is_old = version.startswith("4.")
    with mqadmin_story.cast(names, address, "broker-a", tmp_path / "out") as cast:
        verbs = [template for template in mqadmin_story.VERBS if not is_old or _is_known_to_4(template)]
        lines = [f"{_without_new_flags(verb, is_old).format(**cast)} -n {names}" for verb in verbs]
        said = apache.mqadmin(version, tmp_path, *lines, timeout=600)
    recorded = shapes.recorded()
    wrong = []
    for template, text in zip(verbs, said, strict=True):
        if template in shapes.REFUSED:
            if "CODE: 17" not in text:
                wrong.append(f"{template}:\n{text}")
            continue
        if "Exception" in text.replace("exceptionDesc", ""):
            wrong.append(f"{template}:\n{text}")
            continue
        if is_old and template.split()[0] in OTHER_IN_4:
            continue
        expected, found = shapes._shape(template, recorded[template]), shapes._shape(template, text)
        if expected != found:
            wrong.append(f"{template}:\n  expected {expected}\n  found    {found}")
    assert not wrong, "\n".join(wrong)


def _is_known_to_4(template: str) -> bool:
    return template.split()[0] not in ONLY_5 and not template.endswith(" -l") and " -q 0 -o 1" not in template


def _without_new_flags(template: str, is_old: bool) -> str:
    return template.replace(" -t StoryTopic", "") if is_old and "queryMsgById" in template else template


# ---------------------------------------------------------------------------------------------- our commands


class Shell:
    def __init__(self, name_server: str) -> None:
        self._name_server = name_server

    def __call__(self, line: str, *more: str, code: int = 0) -> str:
        printed, noted = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(noted):
            ended = run([*line.split(), *more, "-n", self._name_server])
        assert ended == code, f"{line} ended with {ended}: {noted.getvalue()}{printed.getvalue()}"
        return printed.getvalue()

    def json(self, line: str, *more: str) -> Any:
        return json.loads(self(line, *more, "-o", "json"))


def test_our_commands_look_after_an_apache_cluster(version: str, tmp_path: Path) -> None:
    with (
        apache.name_server(version, tmp_path) as names,
        apache.broker(version, tmp_path, names.address, name="broker-a") as broker,
        mqadmin_story.cast(names.address, broker.address, "broker-a", tmp_path / "out") as cast,
    ):
        shell = Shell(names.address)
        (row,) = shell.json("broker ls")
        assert (row["broker"], row["version"]) == ("broker-a", "V" + version.replace(".", "_"))
        assert shell.json("nameserver ls")[0]["state"] == "up"
        assert len(shell.json("broker config show broker-a")) > 100
        shell("broker config set broker-a fileReservedTime=48 --yes")
        (setting,) = shell.json("broker config show broker-a --match fileReservedTime")
        assert setting["value"] == "48"

        assert "StoryTopic" in [each["topic"] for each in shell.json("topic ls")]
        assert sum(each["messages"] for each in shell.json("topic stats StoryTopic")) == 10
        shell("topic create Made -r 3 -w 2")
        (made,) = shell.json("topic show Made")
        assert (made["read_queues"], made["write_queues"]) == (3, 2)
        shell("topic perm Made 4 --yes")
        assert shell.json("topic show Made")[0]["perm"] == 4
        shell("topic rm Made --yes")
        shell("topic show Made", code=3)

        assert [each["group"] for each in shell.json("group ls")] == ["StoryGroup"]
        assert sum(each["lag"] for each in shell.json("group lag StoryGroup -t StoryTopic")) == 0
        assert shell.json("group members StoryGroup")[0]["client_id"] == cast["client"]
        assert {each["client_id"] for each in shell.json("group info StoryGroup")} == {cast["client"]}
        shell("group create Offline --retries 3")
        preview = shell.json("group clone StoryGroup Offline -t StoryTopic --dry-run")
        assert sum(each["after"] for each in preview) == 10
        shell("group clone StoryGroup Offline -t StoryTopic --yes")
        shell("group reset Offline -t StoryTopic --earliest --yes")
        assert sum(each["lag"] for each in shell.json("group lag Offline -t StoryTopic")) == 10
        shell("group reset Offline -t StoryTopic --to-offset 2 --queue 1 --yes")
        shell("group skip Offline -t StoryTopic --yes")
        assert sum(each["lag"] for each in shell.json("group lag Offline -t StoryTopic")) == 0
        shell("group rm Offline --yes")

        assert shell.json(f"message get {cast['offset_id']}")[0]["body"] == "body 3"
        assert shell.json(f"message get {cast['unique_id']} -t StoryTopic")[0]["body"] == "body 3"
        assert [each["body"] for each in shell.json("message find StoryTopic --key story-key-3")] == [
            "body 3"
        ]
        assert len(shell.json("message find StoryTopic --since 1h --contains body")) == 10
        shell("message send StoryTopic again")
        assert shell.json("dlq ls") == []
        assert shell.json("tx ls") == []
        shell("message send StoryTopic later --delay", "level 16")
        assert [each["kind"] for each in shell.json("timer ls -t StoryTopic")] == ["level"]
        assert shell("check cluster --warn-disk 100 --crit-disk 100").startswith("CLUSTER OK")
        assert shell("top --count 1").startswith("1/1 brokers")
        assert "\n0 troubles" in shell("doctor -q")


def test_our_mqadmin_says_of_an_apache_cluster_what_the_real_one_says(tmp_path: Path) -> None:
    version = "5.3.3"
    with (
        apache.name_server(version, tmp_path) as names,
        apache.broker(version, tmp_path, names.address, name="broker-a", traceTopicEnable="true") as broker,
        mqadmin_story.cast(names.address, broker.address, "broker-a", tmp_path / "out") as cast,
        contextlib.chdir(tmp_path),
    ):
        recorded = shapes.recorded()
        wrong = []
        for template in mqadmin_story.VERBS:
            text, code = shapes._run(["mqadmin", *template.format(**cast).split(), "-n", names.address])
            if template in shapes.REFUSED:
                assert code == 3, text
                continue
            expected, found = shapes._shape(template, recorded[template]), shapes._shape(template, text)
            if code or expected != found:
                wrong.append(f"{template} ended with {code}:\n  expected {expected}\n  found    {found}")
    assert not wrong, "\n".join(wrong)
