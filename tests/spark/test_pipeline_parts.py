"""What pipelines are made of, without Spark: commits of a lake, files of a task, audits, reports."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kourou.doors.files import RealFiles
from kourou.errors import ConfigError, Corrupt, StoreLocked
from kourou.spark.columns import SCHEMA
from kourou.spark.offsets import Queue
from kourou.spark.pipelines import picture
from kourou.spark.pipelines.audit import Bounds, Counted, common, covered, judged
from kourou.spark.pipelines.lag_history import thinned
from kourou.spark.pipelines.lake import Lake, LakeFile, QueueRange, advanced, partition_folder
from kourou.spark.pipelines.latency import spoken_ms
from kourou.spark.pipelines.quiet import in_one_line
from kourou.spark.pipelines.redrive import AuditTable
from kourou.spark.pipelines.report import Picture, Report, Rows, as_html, shown
from kourou.spark.pipelines.restore import _read_journal
from kourou.spark.pipelines.task_files import TaskFiles, TaskName, parted

DAY_MS = 24 * 3600 * 1000
NOON_MS = 1_700_000_000_000 // DAY_MS * DAY_MS + DAY_MS // 2
QUEUE = Queue("orders", "a", 0)


def messages(count: int, start: int = 0, topic: str = "orders", store_ms: int = NOON_MS) -> pa.RecordBatch:
    def column(field: pa.Field) -> pa.Array:
        values: dict[str, Callable[[int], Any]] = {
            "topic": lambda _: topic,
            "brokerName": lambda _: "a",
            "queueId": lambda _: 0,
            "queueOffset": lambda number: start + number,
            "properties": lambda number: [("KEYS", f"k{number}")],
            "body": lambda number: b"%d" % number,
            "storeTimestamp": lambda _: store_ms * 1000,
            "bornTimestamp": lambda _: store_ms * 1000,
        }
        make = values.get(field.name)
        return pa.array([make(number) if make else None for number in range(count)], field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in SCHEMA], schema=SCHEMA)


def written(lake: Lake, batch_id: int, attempt: str = "first", rows: int = 10) -> list[LakeFile]:
    """What a task of this batch writes: the next `rows` messages."""
    files = TaskFiles(lake.folder, TaskName("query", batch_id, 0, attempt))
    files.add(messages(rows, batch_id * rows))
    return files.close()


def ranges(batch_id: int, rows: int = 10) -> list[QueueRange]:
    return [QueueRange(*QUEUE, batch_id * rows, (batch_id + 1) * rows)]


def rows_that_count(lake: Lake) -> list[int]:
    return [
        offset
        for file in lake.files()
        for offset in pq.ParquetFile(lake.path_of(file)).read(["queueOffset"])["queueOffset"].to_pylist()
    ]


# ------------------------------------------------------------------------------------------------ lakes


def test_a_batch_counts_once_however_often_it_is_told(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    with lake.writing() as writing:
        assert writing.commit("query", 0, ranges(0), written(lake, 0)) is not None
        assert writing.commit("query", 0, ranges(0), written(lake, 0, "second")) is None
    assert rows_that_count(lake) == list(range(10))
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    assert not list(tmp_path.rglob(".part*"))
    assert lake.positions()[QUEUE] == QueueRange(*QUEUE, 0, 10)


def test_what_does_not_begin_where_the_lake_ends_is_refused(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    with lake.writing() as writing:
        writing.commit("query", 0, ranges(0), written(lake, 0))
        for start in (5, 11):
            with pytest.raises(Corrupt, match=f"read from {start} on, and the lake has it up to 10"):
                writing.commit("other", 0, [QueueRange(*QUEUE, start, 20)], [])
        assert writing.commit("other", 0, [QueueRange(*QUEUE, 11, 20)], [], allow_gaps=True) is not None


class Killed(Exception):
    pass


class DyingFiles(RealFiles):
    """The machine's disk, until the process dies at its n-th change."""

    def __init__(self, changes: int) -> None:
        super().__init__()
        self._left = changes

    def _change(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Killed

    def rename(self, old: str, new: str) -> None:
        self._change()
        super().rename(old, new)

    def sync_folder(self, folder: str) -> None:
        self._change()
        super().sync_folder(folder)

    def remove(self, path: str) -> None:
        self._change()
        super().remove(path)

    def sync_all(self, paths: Any) -> None:
        self._change()
        super().sync_all(paths)


def test_a_lake_is_whole_wherever_its_writer_dies(tmp_path: Path) -> None:
    """At every change of the disk in turn; whoever comes next finishes it or does it again."""
    outcomes = set()
    for changes in range(40):
        folder = str(tmp_path / f"lake-{changes}")
        with Lake(folder).writing() as writing:
            writing.commit("query", 0, ranges(0), written(Lake(folder), 0))
        dying = Lake(folder, DyingFiles(changes))
        try:
            with dying.writing() as writing:
                writing.commit("query", 1, ranges(1), written(dying, 1))
            is_done = True
        except Killed:
            is_done = False
        lake = Lake(folder)
        assert rows_that_count(lake) in (list(range(10)), list(range(20))), "readable before anybody mends it"
        with lake.writing() as writing:
            again = writing.commit("query", 1, ranges(1), written(lake, 1, "again"))
        outcomes.add((is_done, again is None))
        assert rows_that_count(lake) == list(range(20))
        files = sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*part*"))
        assert files == sorted(file.path for file in lake.files()), "and nothing else is left"
        if is_done:
            break
    assert outcomes == {(False, False), (False, True), (True, True)}, "it died before and after it counted"


def test_a_lake_of_another_version_or_kind_is_left_alone(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    with lake.writing("manifest"), pytest.raises(StoreLocked), Lake(lake.folder).writing():
        pass
    with pytest.raises(ConfigError, match="has the format manifest, not delta"), lake.writing("delta"):
        pass
    with pytest.raises(ConfigError, match="no table format 'csv'"), Lake(str(tmp_path / "x")).writing("csv"):
        pass
    (tmp_path / "lake/_kourou/lake.json").write_text('{"version": 9, "format": "manifest"}')
    with pytest.raises(ConfigError, match="layout version 9"):
        lake.format()


@pytest.mark.parametrize(("left", "why"), [("", "it is empty"), ('{"half', "truncated")])
def test_a_note_that_was_damaged_is_named_with_the_way_out(tmp_path: Path, left: str, why: str) -> None:
    lake, audit = Lake(str(tmp_path / "lake")), AuditTable(str(tmp_path / "audit"))
    with lake.writing() as writing:
        writing.commit("query", 0, ranges(0), written(lake, 0))
    with audit.writing():
        audit.begin("group", "true", {})
    journal = tmp_path / "journal.json"
    for path, read, way_out in (
        (tmp_path / "lake/_kourou/commits/00000000000000000000.json", lake.positions, "another folder"),
        (tmp_path / "lake/_kourou/lake.json", lake.format, '"format":"manifest"'),
        (tmp_path / "audit/runs/0000000000.json", audit.unfinished, "has sent nothing"),
        (journal, lambda: _read_journal(str(journal)), "delete the topics that were restored"),
    ):
        path.write_text(left)
        with pytest.raises(Corrupt, match=f"{path}' cannot be read: .*{why}") as caught:
            read()
        assert way_out in str(caught.value)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data())
def test_positions_do_not_depend_on_the_order_ranges_are_told_in(
    lengths: list[int], data: st.DataObject
) -> None:
    bounds = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
    told = [QueueRange(*QUEUE, low, high) for low, high in itertools.pairwise(bounds)]
    shuffled = data.draw(st.permutations(told))
    assert advanced((), shuffled) == (QueueRange(*QUEUE, 0, bounds[-1]),)


def test_dead_letter_topics_have_a_place_in_a_path() -> None:
    assert partition_folder("%DLQ%g", "2026-01-31") == "topic=%25DLQ%25g/date=2026-01-31"


# ----------------------------------------------------------------------------------------- files of a task


def test_a_task_writes_one_file_a_topic_and_day_in_the_order_it_read(tmp_path: Path) -> None:
    files = TaskFiles(str(tmp_path), TaskName("q", 3, 7, "x"))
    for batch in (
        messages(5),
        messages(3, topic="payments"),
        messages(4, start=5, store_ms=NOON_MS + DAY_MS),
        messages(2, start=9),
    ):
        files.add(batch)
    found = {(file.topic, file.date): file for file in files.close()}
    assert {key: file.rows for key, file in found.items()} == {
        ("orders", "2023-11-14"): 7,
        ("orders", "2023-11-15"): 4,
        ("payments", "2023-11-14"): 3,
    }
    first = found["orders", "2023-11-14"]
    assert (first.queues[0].first, first.queues[0].last, first.store_min_ms) == (0, 10, NOON_MS)
    file = pq.ParquetFile(tmp_path / first.written_as)
    assert file.num_row_groups == 1  # small batches are put together
    table = file.read()
    assert table["queueOffset"].to_pylist() == [0, 1, 2, 3, 4, 9, 10]
    assert "topic" not in table.column_names
    assert first.path.endswith("/part-q-000003-0007-000.parquet")


def test_a_batch_of_several_topics_and_days_is_parted_without_losing_order() -> None:
    mixed = pa.Table.from_batches(
        [messages(2), messages(2, topic="b"), messages(2, start=2), messages(1, store_ms=NOON_MS - DAY_MS)]
    ).combine_chunks()
    parts = list(parted(mixed.to_batches()[0]))
    offsets = {(topic, day): part.column("queueOffset").to_pylist() for topic, day, part in parts}
    today = NOON_MS // DAY_MS
    assert offsets == {("orders", today): [0, 1, 2, 3], ("b", today): [0, 1], ("orders", today - 1): [0]}
    assert list(parted(messages(0))) == []


def test_a_task_that_gives_up_leaves_nothing(tmp_path: Path) -> None:
    files = TaskFiles(str(tmp_path), TaskName("q", 0, 0, "x"))
    files.add(messages(5))
    files.give_up()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


# ------------------------------------------------------------------------------------------------ audits


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=8))
def test_covered_counts_different_offsets(pairs: list[tuple[int, int]]) -> None:
    told = [QueueRange(*QUEUE, start, start + length) for start, length in pairs]
    assert covered(told) == len(
        {offset for start, length in pairs for offset in range(start, start + length)}
    )


NOTHING = Counted()


def judge(lake: Counted, at_broker: Counted = NOTHING, in_lake: Counted = NOTHING, **more: Any) -> Any:
    filtered = more.pop("is_filtered", False)
    return judged(
        QUEUE, [QueueRange(*QUEUE, 10, 20)], lake, Bounds(0, 25), at_broker, in_lake, is_filtered=filtered
    )


def test_a_queue_is_complete_when_rows_and_distinct_offsets_are_what_was_read() -> None:
    good = judge(Counted(10, 10, 10, 19))
    assert (good.is_ok, good.read, good.behind) == (True, 10, 5)
    assert judge(Counted(9, 9, 10, 19)).missing == 1
    assert judge(Counted(11, 10, 10, 19)).duplicates == 1
    assert judge(Counted(10, 10, 10, 19, disordered=2)).disordered == 2
    same, other = Counted(5, 5, digest=7), Counted(5, 5, digest=8)
    assert judge(Counted(10, 10), same, same).is_ok
    assert judge(Counted(10, 10), same, other).differs
    assert judge(Counted(3, 3), same, other, is_filtered=True).is_ok


def test_only_what_both_have_is_compared() -> None:
    read = {QUEUE: [QueueRange(*QUEUE, 5, 10), QueueRange(*QUEUE, 10, 30)]}
    assert common(read, {QUEUE: Bounds(8, 20)}) == {QUEUE: Bounds(8, 20)}
    assert common(read, {QUEUE: Bounds(30, 90)}) == {}
    assert common(read, {}) == {}


# ---------------------------------------------------------------------------------- reports and pictures


@pytest.fixture
def report() -> Report:
    png = picture.bars("a $b", {"<x>": 3.0}, "messages")
    return Report(
        title="audit",
        facts={"lake": "<script>", "messages": 12345, "fine": True},
        tables=[Rows("queues", ("topic", "rows"), [{"topic": "a&b", "rows": 1234567}])],
        pictures=[Picture("p", png)],
        remarks=["a remark"],
        is_ok=False,
    )


def test_a_page_is_complete_in_itself_and_escapes_what_came_from_outside(report: Report) -> None:
    page = as_html(report)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "a&amp;b" in page
    assert "1,234,567" in page
    assert "data:image/png;base64,iVBOR" in page
    assert "http" not in page
    assert report.as_data()["tables"] == {"queues": [{"topic": "a&b", "rows": 1234567}]}


def test_every_picture_is_a_png() -> None:
    pictures = [
        picture.heat_map("m", ["1", "2"], ["a", "b"], [[1, 0], [0, 100]], "messages"),
        picture.heat_map("empty", ["1"], ["a"], [[0]], "messages"),
        picture.lines("l", {f"g{n}": [(NOON_MS, 1.0), (NOON_MS + 1000, 2.0)] for n in range(12)}, "s"),
        picture.lines("none", {}, "s"),
    ]
    assert all(png.startswith(b"\x89PNG") for png in pictures)


def test_peaks_stay_when_points_are_thinned_out() -> None:
    points = [(number, 1.0) for number in range(10_000)]
    points[7777] = (7777, 99.0)
    kept = thinned(points, 100)
    assert len(kept) <= 100
    assert max(value for _, value in kept) == 99.0


def test_what_people_read() -> None:
    assert [shown(value) for value in (None, True, 1234, 0.123456, 99.99)] == [
        "",
        "yes",
        "1,234",
        "0.123",
        "100.0",
    ]
    assert [spoken_ms(each) for each in (1, 2048, 1 << 20)] == ["1 ms", "2 s", "17 min"]
    assert in_one_line(ValueError("[PARSE_SYNTAX_ERROR] near 'x'\n== SQL ==\n")) == "near 'x'"
