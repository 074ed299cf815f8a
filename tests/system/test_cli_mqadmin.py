"""`kourou mqadmin` prints what the real tool prints.

The story of `tests/mqadmin_story.py` was told to the real tool and an Apache cluster, and what it printed is
kept in `tests/wire/recorded/mqadmin-5.3.3.json`. Here it is told to `kourou mqadmin` and a cluster of ours.
What must be equal is the shape: every heading to the letter and in its column, and of every other line the
words and where its columns begin. Figures, addresses, ids and times are masked; lists that are Java's in no
order are sorted.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kourou
from kourou.cli.main import run
from kourou.cli.mqadmin import NOT_HERE, all_verbs
from tests import mqadmin_story

RECORDED = Path(__file__).resolve().parents[1] / "wire" / "recorded" / "mqadmin-5.3.3.json"
BROKER = "broker-a"

TOLD_APART = {
    "brokerStatus": "every broker tells its own figures",
    "getBrokerConfig": "every broker has its own settings",
    "getNamesrvConfig": "every name server has its own settings",
}
"""Verbs whose lines are a server's own words: only how a line is set is compared."""

REFUSED = ("topicRoute -t NoSuchTopic", "consumerProgress -g NoSuchGroup")
"""What the original answers with a stack trace, and we with a line and an exit code."""


ORIGINAL = frozenset(
    """
    addBroker addWritePerm allocateMQ brokerConsumeStats brokerStatus checkMsgSendRT
    checkRocksdbCqWriteProgress cleanBrokerMetadata cleanExpiredCQ cleanUnusedTopic cloneGroupOffset
    clusterList clusterRT consumeMessage consumerConnection consumerProgress consumerStatus copyAcl
    copyUser createAcl createUser deleteAcl deleteExpiredCommitLog deleteKvConfig deleteSubGroup
    deleteTopic deleteUser dumpCompactionLog electMaster exportConfigs exportMetadata
    exportMetadataInRocksDB exportMetrics exportPopRecord getAcl getBrokerConfig getBrokerEpoch
    getColdDataFlowCtrInfo getConsumerConfig getControllerConfig getControllerMetaData
    getNamesrvConfig getSyncStateSet getUser haStatus listAcl listUser printMsg printMsgByQueue
    producer producerConnection queryCq queryMsgById queryMsgByKey queryMsgByOffset
    queryMsgByUniqueKey queryMsgTraceById remappingStaticTopic removeBroker
    removeColdDataFlowCtrGroupConfig resetMasterFlushOffset resetOffsetByTime rocksDBConfigToJson
    sendMessage sendMsgStatus setCommitLogReadAheadMode setConsumeMode skipAccumulatedMessage
    startMonitoring statsAll topicClusterList topicList topicRoute topicStatus updateAcl
    updateBrokerConfig updateColdDataFlowCtrGroupConfig updateControllerConfig updateKvConfig
    updateNamesrvConfig updateOrderConf updateStaticTopic updateSubGroup updateSubGroupList
    updateTopic updateTopicList updateTopicPerm updateUser wipeWritePerm
    """.split()  # noqa: SIM905 - one text rather than 90 quoted words
)
"""Every verb the tool of release 5.3.3 knows."""

OF_4_9 = frozenset(
    {"updateAclConfig", "deleteAclConfig", "updateGlobalWhiteAddr", "clusterAclConfigVersion"}
    | {"getAccessConfigSubCommand", "getConsumerStatus", "DecodeMessageId"}
)
"""Verbs that only 4.9 has, or that 5.x still has in its sources."""


class Told:
    """What each verb printed, and how it ended."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.codes: dict[str, int] = {}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    folder = tmp_path_factory.mktemp("mqadmin")
    result = Told()
    with pytest.MonkeyPatch.context() as patch, kourou.LocalBroker(broker_name=BROKER) as broker:
        patch.chdir(folder)
        with mqadmin_story.cast(broker.name_server, broker.address, BROKER, folder / "out") as cast:
            for template in mqadmin_story.VERBS:
                words = shlex.split(template.format(**cast))
                text, code = _run(["mqadmin", *words, "-n", broker.name_server])
                result.texts[template], result.codes[template] = text, code
        yield result


def _run(arguments: list[str]) -> tuple[str, int]:
    import contextlib
    import io

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = run(arguments)
    return printed.getvalue(), code


def recorded() -> dict[str, str]:
    story: list[dict[str, Any]] = json.loads(RECORDED.read_text())
    return {entry["verb"]: entry["said"] for entry in story}


@pytest.mark.parametrize("template", mqadmin_story.VERBS)
def test_a_verb_prints_what_the_real_tool_prints(template: str, told: Told) -> None:
    theirs, ours = recorded()[template], told.texts[template]
    if template in REFUSED:
        assert "CODE: 17" in theirs
        assert told.codes[template] == 3, ours
        assert ours.startswith("kourou: no ")
        return
    assert told.codes[template] == 0, ours
    assert _shape(template, ours) == _shape(template, theirs)


def _shape(template: str, text: str) -> list[str]:
    verb = template.split()[0]
    lines = [line.rstrip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    if verb in TOLD_APART:
        return sorted({_masked_words(line) for line in lines})
    if template == "topicList":
        return []  # a name a line, and every broker has its own; see below
    lines = [line for line in lines if not _is_of_theirs_alone(line)]
    return (
        sorted({_masked(line) for line in lines}) if _in_no_order(verb) else [_masked(line) for line in lines]
    )


def _in_no_order(verb: str) -> bool:
    return verb not in ("topicRoute", "clusterList", "topicStatus", "haStatus")


def _is_of_theirs_alone(line: str) -> bool:
    """Of topics and groups that only an Apache broker has, and Java's own words in an error."""
    return (
        bool(
            re.match(
                r"(DefaultCluster +)?(rmq_sys_|RMQ_SYS_|DefaultCluster|%|SELF|BenchmarkTest|TBW|OFF|SCHED)",
                line,
            )
        )
        or "consumerGroup=StoryTopic" in line
        or "rocketmq.apache.org/docs" in line
        or bool(re.match(r"StoryTopic +StoryTopic ", line))
        or bool(re.match(r"DefaultCluster +(StoryTopic|broker-a) +(StoryTopic|broker-a)?$", line))
        or "_INNER_TRACE_PRODUCER" in line
        or line.startswith("MessageTrack")
    )


def _masked(line: str) -> str:
    """Words and where columns begin; no figures, ids, times, addresses, and no order inside {…}."""
    line = re.sub(r"\{[^{}]*=[^{}]*\}", "{…}", line)
    line = re.sub(r"/?\S*/(out|msgbodys|kourou-msgbodys-\w+)/", "/FOLDER/", line)
    line = re.sub(r"\d+/[\w@#.-]+$", "FILE", line)
    line = re.sub(r"\S+@\d+#\d+-\d+ *", "CLIENT ", line)
    line = re.sub(r"\b[0-9A-F]{32}(?:[0-9A-F]{24})? *", "ID ", line)
    line = re.sub(r"/?127\.0\.0\.1:\d+ *", "ADDRESS ", line)
    line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?", "TIME", line)
    line = re.sub(r"V\d_\d_\d+ *", "VERSION ", line)
    if line.startswith("#") and "\t" not in line:
        return line
    line = re.sub(r"-?\d+(\.\d+)?(E-?\d+)?", "N", line)
    return re.sub(r" {2,}", "  ", line)


def _masked_words(line: str) -> str:
    """How a line of a server's own words is set: `key : value`, behind an address or not."""
    line = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", line)
    if line.startswith("===="):
        return line
    key = re.match(r"(ADDRESS +)?(\S.*?)( *)(: |:$|=  ?|=$)", line)
    assert key, line
    column = len(key[1] or "") and "address "
    return f"{column or ''}key{key[4].strip()}value"


def test_every_topic_of_ours_is_listed(told: Told) -> None:
    names = set(told.texts["topicList"].split())
    assert {"StoryTopic", "StoryOther", "StoryListed", "%RETRY%StoryGroup", "TBW102", BROKER} <= names


def test_headings_stand_over_their_columns(told: Told) -> None:
    lines = told.texts["topicStatus -t StoryTopic"].splitlines()
    assert lines[0].index("#Max Offset") == lines[1].index("5")
    assert lines[0].index("#QID") == lines[1].index(" 0 ") + 1


def test_what_was_exported_is_json(told: Told, tmp_path: Path) -> None:
    path = re.search(r"export (\S+) success", told.texts["exportMetadata -c {cluster} -f {folder}"])
    assert path is not None
    metadata = json.loads(Path(path[1]).read_text())
    assert metadata["topicConfigTable"]["StoryTopic"]["readQueueNums"] == 2
    assert "StoryGroup" in metadata["subscriptionGroupTable"]


def test_every_verb_of_the_original_is_here_or_says_why_not() -> None:
    assert not all_verbs().keys() & NOT_HERE.keys()
    assert all_verbs().keys() | NOT_HERE.keys() >= ORIGINAL
    assert set(all_verbs()) - ORIGINAL == OF_4_9


def test_every_verb_is_part_of_a_story() -> None:
    """But those told elsewhere (users, accounts), that run until they are stopped, or that want a slave."""
    asked = {template.split()[0] for template in mqadmin_story.VERBS}
    left = {name for name in set(all_verbs()) - asked if not re.search("User|Acl|White|Access", name)}
    assert left == {"clusterRT", "resetMasterFlushOffset", "getConsumerStatus", "DecodeMessageId"}


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["topicStats"], 2, "mqadmin has no verb 'topicStats'; did you mean topicStatus?"),
        (["getSyncStateSet"], 2, "does not apply: there is no controller"),
        (["topicStatus"], 2, "the following arguments are required: -t/--topic"),
        (["topicRoute", "-t", "x", "--nonsense"], 2, "unrecognized arguments: --nonsense"),
        (["consumerProgress", "-n", "127.0.0.1:1"], 5, "no name server answers"),
    ],
)
def test_a_call_that_makes_no_sense_says_why(
    words: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["mqadmin", *words]) == code
    assert says in capsys.readouterr().err


def test_help_lists_the_verbs_and_their_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mqadmin"]) == 0
    assert "consumerProgress" in capsys.readouterr().out
    assert run(["mqadmin", "help", "consumerProgress"]) == 0
    assert "--showClientIP" in capsys.readouterr().out
