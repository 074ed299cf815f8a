"""Which files a data folder has, and which of them can be what their names say.

The sizes of a store's files are written down nowhere. Here they are seen from the files themselves: the
length that most of them have. What does not fit is a finding, and is kept from the parts of the store by the
view they look through (`folder_view`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from kourou.doors.files import Files
from kourou.errors import Corrupt, StoreForeign
from kourou.store.aside import FOLDER as DIVERGED
from kourou.store.checkpoint import Checkpoint
from kourou.store.config import ENTRY_BYTES, StoreConfig
from kourou.store.deleted import FILE as DELETED_TOPICS
from kourou.store.findings import (
    ERROR,
    NOTE,
    QUARANTINE,
    FillIn,
    Finding,
    MoveAside,
    RebuildIndex,
    RebuildQueue,
    Report,
)
from kourou.store.folder_view import FolderView
from kourou.store.foreign import refuse_foreign_formats
from kourou.store.index_file import Shape
from kourou.store.key_index import NAME_DIGITS as INDEX_DIGITS
from kourou.store.segment import NAME_DIGITS, segment_name

ENTRIES_PER_SLOT = 4
"""As RocketMQ's defaults have it; tells the shape of an index file by its length."""
MISSING_FILES_MAX = 1024
LOG_FILE_STEP = 1024
"""A log file of another length than a multiple of this was cut off, whatever the others have."""

_OF_THE_STORE = frozenset(
    (
        *("abort", "checkpoint", "commitlog", "config", "consumequeue", "index", "lock", "timers"),
        *(QUARANTINE, DIVERGED, DELETED_TOPICS, f"{DELETED_TOPICS}.bak"),
    )
)
_OF_OTHER_BROKERS = frozenset(
    (
        *("abort.bak", "batchconsumequeue", "brokerIdentity", "compaction", "consumequeue_ext"),
        *("epochFileCheckpoint", "rocksdbstore", "timerlog", "timerwheel"),
    )
)


class Layout(NamedTuple):
    config: StoreConfig
    """With the sizes that the folder's files have."""
    view: FolderView
    index_shape: Shape | None
    """None: nothing tells how the index files are divided."""


def refuse_what_is_no_store(files: Files, config: StoreConfig) -> None:
    """Raises StoreForeign when `config.root` is not a broker's data folder."""
    root = config.root
    if not files.is_folder(root):
        raise StoreForeign(f"{root} is not a folder; give the one that storePathRootDir names")
    if files.is_folder(config.log_folder):
        return
    if config.commit_log_folder:
        raise StoreForeign(f"there is no log at {config.log_folder}, where storePathCommitLog says it is")
    for below in ("store", "kourou-data/store"):
        if files.is_folder(f"{root}/{below}/commitlog"):
            raise StoreForeign(f"{root} is not a data folder; did you mean {root}/{below}?")
    if files.is_folder(f"{root}/consumequeue"):
        raise StoreForeign(
            f"{root} has consume queues and no commitlog: if that lies elsewhere (storePathCommitLog), "
            "give the broker's configuration (-c)"
        )
    raise StoreForeign(
        f"{root} is not a data folder (there is no commitlog in it); give the one that storePathRootDir names"
    )


def lay_out(
    config: StoreConfig, files: Files, checkpoint: Checkpoint, report: Report, *, is_told: bool = False
) -> Layout:
    """Look at names and lengths; findings go into `report`. Changes nothing.

    `is_told`: the sizes in `config` are those of the folder's broker, and not merely the usual ones.
    """
    survey = _Survey(config, files, report, is_told)
    survey.root()
    log_bytes = survey.log(checkpoint.end)
    queue_bytes = survey.queues()
    shape = survey.index()
    config = replace(
        config,
        commit_log_segment_bytes=log_bytes,
        consume_queue_segment_entries=queue_bytes // ENTRY_BYTES,
        index_slots=shape.slots if shape is not None else config.index_slots,
        index_entries=shape.entries if shape is not None else config.index_entries,
    )
    return Layout(config, survey.view, shape)


class _Survey:
    def __init__(self, config: StoreConfig, files: Files, report: Report, is_told: bool) -> None:
        self._is_told = is_told
        self._config = config
        self._files = files
        self._report = report
        self.view = FolderView(files)

    def _say(self, finding: Finding) -> None:
        self._report.findings.append(finding)

    def _short(self, path: str) -> str:
        return path.removeprefix(self._config.root + "/")

    def root(self) -> None:
        for name in self._files.list(self._config.root):
            if f"{self._config.root}/{name}" == self._config.log_folder:
                continue
            if name in _OF_OTHER_BROKERS:
                what, meaning = "of an Apache broker, and not used here", "it is left as it is"
            elif name not in _OF_THE_STORE:
                what, meaning = "not part of a store", "it is left as it is"
            else:
                continue
            self._say(Finding(severity=NOTE, file=name, what=what, meaning=meaning))

    # The log.

    def log(self, vouched_end: int) -> int:
        """The length of its files. Those that are missing before `vouched_end` are shown as zeros."""
        folder = self._config.log_folder
        lengths = dict(self._files_of(folder))
        given = self._config.commit_log_segment_bytes
        size = self._usual("commitlog", lengths, given, LOG_FILE_STEP, "mappedFileSizeCommitLog")
        bases = []
        for name, length in lengths.items():
            if self._is_usable(f"{folder}/{name}", int(name), length, size, name == max(lengths)):
                bases.append(int(name))
        for base in self._missing(folder, bases, size, vouched_end):
            path = f"{folder}/{segment_name(base)}"
            self.view.show_with_size(path, size)
            self._say(
                Finding(
                    file=self._short(path),
                    what="missing",
                    meaning=f"the messages in its {size} bytes are lost; a broker does not start without it",
                    action=FillIn(path, size),
                )
            )
        self._report.log_files = len(bases)
        return size

    def _is_usable(self, path: str, base: int, length: int, size: int, is_last: bool) -> bool:
        if base % size:
            self._foreign(path, f"begins at {base}, which is no multiple of {size}")
            return False
        if length == 0 and is_last:
            self.view.hide(path)
            self._say(
                Finding(
                    severity=NOTE,
                    file=self._short(path),
                    what="empty",
                    meaning="made just before a crash, and never used; the next start removes it",
                )
            )
            return False
        if length != size:
            self.view.show_with_size(path, size)
            is_short = length < size
            self._say(
                Finding(
                    file=self._short(path),
                    offset=min(length, size),
                    what=f"{length} bytes long, where the others have {size}",
                    meaning="a broker does not start with it"
                    + ("; what is missing is taken for zeros" if is_short else ""),
                    action=FillIn(path, size) if is_short else None,
                    advice="" if is_short else f"see what lies after byte {size}, then cut it there",
                )
            )
        return True

    def _missing(self, folder: str, bases: list[int], size: int, vouched_end: int) -> list[int]:
        missing: list[int] = []
        ends = [*sorted(bases)]
        if ends and vouched_end > ends[-1] + size:
            ends.append(-(-vouched_end // size) * size)
        for base, following in pairwise(ends):
            if following - base > MISSING_FILES_MAX * size:
                raise Corrupt(
                    f"{folder}: {(following - base) // size - 1} files are missing between "
                    f"{segment_name(base)} and {segment_name(following)}: these are two logs; move one away"
                )
            missing += range(base + size, following, size)
        return missing

    # Consume queues.

    def queues(self) -> int:
        """The length of their files. A queue that misses one is not shown: it has to be built again."""
        refuse_foreign_formats(self._files, self._config)
        found = {
            (topic, number): dict(self._files_of(f"{self._config.queues_folder}/{topic}/{number}"))
            for topic, number in self._queue_folders()
        }
        lengths = {
            f"{topic}/{number}/{name}": length
            for (topic, number), each in found.items()
            for name, length in each.items()
        }
        given = self._config.consume_queue_segment_bytes
        size = self._usual("consumequeue", lengths, given, ENTRY_BYTES, "mappedFileSizeConsumeQueue")
        for (topic, number), each in found.items():
            self._look_at_queue(topic, number, each, size)
        return size

    def _queue_folders(self) -> Iterator[tuple[str, str]]:
        folder = self._config.queues_folder
        for topic in self._files.list(folder):
            path = f"{folder}/{topic}"
            if not self._files.is_folder(path):
                self._stray(path)
                continue
            for number in self._files.list(path):
                if number.isascii() and number.isdecimal() and self._files.is_folder(f"{path}/{number}"):
                    yield topic, number
                else:
                    self._stray(f"{path}/{number}")

    def _stray(self, path: str) -> None:
        self._say(
            Finding(
                severity=NOTE,
                file=self._short(path),
                what="not part of a store",
                meaning="it is left as it is",
            )
        )

    def _look_at_queue(self, topic: str, number: str, lengths: dict[str, int], size: int) -> None:
        folder = f"{self._config.queues_folder}/{topic}/{number}"
        if lengths and lengths[last := max(lengths)] == 0:
            del lengths[last]
            self.view.hide(f"{folder}/{last}")
        bases = [int(name) for name in lengths]
        wrong = [name for name, length in lengths.items() if length != size or int(name) % size]
        gaps = [base + size for base, following in pairwise(bases) if following - base != size]
        if not wrong and not gaps:
            return
        self.view.hide(folder)
        name = wrong[0] if wrong else segment_name(gaps[0])
        what = f"{lengths[name]} bytes long, where the others have {size}" if wrong else "missing"
        self._say(
            Finding(
                file=f"{self._short(folder)}/{name}",
                what=what,
                meaning="a broker does not start with it; the log has all that was in it",
                action=RebuildQueue(topic, int(number)),
            )
        )

    # The key index.

    def index(self) -> Shape | None:
        folder = f"{self._config.root}/index"
        given = Shape(self._config.index_slots, self._config.index_entries)
        lengths = dict(self._files_of(folder, INDEX_DIGITS))
        for name, length in lengths.items():
            if length == 0:
                self.view.hide(f"{folder}/{name}")
        used = [length for length in lengths.values() if length]
        self._report.index_files = len(used)
        shape: Shape | None = given
        if used and given.file_bytes not in used and not self._is_told:
            shape = _guessed(Counter(used).most_common(1)[0][0])
        if shape is None:
            self._say(
                Finding(
                    file=f"index/{min(lengths)}",
                    what=f"{used[0]} bytes long, and not {given.file_bytes}",
                    meaning="nothing tells how it is divided, so it was not looked at",
                    advice="give the broker's configuration (-c), with its maxHashSlotNum and maxIndexNum",
                )
            )
            return None
        for name, length in lengths.items():
            if length not in (0, shape.file_bytes):
                self.view.hide(f"{folder}/{name}")
                self._say(
                    Finding(
                        file=f"index/{name}",
                        what=f"{length} bytes long, and not {shape.file_bytes}",
                        meaning="a broker does not start with it; the log has all that was in it",
                        action=RebuildIndex(),
                    )
                )
        return shape

    # Files.

    def _files_of(self, folder: str, digits: int = NAME_DIGITS) -> Iterator[tuple[str, int]]:
        """Names and lengths of a folder's files, ascending; what has no name of the store is foreign."""
        for name in self._files.list(folder):
            path = f"{folder}/{name}"
            if self._files.is_folder(path):
                continue
            if len(name) != digits or not name.isdecimal() or not name.isascii():
                self._foreign(path, f"not a file of the store ({digits} digits)")
                continue
            with closing(self._files.open(path, read_only=True)) as file:
                yield name, file.size()

    def _foreign(self, path: str, what: str) -> None:
        self.view.hide(path)
        self._say(
            Finding(
                file=self._short(path),
                what=what,
                meaning="a broker does not start as long as it is there",
                action=MoveAside(path),
            )
        )

    def _usual(self, folder: str, lengths: dict[str, int], given: int, step: int, option: str) -> int:
        """The length that most files have, of those that fit their names; `given` when there are none."""
        fitting = Counter(
            length
            for name, length in lengths.items()
            if length and not length % step and not int(name.rpartition("/")[2]) % length
        )
        if not fitting or given in fitting:
            return given
        usual = max(fitting, key=lambda length: (fitting[length], length))
        self._say(
            Finding(
                severity=ERROR if self._is_told else NOTE,
                file=f"{folder}/{next(name for name, length in lengths.items() if length == usual)}",
                what=f"files of {usual} bytes" + (f", and not {given}" if self._is_told else ""),
                meaning="a broker with this configuration does not start"
                if self._is_told
                else f"a broker for this folder needs {option}={usual}",
                advice=f"set {option}={usual}" if self._is_told else "",
            )
        )
        return usual


def _guessed(length: int) -> Shape | None:
    """The shape of an index file with the usual number of entries to a slot."""
    head = Shape(0, 0).file_bytes
    slots, rest = divmod(length - head, Shape(1, ENTRIES_PER_SLOT).file_bytes - head)
    return Shape(slots, ENTRIES_PER_SLOT * slots) if slots > 0 and not rest else None
