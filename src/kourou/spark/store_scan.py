"""The log files of a stopped broker as a table: ours or Apache's, whole or damaged. No broker takes part.

    spark.read.format("rocketmq").option("table", "commitlog").option("storePath", "/data/store")

Each log file is cut into pieces of equal size, one for each task; small files share one:

    file     |  record | record | rec╎ord | record |~~damage~~| record | blank |
    pieces   |<------- task 1 ------->|<------- task 2 ------->|<-- task 3 --->|

A record belongs to the task in whose piece it begins. A task finds its first one by looking for bytes that
say "record" and name their own place in the log, which no other bytes do. Where a record cannot be read, it
looks for the next in the same way, and the bytes in between become a row that says so.

    verdict   ok        it is what was written
              bad-crc   it can be read, and is not what was written: a checksum says so, or it does not
              inflate gap       bytes that are no record, up to the next one: columns of the message are null
              torn      a record at the end of the log whose end is missing
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from kourou.doors.files import File, Files, RealFiles
from kourou.errors import ConfigError, MQError, ProtocolError, StoreLocked
from kourou.native import native
from kourou.protocol.compression import COMPRESSED, INFLATED_BYTES_MAX
from kourou.protocol.record import CRC_PROPERTY_BYTES, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN
from kourou.spark.columns import TYPES, Choice, Numbers, Records, decode, plain_array
from kourou.spark.options import ALL_NAMES, TARGET_PARTITION_BYTES, Given
from kourou.spark.plain_errors import hide_traceback, in_one_line
from kourou.spark.python_worker import settle
from kourou.spark.queue_entries import QueueEntries

OWN_TYPES: Mapping[str, pa.DataType] = {
    "recordBytes": pa.int32(),
    "verdict": pa.string(),
    "reason": pa.string(),
    "indexed": pa.bool_(),
}
"""What a scan says besides the message. `indexed`: its consume queue has an entry for it; null when it needs
none."""

SCHEMA = pa.schema([*TYPES.items(), *OWN_TYPES.items()])

WINDOW_BYTES = 4 * 1024 * 1024
"""Read at once, and decoded into one batch."""
PIECE_BYTES = TARGET_PARTITION_BYTES
"""Of log files for one task, unless targetPartitionBytes says otherwise: a third of a second of work."""
RECORD_BYTES_MAX = 64 * 1024 * 1024
_ZEROS = bytes(WINDOW_BYTES)
_A_FEW_ZEROS = 4096  # a record may end in some
_NAME_CHARACTERS = 20
_MAGICS = (MAGIC_V1.to_bytes(4, "big", signed=True), MAGIC_V2.to_bytes(4, "big", signed=True))
_unpack_size = Struct(">I").unpack_from
_HIDDEN = (0x4, 0xC)  # prepared, rolled back: such records are in no queue


class LogPiece(NamedTuple):
    """Records that begin from `start` to `end` of a file with `size` bytes in it; it begins at `base`."""

    path: str
    base: int
    start: int
    end: int
    size: int


class LogPieces(InputPartition):
    """What one task looks at."""

    def __init__(self, pieces: tuple[LogPiece, ...]) -> None:
        super().__init__(pieces)
        self.pieces = pieces


class StoreScanReader(DataSourceReader):
    """Reads a folder; which must stay as it is meanwhile."""

    def __init__(self, options: Mapping[str, str], columns: pa.Schema) -> None:
        given = Given(options, ALL_NAMES)
        root = given.text("storePath")
        if root is None:
            raise ConfigError(
                "which folder? Give the option storePath: the data folder of a stopped broker "
                "(storePathRootDir)"
            )
        self._root = root.rstrip("/") or "/"
        self._columns = columns
        self._piece_bytes = given.size("targetPartitionBytes") or PIECE_BYTES
        self._verify = given.flag("verifyCrc", True)
        self._inflated_bytes_max = given.size("maxInflatedBytes") or INFLATED_BYTES_MAX

    @in_one_line
    def partitions(self) -> list[InputPartition]:
        files = RealFiles()
        folder = log_folder(files, self._root)
        _refuse_running(files, self._root)
        pieces = log_pieces(files, folder, self._piece_bytes)
        return [LogPieces(task) for task in put_together(pieces, self._piece_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogPieces):
            return  # an empty folder has a partition of Spark's own
        settle()
        choice = Choice(self._columns, inflated_bytes_max=self._inflated_bytes_max)
        for piece in partition.pieces:
            try:
                yield from scanned(RealFiles(), self._root, piece, choice, verify=self._verify)
            except MQError:
                hide_traceback()
                raise
            except OSError as error:
                hide_traceback()
                raise ConfigError(f"{piece.path} cannot be read: {error.strerror}") from None


def log_folder(files: Files, root: str) -> str:
    """Where the log files of a data folder lie; raises ConfigError when there are none."""
    folder = f"{root}/commitlog"
    if not files.is_folder(root):
        raise ConfigError(
            f"there is no folder {root} here; the driver and every executor must see it under this path "
            "(storePath)"
        )
    if not files.is_folder(folder) and any(_is_log_file(name) for name in files.list(root)):
        return root
    if not files.is_folder(folder):
        raise ConfigError(
            f"{root} has no folder commitlog: name the data folder of a broker, storePathRootDir of its "
            "settings"
        )
    return folder


def _refuse_running(files: Files, root: str) -> None:
    path = f"{root}/lock"
    if files.exists(path):
        lock = files.lock(path)
        if lock is None:
            raise StoreLocked(f"{root} is in use by a running broker: stop it, or scan a copy of the folder")
        lock.release()


def log_pieces(files: Files, folder: str, piece_bytes: int) -> Iterator[LogPiece]:
    for name in files.list(folder):
        if _is_log_file(name):
            path = f"{folder}/{name}"
            file = files.open(path, read_only=True)
            size = file.size()
            written = min(_written(file, size) + _A_FEW_ZEROS, size)
            file.close()
            for start in range(0, written, piece_bytes):
                yield LogPiece(path, int(name), start, min(start + piece_bytes, written), written)


def put_together(pieces: Iterable[LogPiece], bytes_max: int) -> Iterator[tuple[LogPiece, ...]]:
    """Neighbours, as long as they are no more than that: a task costs more than a small file."""
    waiting: list[LogPiece] = []
    total = 0
    for piece in pieces:
        size = piece.end - piece.start
        if waiting and total + size > bytes_max:
            yield tuple(waiting)
            waiting, total = [], 0
        waiting.append(piece)
        total += size
    if waiting:
        yield tuple(waiting)


def _is_log_file(name: str) -> bool:
    return len(name) == _NAME_CHARACTERS and name.isascii() and name.isdigit()


def _written(file: File, size: int) -> int:
    """Where the zeros at the end of a log file begin, to the next window.

    A file has its full length from the start. What was never written is mostly a hole, which the file system
    knows of; the rest has to be looked at.
    """
    low, end = 0, size
    while end - low > WINDOW_BYTES:  # where does the last hole begin?
        middle = (low + end) // 2
        if file.data_from(middle) < size:
            low = middle
        else:
            end = middle
    while end > 0 and _is_zeros(file.pread(min(WINDOW_BYTES, end), max(0, end - WINDOW_BYTES))):
        end = max(0, end - WINDOW_BYTES)
    return end


def _is_zeros(data: bytes) -> bool:
    return data == (_ZEROS if len(data) == WINDOW_BYTES else bytes(len(data)))


# ------------------------------------------------------------------------------------------------- one piece


class Finding(NamedTuple):
    """Bytes of a log file that are not a good record."""

    start: int
    size: int
    verdict: str
    reason: str


def scanned(
    files: Files, root: str, piece: LogPiece, choice: Choice, *, verify: bool = True
) -> Iterator[pa.RecordBatch]:
    """The rows of one piece, in batches."""
    file = files.open(piece.path, read_only=True)
    scan = _Scan(files, root, file, piece, choice, verify)
    try:
        yield from scan.rows()
    finally:
        scan.close()


class _Scan:
    def __init__(
        self, files: Files, root: str, file: File, piece: LogPiece, choice: Choice, verify: bool
    ) -> None:
        self._file = file
        self._piece = piece
        self._schema = choice.schema
        self._choice = choice._replace(
            schema=pa.schema(
                [field for field in choice.schema if field.name in TYPES and field.name != "brokerName"]
            )
        )
        self._verify = verify and not {"verdict", "reason"}.isdisjoint(choice.schema.names)
        self._entries = QueueEntries(files, root) if "indexed" in choice.schema.names else None

    def close(self) -> None:
        self._file.close()
        if self._entries is not None:
            self._entries.close()

    def rows(self) -> Iterator[pa.RecordBatch]:
        piece = self._piece
        at: int | None = piece.start if not piece.start else self._next_record(piece.start)
        while at is not None and at < piece.end:
            records, after, finding = self._run(at)
            if len(records):
                yield from self._decoded(records, at)
            if finding is not None:
                yield self._unreadable([finding])
            at = after

    def _run(self, at: int) -> tuple[Records, int | None, Finding | None]:
        """Records one after the other from `at` on; where to go on, if there is anything; and what is not a
        record behind them, if there is."""
        data = self._file.pread(WINDOW_BYTES, at)
        if len(data) == WINDOW_BYTES and self._names_itself(data, 0, at):
            size = int.from_bytes(data[:4], "big")
            if size > WINDOW_BYTES:
                data = self._file.pread(size, at)
        starts, end = _walk(data, self._piece.end - at)
        records = Records(data, starts)
        if end:
            good = records.fitting & (records.numbers(starts + 28, ">i8") == self._piece.base + at + starts)
            if not good.all():
                first_bad = int(np.argmin(good))
                end = int(starts[first_bad])
                records = Records(data, starts[:first_bad])
        if end and self._is_record(at + end):
            return records, at + end, None
        return records, *self._not_a_record(at + end)

    def _not_a_record(self, at: int) -> tuple[int | None, Finding | None]:
        """What lies at `at`, and where the next record is: the end of the log or of the file, or damage."""
        head = self._file.pread(8, at)
        if len(head) < 8:
            return None, None
        size, magic = (int.from_bytes(head[i : i + 4], "big", signed=True) for i in (0, 4))
        if magic == MAGIC_BLANK:
            return None, None
        following = self._next_record(at + 1)
        extent = _extent(self._file, at, self._piece.size) if following is None else following - at
        if not extent:
            return None, None  # nothing was written from here on
        if magic in (MAGIC_V1, MAGIC_V2):
            if following is None and size >= extent:
                reason = f"a record of {size} bytes, of which {extent} are there"
                return None, Finding(at, extent, "torn", reason)
            reason = f"the parts of a record of {size} bytes do not make it up, or it belongs elsewhere"
        else:
            reason = f"magic {magic & 0xFFFFFFFF:08x}, size {size}: not a record"
        return following, Finding(at, extent, "gap", reason)

    # ------------------------------------------------------------------------------------ finding records

    def _is_record(self, at: int) -> bool:
        """Whether a record begins there, as far as its head says."""
        head = self._file.pread(88, at)
        return len(head) == 88 and self._names_itself(head, 0, at)

    def _names_itself(self, data: bytes, index: int, at: int) -> bool:
        size = int.from_bytes(data[index : index + 4], "big", signed=True)
        place = int.from_bytes(data[index + 28 : index + 36], "big", signed=True)
        return (
            data[index + 4 : index + 8] in _MAGICS
            and place == self._piece.base + at
            and RECORD_BYTES_MIN <= size <= min(RECORD_BYTES_MAX, self._piece.size - at)
        )

    def _next_record(self, at: int) -> int | None:
        """The first record that begins at `at` or behind it."""
        while at < self._piece.size:
            data = self._file.pread(WINDOW_BYTES, at)
            found: list[int] = []
            for magic in _MAGICS:
                index = data.find(magic)
                while index >= 0:
                    start = index - 4
                    if start >= 0 and self._names_itself(data, start, at + start):
                        found.append(at + start)
                        break
                    index = data.find(magic, index + 1)
            if found:
                return min(found)
            if len(data) < WINDOW_BYTES:
                return None
            at += WINDOW_BYTES - 36  # a head may lie over the end
        return None

    # ----------------------------------------------------------------------------------------------- rows

    def _decoded(self, records: Records, at: int) -> Iterator[pa.RecordBatch]:
        """Good records and bad ones apart: a bad one must not keep the others from being decoded."""
        bad = _bad(records) if self._verify else {}
        if bad:
            is_good = np.ones(len(records), dtype=bool)
            is_good[list(bad)] = False
            for row, reason in bad.items():
                yield self._bad_row(Records(records.data, records.starts[row : row + 1]), at, reason)
            records = Records(records.data, records.starts[is_good])
        if len(records):
            yield from self._good_rows(records, at)

    def _good_rows(self, records: Records, at: int) -> Iterator[pa.RecordBatch]:
        count = len(records)
        try:
            yield self._batch(records, at, pa.repeat(pa.scalar("ok"), count), pa.nulls(count, pa.string()))
        except ProtocolError as error:  # a body that does not inflate
            if count == 1:
                yield self._bad_row(records, at, str(error))
                return
            for part in (records.starts[: count // 2], records.starts[count // 2 :]):
                yield from self._good_rows(Records(records.data, part), at)

    def _bad_row(self, one: Records, at: int, reason: str) -> pa.RecordBatch:
        one.sys_flags[0] &= ~COMPRESSED  # what may not inflate is shown as it lies there
        return self._batch(one, at, pa.array(["bad-crc"]), pa.array([reason]))

    def _batch(self, records: Records, at: int, verdicts: pa.Array, reasons: pa.Array) -> pa.RecordBatch:
        decoded = decode(records, self._choice)
        own = {"verdict": verdicts, "reason": reasons}
        columns = []
        for field in self._schema:
            if field.name in own:
                columns.append(own[field.name])
            elif field.name == "brokerName":
                columns.append(pa.nulls(len(records), pa.string()))
            elif field.name == "recordBytes":
                columns.append(plain_array(records.sizes.astype(np.int32), pa.int32()))
            elif field.name == "indexed":
                columns.append(self._indexed(records, at))
            else:
                columns.append(decoded.column(field.name))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _indexed(self, records: Records, at: int) -> pa.BooleanArray:
        assert self._entries is not None
        there = self._entries.have(
            records.topics,
            records.numbers(records.starts + 12, ">i4"),
            records.numbers(records.starts + 20, ">i8"),
            self._piece.base + at + records.starts,
        )
        needs_none = np.isin(records.sys_flags & 0xC, _HIDDEN)
        return pa.array(there, mask=needs_none)

    def _unreadable(self, findings: list[Finding]) -> pa.RecordBatch:
        own = {
            "commitLogOffset": [self._piece.base + each.start for each in findings],
            "recordBytes": [min(each.size, 2**31 - 1) for each in findings],
            "verdict": [each.verdict for each in findings],
            "reason": [each.reason for each in findings],
        }
        columns = [
            pa.array(own.get(field.name, [None] * len(findings)), field.type) for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _walk(data: bytes, end: int) -> tuple[Numbers, int]:
    """Where records begin by their sizes, as long as these make sense, and where the last one ends. A record
    that begins at `end` or behind it is not looked at."""
    if native is not None:
        found, last = native.record_starts(data, end)
        return np.frombuffer(found, dtype=np.int64), last
    return _walk_plainly(data, end)


def _walk_plainly(data: bytes, end: int) -> tuple[Numbers, int]:
    starts: list[int] = []
    at, stop = 0, min(end, len(data) - RECORD_BYTES_MIN + 1)
    append, unpack = starts.append, _unpack_size
    length = len(data)
    while at < stop:
        (size,) = unpack(data, at)
        if size < RECORD_BYTES_MIN or size > length - at:
            break
        append(at)
        at += size
    return np.array(starts, dtype=np.int64), at


def _extent(file: File, at: int, end: int) -> int:
    """How far from `at` there is anything but zeros."""
    last = 0
    for start in range(at, end, WINDOW_BYTES):
        data = file.pread(min(WINDOW_BYTES, end - start), start)
        if not _is_zeros(data):
            last = start + len(data.rstrip(b"\0")) - at
    return last


def _bad(records: Records) -> dict[int, str]:
    """The records that are not what their CRC says, with what it says.

    The CRC of the whole record, where there is one, else that of the body: either goes over all bytes of it
    once.
    """
    starts, ends = records.starts, records.starts + records.sizes
    tails = ends - CRC_PROPERTY_BYTES
    has_crc = (records.property_lengths >= CRC_PROPERTY_BYTES) & (
        records.numbers(np.maximum(tails, 0), ">u8") == int.from_bytes(b"__CRC32#", "big")
    )
    froms: Numbers = np.where(has_crc, starts, records.bodies_at)
    tos: Numbers = np.where(has_crc, tails, records.bodies_at + records.body_lengths)
    found = records.sums(froms, tos)
    stored = records.numbers(starts + 8, ">i4")
    if has_crc.any():
        stored = np.where(has_crc, _digits(records, tails), stored)
    return {
        row: f"{'record' if has_crc[row] else 'body'} CRC is {found[row]}, and {stored[row]} was stored"
        for row in np.flatnonzero(found != stored).tolist()
    }


def _digits(records: Records, tails: Numbers) -> Numbers:
    """The ten digits behind `__CRC32#␁`, of which the first counts ones."""
    data = np.frombuffer(records.data, dtype=np.uint8)
    places = np.clip(tails[:, None] + np.arange(9, 19), 0, len(data) - 1)
    return (data[places].astype(np.int64) - ord("0")) @ (10 ** np.arange(10, dtype=np.int64))
