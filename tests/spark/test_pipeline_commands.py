"""`kourou pipeline …` as it is typed: what it prints, what it writes, how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import kourou
from kourou.cli.main import run
from kourou.cli.pipeline import pipeline
from kourou.errors import Corrupt
from kourou.spark.pipelines import quiet

pytestmark = pytest.mark.timeout(600)

Fill = Callable[..., None]
NewTopic = Callable[..., str]


@pytest.fixture
def typed(
    spark: SparkSession,
    broker: kourou.LocalBroker,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command line in the session that is there; exit code, standard output and standard error."""

    @contextmanager
    def same_session(name: str, **_: object) -> Iterator[SparkSession]:
        try:
            yield spark
        except quiet.spark_errors() as error:
            raise kourou.MQError(quiet.in_one_line(error)) from None

    monkeypatch.setattr(quiet, "quiet_session", same_session)
    monkeypatch.setenv("NAMESRV_ADDR", broker.name_server)

    def type_in(*arguments: str | Path) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(["pipeline", *map(str, arguments)])
        told = capfd.readouterr()
        return code, told.out, told.err

    return type_in


def test_an_archive_an_audit_and_what_they_write(
    typed: Any, new_topic: NewTopic, fill: Fill, tmp_path: Path
) -> None:
    topic, lake, page = new_topic(2), tmp_path / "lake", tmp_path / "page.html"
    fill(topic, [b"%d" % number for number in range(25)])
    code, out, _ = typed("archive", topic, "--lake", lake, "--dry-run")
    assert code == 0
    assert "nothing was done" in out
    code, out, _ = typed("archive", topic, "--lake", lake, "-o", "json", "--picture", tmp_path / "a.png")
    assert code == 0
    assert json.loads(out)["messages"] == 25
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    code, out, err = typed("audit", "--lake", lake, "--report", page)
    assert code == 0, err
    assert "compared with broker  25" in " ".join(out.split("\n")[0:8])
    assert "<h1>audit" in page.read_text()
    next(lake.rglob("*.parquet")).unlink()
    code, out, err = typed("audit", "--lake", lake, "--offline")
    assert (code, out) == (1, "")
    assert len(err.strip().splitlines()) == 1, "one line, no wall of Java"


def test_a_dry_run_of_what_only_looks_tells_what_it_would_look_at(
    broker: kourou.LocalBroker,
    new_topic: NewTopic,
    fill: Fill,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Without a Spark: none is started for it."""
    monkeypatch.setenv("NAMESRV_ADDR", broker.name_server)
    topic = new_topic(3)
    fill(topic, [b"x"] * 9)
    with kourou.LocalBroker(tmp_path / "other", segment_bytes=64 * 1024) as other:
        store = Path(other.data) / "store"
        with kourou.Producer("p", other.name_server) as producer:
            producer.send(kourou.Message("t", b"x"))
    for command, facts in (
        (("stats", topic), {"topics": 1, "messages": 9}),
        (("latency", topic), {"topics": 1, "messages": 9}),
        (
            ("lag-history", "--history", "h", "--group", "g", "--samples", "3"),
            {"groups": 1, "samples": 3, "seconds": 20.0},
        ),
        (("scan-store", str(store)), {"folder": str(store / "commitlog")}),
    ):
        capfd.readouterr()
        assert run(["pipeline", *command, "--dry-run", "-o", "json"]) == 0
        told = json.loads(capfd.readouterr().out)
        assert told["is_dry_run"]
        assert {name: told[name] for name in facts} == facts
    assert not (tmp_path / "h").exists()


def test_a_lake_that_lacks_rows_ends_with_six(
    typed: Any, new_topic: NewTopic, fill: Fill, tmp_path: Path
) -> None:
    topic, lake = new_topic(1), tmp_path / "lake"
    fill(topic, [b"x"] * 5)
    assert typed("archive", topic, "--lake", lake)[0] == 0
    (commit,) = (lake / "_kourou/commits").iterdir()
    told = json.loads(commit.read_text())
    told["files"] = []  # as if somebody had taken files out of the lake
    commit.write_text(json.dumps(told))
    code, out, _ = typed("audit", "--lake", lake, "--offline")
    assert code == 6
    assert "Not everything is as it should be." in out


def test_counts_that_were_only_half_written_are_one_line(
    typed: Any, new_topic: NewTopic, fill: Fill, tmp_path: Path
) -> None:
    topic, counts = new_topic(1), tmp_path / "counts"
    fill(topic, [b"x"] * 5)
    counts.mkdir()
    (counts / "metadata").write_text("")
    code, out, err = typed("stats", topic, "--stream", counts)
    assert (code, out) == (Corrupt.exit_code, "")
    assert f"'{counts}/metadata' is empty; put a copy of it back" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("archive", "no-such-topic", "--lake", "lake"), 3, "no-such-topic"),
        (("archive", "--lake", "lake"), 2, "by name, or by a pattern"),
        (("archive", "t"), 2, "--lake"),
        (("archive", "t", "--lake", "lake", "--option", "tag=x"), 2, "did you mean tags?"),
        (("archive", "t", "--lake", "lake", "--option", "nonsense"), 2, "NAME=VALUE"),
        (("archive", "t", "--lake", "lake", "-n", "127.0.0.1:1"), 5, "127.0.0.1:1"),
        (("audit",), 2, "--lake DIR, or --trace"),
        (("audit", "--lake", "nowhere"), 2, "is no lake"),
        (("restore", "--lake", "nowhere"), 2, "is no lake"),
        (("redrive", "g", "--audit", "a", "--rate", "0"), 2, "0"),
        (("stats", "no-such-topic"), 1, "no-such-topic"),
        (("scan-store", "nowhere"), 1, "no folder"),
        (("stats", "t", "--master", "local", "--remote", "sc://x"), 2, "give one of them"),
    ],
)
def test_what_goes_wrong_is_one_line_and_its_own_exit_code(
    typed: Any,
    arguments: tuple[str, ...],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, out, err = typed(*arguments)
    assert (ended, out) == (code, ""), err
    assert said in err
    assert "Traceback" not in err
    assert "org.apache" not in err


def test_every_pipeline_says_what_it_does() -> None:
    runner = CliRunner()
    names = ("archive", "restore", "redrive", "latency", "lag-history", "audit", "scan-store", "stats")
    assert set(pipeline.commands) == set(names)
    for name in names:
        told = runner.invoke(pipeline, [name, "--help"])
        assert told.exit_code == 0
        assert "--master" in told.output
        assert "--dry-run" in told.output
        assert "--report" in told.output
    assert isinstance(pipeline.commands, Mapping)
