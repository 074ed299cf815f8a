"""A lake: messages as Parquet files in a folder, and a manifest that says which of them count.

    LAKE/topic=orders/date=2026-11-16/part-<query>-<batch>-<task>-<number>.parquet
    LAKE/topic=orders/date=2026-11-16/.part-…-<attempt>.tmp           being written, or left by a dead task
    LAKE/_kourou/lake.json                                            which table format lies over it
    LAKE/_kourou/commits/00000000000000000017.json                    one commit: files, ranges, positions
    LAKE/_kourou/checkpoints/                                         Spark's, while an archive runs

A task writes hidden files that no reader looks at. The driver then writes one commit, and that is the moment
the batch counts: it names the files, the range of every queue that was read for it, and the positions of all
queues after it, so that the lake itself knows where to go on. What follows (the files get their final names,
a Delta or Iceberg table learns of them) may be done again any number of times, and is, by the next to open
the lake. A batch is known by (query, batch): a second attempt finds the first one's commit and throws its own
files away. One archive writes at a time; `_kourou/lock` sees to it. Files are named by paths relative to the
lake.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol
from urllib.parse import quote

import msgspec

from kourou.doors.clock import Clock, RealClock
from kourou.doors.files import Files, Lock, RealFiles, make_lasting_folder
from kourou.errors import ConfigError, Corrupt, StoreLocked
from kourou.spark.offsets import Queue
from kourou.spark.pipelines.notes import read_note

LAYOUT_VERSION = 1
META = "_kourou"
FORMATS = ("manifest", "delta", "iceberg")
QUERIES_KEPT = 16
HIDDEN = "."
TEMPORARY = ".tmp"
COMMIT_LOST = "put a copy of it back, or archive into another folder: this commit says which files count"
SETTINGS_LOST = 'put a copy of it back; it is {"version":1,"format":"manifest"}, or "delta", or "iceberg"'


class QueueRange(msgspec.Struct, frozen=True, rename="camel"):
    """The offsets of a queue that a batch has read, `end` excluded, whether or not a message was at each."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int

    @property
    def queue(self) -> Queue:
        return Queue(self.topic, self.broker_name, self.queue_id)


class FileQueue(msgspec.Struct, frozen=True, rename="camel"):
    """What of one queue a file holds: the first and the last offset, both included."""

    broker_name: str
    queue_id: int
    first: int
    last: int
    rows: int


class LakeFile(msgspec.Struct, frozen=True, rename="camel"):
    """One Parquet file: messages of one topic, stored on one day (UTC)."""

    path: str
    written_as: str
    """The hidden name the task gave it."""
    topic: str
    date: str
    rows: int
    size: int
    store_min_ms: int
    store_max_ms: int
    queues: tuple[FileQueue, ...]


class Commit(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One batch that counts, and where every queue of the lake stands after it."""

    version: int = LAYOUT_VERSION
    number: int
    query_id: str
    batch_id: int
    written_ms: int
    ranges: tuple[QueueRange, ...]
    files: tuple[LakeFile, ...]
    positions: tuple[QueueRange, ...]
    """Per queue, from the first offset ever read to the next one to read."""
    batches: dict[str, int]
    """The last batch of each of the last queries that have written here."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


class LakeSettings(msgspec.Struct, frozen=True, rename="camel"):
    version: int
    format: str


class Table(Protocol):
    """A table format over the lake's files."""

    def append(self, commit: Commit) -> None:
        """Let the table know the files of a commit, once: a commit it already knows changes nothing."""


class Lake:
    """One folder. Reading needs no lock; `writing` does."""

    def __init__(
        self,
        folder: str,
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.folder = os.path.abspath(folder)
        self._files = RealFiles() if files is None else files
        self._clock = RealClock() if clock is None else clock

    # ------------------------------------------------------------------------------------------- reading

    def exists(self) -> bool:
        return self._files.exists(self._meta("lake.json"))

    def format(self) -> str:
        """Raises ConfigError when the folder is no lake, or one of a newer version."""
        path = self._meta("lake.json")
        if not self._files.exists(path):
            raise ConfigError(f"'{self.folder}' is no lake: make one with kourou pipeline archive --lake")
        settings = read_note(self._files, path, LakeSettings, SETTINGS_LOST)
        if settings.version > LAYOUT_VERSION:
            raise ConfigError(
                f"lake '{self.folder}' has layout version {settings.version}, and this knows {LAYOUT_VERSION}"
            )
        return settings.format

    def commits(self) -> Iterator[Commit]:
        """All of them, oldest first."""
        for name in self._commit_names():
            yield self._read_commit(name)

    def last_commit(self) -> Commit | None:
        names = self._commit_names()
        return self._read_commit(names[-1]) if names else None

    def files(self, topics: Iterable[str] | None = None) -> list[LakeFile]:
        """Every file that counts."""
        wanted = None if topics is None else set(topics)
        return [
            file
            for commit in self.commits()
            for file in commit.files
            if wanted is None or file.topic in wanted
        ]

    def positions(self) -> dict[Queue, QueueRange]:
        """For each queue: from the first offset ever read to the next one to read."""
        last = self.last_commit()
        return {} if last is None else {position.queue: position for position in last.positions}

    def path_of(self, file: LakeFile) -> str:
        """Where a file lies now: a crash may have kept it from getting its final name."""
        final = os.path.join(self.folder, file.path)
        return final if self._files.exists(final) else os.path.join(self.folder, file.written_as)

    # ------------------------------------------------------------------------------------------- writing

    @contextlib.contextmanager
    def writing(self, table_format: str = "manifest", *, table: Table | None = None) -> Iterator[Writing]:
        """The lake to write to, made when there is none. What a crash left is finished or swept away first.

        Raises StoreLocked while another process writes here, ConfigError when the lake has another format.
        """
        make_lasting_folder(self._files, self._meta("commits"))
        lock = self._lock()
        try:
            self._settle_format(table_format)
            writing = Writing(self, self._files, self._clock, table or _table(table_format, self.folder))
            writing.finish()
            yield writing
        finally:
            lock.release()

    def _lock(self) -> Lock:
        lock = self._files.lock(self._meta("lock"))
        if lock is None:
            raise StoreLocked(
                f"another archive is writing to the lake '{self.folder}'; wait for it, or stop it"
            )
        return lock

    def _settle_format(self, table_format: str) -> None:
        if table_format not in FORMATS:
            raise ConfigError(f"no table format '{table_format}'; there are {', '.join(FORMATS)}")
        if not self.exists():
            settings = msgspec.json.encode(LakeSettings(LAYOUT_VERSION, table_format))
            self._files.write_atomically(self._meta("lake.json"), settings, keep_previous=False)
        elif (known := self.format()) != table_format:
            raise ConfigError(f"the lake '{self.folder}' has the format {known}, not {table_format}")

    def _commit_names(self) -> list[str]:
        return [name for name in self._files.list(self._meta("commits")) if name.endswith(".json")]

    def _read_commit(self, name: str) -> Commit:
        return read_note(self._files, self._meta(f"commits/{name}"), Commit, COMMIT_LOST)

    def _meta(self, name: str) -> str:
        return os.path.join(self.folder, META, name)


class Writing:
    """A lake that this process alone writes to."""

    def __init__(self, lake: Lake, files: Files, clock: Clock, table: Table | None) -> None:
        self.lake = lake
        self._files = files
        self._clock = clock
        self._table = table
        self._last = lake.last_commit()

    def commit(
        self,
        query_id: str,
        batch_id: int,
        ranges: Sequence[QueueRange],
        files: Sequence[LakeFile],
        *,
        allow_gaps: bool = False,
    ) -> Commit | None:
        """Let a batch count. None when it already does; then these files are thrown away.

        Raises Corrupt, and writes nothing, when a range does not begin where the lake ends; with `allow_gaps`
        it may begin later, as it does after messages were lost and that was said to be all right.
        """
        before = self._last
        if before is not None and before.batches.get(query_id, -1) >= batch_id:
            self._discard(files)
            self.finish()
            return None
        commit = Commit(
            number=0 if before is None else before.number + 1,
            query_id=query_id,
            batch_id=batch_id,
            written_ms=self._clock.now_ms(),
            ranges=tuple(ranges),
            files=tuple(files),
            positions=advanced(() if before is None else before.positions, ranges, allow_gaps=allow_gaps),
            batches=_recent({} if before is None else before.batches, query_id, batch_id),
        )
        path = os.path.join(self.lake.folder, META, "commits", f"{commit.number:020d}.json")
        self._files.write_atomically(path, msgspec.json.encode(commit), keep_previous=False)
        self._last = commit
        self._roll_forward(commit)
        return commit

    def finish(self) -> None:
        """Do what the last commit still asks for, and sweep away what no commit names."""
        if self._last is not None:
            self._roll_forward(self._last)
        self._sweep()

    def _roll_forward(self, commit: Commit) -> None:
        folders = set()
        for file in commit.files:
            hidden = os.path.join(self.lake.folder, file.written_as)
            if self._files.exists(hidden):
                self._files.rename(hidden, os.path.join(self.lake.folder, file.path))
                folders.add(os.path.dirname(hidden))
        self._files.sync_all(folders)
        if self._table is not None:
            self._table.append(commit)

    def _discard(self, files: Sequence[LakeFile]) -> None:
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(os.path.join(self.lake.folder, file.written_as))

    def _sweep(self) -> None:
        for topic in self._folders("", "topic="):
            for date in self._folders(topic, "date="):
                for name in self._files.list(os.path.join(self.lake.folder, date)):
                    if name.startswith(HIDDEN) and name.endswith(TEMPORARY):
                        with contextlib.suppress(FileNotFoundError):
                            self._files.remove(os.path.join(self.lake.folder, date, name))

    def _folders(self, parent: str, beginning: str) -> list[str]:
        names = self._files.list(os.path.join(self.lake.folder, parent))
        return [os.path.join(parent, name) for name in names if name.startswith(beginning)]


def advanced(
    positions: Sequence[QueueRange], ranges: Sequence[QueueRange], *, allow_gaps: bool = False
) -> tuple[QueueRange, ...]:
    """Positions after `ranges` were read as well; raises Corrupt for overlaps, and for gaps unless allowed.

    >>> advanced((QueueRange("t", "b", 0, 5, 9),), [QueueRange("t", "b", 0, 9, 12)])
    (QueueRange(topic='t', broker_name='b', queue_id=0, start=5, end=12),)
    """
    after = {position.queue: position for position in positions}
    for one in sorted(ranges, key=lambda each: (each.queue, each.start)):
        known = after.get(one.queue)
        if known is not None and (one.start < known.end or (one.start > known.end and not allow_gaps)):
            raise Corrupt(
                f"{one.queue} was read from {one.start} on, and the lake has it up to {known.end}; "
                "nothing was written"
            )
        start = one.start if known is None else known.start
        after[one.queue] = QueueRange(*one.queue, start, one.end)
    return tuple(after[queue] for queue in sorted(after))


def _recent(batches: dict[str, int], query_id: str, batch_id: int) -> dict[str, int]:
    """With the last batch of this query, and of some before it: a query ends with its run."""
    others = [(query, batch) for query, batch in batches.items() if query != query_id]
    return dict([*others[1 - QUERIES_KEPT :], (query_id, batch_id)])


def partition_folder(topic: str, date: str) -> str:
    """`topic=orders/date=2026-11-16`, with what a path cannot hold escaped as Hive and Spark do."""
    return f"topic={quote(topic, safe=SAFE_IN_A_PATH)}/date={date}"


SAFE_IN_A_PATH = "|-_. "  # of all a topic's name may hold, "%" alone is special in a partition's path


def _table(table_format: str, folder: str) -> Table | None:
    if table_format == "delta":
        from kourou.spark.pipelines.delta_table import DeltaLog

        return DeltaLog(folder)
    if table_format == "iceberg":
        from kourou.spark.pipelines.iceberg_table import IcebergTable

        return IcebergTable(folder)
    return None
