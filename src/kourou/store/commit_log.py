"""All messages of a broker, one record after the other, in the order they came.

    segment            [ record | record | record | BLANK ]  [ record | record | zeros ... ]
                                                                               ^ end
                                                                               [ staged ... ]
                                                                                            ^ reserved

A record gets its place when it is staged and its bytes when the tick ends: one `pwrite` for all that was
staged into one segment. A record never lies across two segments: where it does not fit, a BLANK fills the
rest. Disk blocks are reserved before they are written to, so a full disk says so before a byte has moved.
"""

from __future__ import annotations

from struct import Struct

from kourou.doors.files import Files, make_lasting_folder
from kourou.errors import DiskFault
from kourou.protocol import record as records
from kourou.store.config import StoreConfig
from kourou.store.segment import OpenFiles, Segment
from kourou.store.segmented_file import SegmentedFile

RECORD_OVERHEAD_BYTES_MAX = 64 * 1024
_SIZE_AND_MAGIC = Struct(">ii")
_STORED_MS = Struct(">q")
_STORED_MS_AT = (56, 68)  # by whether the born host is IPv6
_MAGICS = (records.MAGIC_V1, records.MAGIC_V2)
_HEAD_BYTES = 76
_COPY_BYTES = 1 << 20


class CommitLog:
    def __init__(self, config: StoreConfig, files: Files) -> None:
        self._config = config
        self._files = files
        self._open_files = OpenFiles(files)
        self.segments = SegmentedFile(
            files, self._open_files, config.log_folder, config.commit_log_segment_bytes
        )
        self._segment_bytes = config.commit_log_segment_bytes
        self.read = self.segments.read
        """read(size, at): bytes as they lie in the log; fewer where it ends."""
        self.view = self.segments.view
        """view(size, at): the same without a copy, or None."""
        self._allocated = 0  # blocks are reserved up to here
        self._is_lasting = False  # whether the file being written outlasts a power cut, for all we know
        self._runs: list[tuple[int, list[bytes]]] = []  # staged: where, and the records to be joined there
        self._parts: list[bytes] = []  # of the last run
        self.end = 0
        """One past the last byte written."""
        self.reserved = 0
        """One past the last byte staged; `end`, when nothing is."""
        self.room_end = 0
        """How far a record may reach in this segment: a BLANK must find room behind it."""

    def load(self) -> None:
        self.segments.load("mappedFileSizeCommitLog")

    @property
    def start(self) -> int:
        """The first byte that is still there."""
        return self.segments.start

    # Writing.

    def place_for(self, size: int) -> int:
        """Where a record of `size` bytes would go: `reserved`, or the start of the next segment."""
        if self.reserved + size <= self.room_end:
            return self.reserved
        return self.room_end + records.BLANK_BYTES

    def fits(self, size: int) -> bool:
        return size + records.BLANK_BYTES <= self._segment_bytes

    def stage(self, data: bytes, at: int) -> None:
        """Take in a record, or several that belong together, made for the place that was named for it."""
        if at != self.reserved:
            self._end_segment(at)
        parts = self._parts
        if not parts:
            self._runs.append((at, parts))
        parts.append(data)
        self.reserved = at + len(data)

    def stage_all(self, data: list[bytes], end: int) -> None:
        """Take in records that follow each other from `reserved` to `end`, in this segment."""
        if not self._parts:
            self._runs.append((self.reserved, self._parts))
        self._parts += data
        self.reserved = end

    def _end_segment(self, following: int) -> None:
        """A BLANK stands for what is left; the next record begins the file at `following`."""
        if not self._parts:
            self._runs.append((self.reserved, self._parts))
        self._parts.append(records.blank(following - self.reserved))
        self._parts = []
        self.room_end = following + self._segment_bytes - records.BLANK_BYTES

    def write(self) -> None:
        """Write what was staged. Raises OSError, and then nothing of it counts as written; or DiskFault, when
        it is unknown what is on the disk now."""
        runs = [(at, b"".join(parts)) for at, parts in self._runs]
        done = 0
        try:
            for at, data in runs:
                self._ready(at, len(data)).write(data, at % self._segment_bytes)
                done += 1
        except OSError:
            # What did get through must not be found by a recovery, when others have taken its place.
            self._wipe(runs[: done + 1])
            raise
        finally:
            self._runs.clear()
            self._parts = []
            if done < len(runs):
                self.resume(self.end)
        self.end = self.reserved

    def forget_staged(self) -> None:
        """What was staged is not to be written: its places are free again."""
        self._runs.clear()
        self._parts = []
        self.resume(self.end)

    def write_raw(self, data: bytes) -> None:
        """Write the next bytes of another broker's log behind the last; raises as `write` does."""
        assert self.reserved == self.end, "somebody else is writing this log"
        while data:
            room = self._segment_bytes - self.reserved % self._segment_bytes
            part, data = data[:room], data[room:]
            self._runs.append((self.reserved, [part]))
            self.reserved += len(part)
        self.write()
        self.room_end = self._room_end_after(self.end)

    def _wipe(self, runs: list[tuple[int, bytes]]) -> None:
        """Zeros over what may have been written; raises DiskFault when the disk does not even take those."""
        try:
            for at, data in runs:
                segment = self.segments.segment_at(at)
                if segment is not None:
                    within = at % self._segment_bytes
                    if segment.read(len(data), within).strip(b"\0"):
                        segment.write(bytes(len(data)), within)
        except OSError as error:
            raise DiskFault(f"{self.segments.folder}: {error.strerror} while taking back a write") from error

    def _ready(self, at: int, size: int) -> Segment:
        """The segment for `size` bytes from `at`, with the blocks to take them."""
        base = at - at % self._segment_bytes
        segment = self.segments.segment_at(at)
        if segment is None or not self._is_lasting:
            segment = self._lasting_segment(base)
        if at + size > self._allocated:
            step = self._config.allocation_step_bytes
            within, needed = at - base, at - base + size
            until = min((needed + step - 1) // step * step, self._segment_bytes)
            segment.allocate(until - within, within)
            self._allocated = base + until
        return segment

    def _lasting_segment(self, base: int) -> Segment:
        """A file whose name and length survive a power cut before the next record goes into it. It may be
        there already: made by somebody who was killed, or could not sync it."""
        self._is_lasting = False
        make_lasting_folder(self._files, self.segments.folder)
        segment = self.segments.segment_at(base) or self.segments.grow(base)
        segment.file().sync()
        self._files.sync_folder(self.segments.folder)
        self._is_lasting = True
        return segment

    def resume(self, end: int) -> None:
        """Go on writing at `end`: after a restart, or where a write has failed."""
        self.end = self.reserved = self._allocated = end
        self.room_end = self._room_end_after(end)

    def _room_end_after(self, end: int) -> int:
        return end - end % self._segment_bytes + self._segment_bytes - records.BLANK_BYTES

    def write_anew(self, start: int) -> None:
        """Write all from `start` on over itself, so that the next sync brings it to the disk."""
        for segment in self.segments.segments_between(start, self.end):
            at, stop = max(0, start - segment.base), min(segment.size, self.end - segment.base)
            for within in range(at, stop, _COPY_BYTES):
                segment.write(segment.read(min(_COPY_BYTES, stop - within), within), within)

    # Reading.

    def record_at(self, at: int, end: int) -> bytes | None:
        """The record that begins at `at` and is complete before `end`; None when none does."""
        head = self.read(_SIZE_AND_MAGIC.size, at) if self.start <= at < end else b""
        if len(head) < _SIZE_AND_MAGIC.size:
            return None
        size, magic = _SIZE_AND_MAGIC.unpack(head)
        left = self._segment_bytes - at % self._segment_bytes
        if magic not in _MAGICS or not records.RECORD_BYTES_MIN <= size <= min(left, end - at):
            return None
        data = self.read(size, at)
        checked = records.check(data, 0, size, verify=False, physical_offset=at)
        return data if checked.verdict is records.Verdict.OK else None

    def stored_ms(self, at: int) -> int | None:
        """When the record at `at` was stored; None when there is none."""
        head = self.read(_HEAD_BYTES, at) if at >= self.start else b""
        if len(head) < _HEAD_BYTES or _SIZE_AND_MAGIC.unpack_from(head)[1] not in _MAGICS:
            return None
        born_is_v6 = head[39] >> 4 & 1
        stored_ms: int = _STORED_MS.unpack_from(head, _STORED_MS_AT[born_is_v6])[0]
        return stored_ms

    def close(self) -> None:
        self.segments.close()
