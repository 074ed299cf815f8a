"""A log that is another broker's, byte for byte: taken in as it comes, made visible record by record.

    the master's log   [ record | record | record | BLANK ][ record | rec…
    what came so far   ───────────────────────────────────────────────▶
                                       ^ staged            ^ whole     ^ end
                                                             [ held … ]

Bytes come cut anywhere. They are written where they belong at once, and believed when a record is there as a
whole and its CRCs agree; then it goes into its consume queue, by its own queue offset (`staging.py`). A slave
that is far behind first takes in what it lacks, which is what counts for safety, and sees to the queues a
little later, from its own log. Bytes that make no record are kept, since the master has them too, and passed
over when a valid record follows; until one does, nothing behind them counts as had. A master that sends
nothing but such bytes is not believed.
"""

from __future__ import annotations

import logging
from struct import Struct

from kourou.errors import Corrupt
from kourou.protocol import record as records
from kourou.protocol.checksum import crc32
from kourou.protocol.record import Verdict
from kourou.store.commit_log import RECORD_OVERHEAD_BYTES_MAX, CommitLog
from kourou.store.config import StoreConfig
from kourou.store.recovery import TOPIC_BYTES_MAX, Damage, checked_record, sketched
from kourou.store.staging import Stager

_SIZE_AND_MAGIC = Struct(">ii")
_OUR_HEAD = Struct(">ii20xqi44xi")  # V1, both hosts IPv4: the body follows
_HEAD_BYTES = _OUR_HEAD.size
_IPV6_BITS = 0x30
_CRC_BACKWARDS = "\x02%010d\x01#23CRC__"  # its digits are written from the last to the first
_CRC_BITS = 0x7FFF_FFFF
_MAGICS = (records.MAGIC_V1, records.MAGIC_V2)
_UNREADABLE_BYTES_MAX = 64 << 20

log = logging.getLogger(__name__)


class Follower:
    """Takes in another broker's log. One at a time has a store (`Store.follow`)."""

    def __init__(self, config: StoreConfig, commit_log: CommitLog, stager: Stager) -> None:
        self._config = config
        self._log = commit_log
        self._stager = stager
        self._whole = commit_log.end
        self._held: list[bytes] = []  # what came after `_whole`
        self._held_bytes = 0
        self._needed = 0  # nothing can be said before so much is there
        self._bad_at: int | None = None  # from here on no record has been found
        self._record_bytes_max = config.message_bytes_max + RECORD_OVERHEAD_BYTES_MAX
        self.newest: int | None = None
        """Where the last whole record begins; None when none has come yet."""

    @property
    def end(self) -> int:
        """One past the last byte that came."""
        return self._log.end

    @property
    def whole(self) -> int:
        """Every record that ends before this is in its queue, or will be soon."""
        return self._whole

    @property
    def had(self) -> int:
        """What may be acknowledged, once it is as durable as was asked for."""
        return self._log.end if self._bad_at is None else self._bad_at

    @property
    def unstaged(self) -> int:
        """How many bytes of whole records are not on their way into the queues yet."""
        return self._whole - self._stager.at

    @property
    def damage(self) -> list[Damage]:
        """Bytes that make no record, though records follow."""
        return self._stager.damage

    def begin_at(self, place: int) -> None:
        """Begin an empty log with the byte at `place`."""
        assert self._log.segments.is_empty
        self._log.resume(place)
        self._whole = self._stager.at = place

    def take(self, data: bytes, *, is_far: bool = False) -> None:
        """The next bytes, from `end` on; `is_far`: a lot will follow, so leave the queues for later. Raises
        OSError or DiskFault when they cannot be written, and Corrupt when there is no record to be found in
        what came."""
        self._log.write_raw(data)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes >= self._needed:
            self._examine(is_far)

    def stage(self, most: int) -> None:
        """Put some of what was left for later into its queues, about `most` bytes. Raises OSError or
        DiskFault when it does not read as it was written."""
        self._stager.stage_from_log(self._whole, most)

    def seal(self) -> None:
        """Have all that is staged go into its queues as soon as it is durable."""
        self._stager.seal()

    def _examine(self, is_far: bool) -> None:
        window = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        begin = self._whole
        try:
            with memoryview(window) as view:
                self._believe(window, view, begin)
        finally:
            rest = window[self._whole - begin :]
            self._held, self._held_bytes = [rest], len(rest)
        if not is_far and self._stager.at == begin:
            self._stager.stage(window, begin, self._whole)

    def _believe(self, window: bytes, view: memoryview, begin: int) -> None:
        while True:
            self._believe_usual(window, view, begin)
            found = self._next(window, view, self._whole - begin)
            if found is None:
                break
            self.newest, size = found
            self._whole = self.newest + size

    def _believe_usual(self, window: bytes, view: memoryview, begin: int) -> None:
        """Find the usual records that come next to be valid: our own, and whole.

        The plain way is `_next`, which sees to the first one that is not. The CRCs of all of them are turned
        into text, and compared with what they say, at once: a third of the time; bench: replication.
        """
        unpack = _OUR_HEAD.unpack_from
        within, end = self._whole - begin, len(window)
        starts: list[int] = []
        said: list[bytes] = []
        sums: list[int] = []
        while within + _HEAD_BYTES <= end:
            size, magic, place, sys_flag, body_length = unpack(window, within)
            stop = within + size
            topic_at = within + _HEAD_BYTES + body_length + 1
            crc_at = stop - records.CRC_PROPERTY_BYTES
            if (
                magic != records.MAGIC_V1
                or place != begin + within
                or sys_flag & _IPV6_BITS
                or body_length < 0
                or stop > end
                or topic_at >= crc_at
            ):
                break
            topic_bytes = window[topic_at - 1]
            properties_at = topic_at + topic_bytes + 2
            if (
                topic_bytes > TOPIC_BYTES_MAX
                or properties_at > crc_at
                or window[properties_at - 2] << 8 | window[properties_at - 1] != stop - properties_at
            ):
                break
            said.append(window[crc_at:stop])
            sums.append(crc32(view[within:crc_at]) & _CRC_BITS)
            starts.append(within)
            within = stop
        computed = _CRC_BACKWARDS * len(sums) % tuple(reversed(sums))
        if b"".join(said)[::-1] != computed.encode():
            valid = _alike(said, sums)
            within = starts[valid]
            del starts[valid:]
        if starts:
            self.newest, self._whole = begin + starts[-1], begin + within

    def _next(self, window: bytes, view: memoryview, within: int) -> tuple[int, int] | None:
        """Place and size of the record at `within`, or of the first after it where that is none; None: more
        must come first."""
        base = self._whole - within
        segment_bytes = self._config.commit_log_segment_bytes
        while True:
            at = base + within
            found = sketched(window, view, within, at)
            if found is not None:
                self._end_damage(at)
                return at, found[1]
            left = len(window) - within
            segment_left = segment_bytes - at % segment_bytes
            self._needed = _SIZE_AND_MAGIC.size
            if left < _SIZE_AND_MAGIC.size:
                return None
            size, magic = _SIZE_AND_MAGIC.unpack_from(window, within)
            is_record = magic in _MAGICS and records.RECORD_BYTES_MIN <= size <= min(
                segment_left, self._record_bytes_max
            )
            if magic == records.MAGIC_BLANK and size == segment_left:
                self._needed = size
                if left < size:
                    return None
                self._end_damage(at)
                within += size
                self._whole = at + size
                continue
            if is_record and left < size and self._bad_at is None:
                self._needed = size
                return None
            if is_record and left >= size:
                checked = checked_record(window, within, within + size, True, at)
                if checked.verdict is Verdict.OK:
                    self._end_damage(at)
                    return at, size
            following = self._search(window, view, within, base)
            if following is None:
                return None
            within = following

    # Damage.

    def _search(self, window: bytes, view: memoryview, within: int, base: int) -> int | None:
        """Where a valid record begins after `within`; None when none is in sight."""
        if self._bad_at is None:
            self._bad_at = base + within
            log.error("the master's log holds no record at %d; looking for the next one", self._bad_at)
        at = within
        while (at := window.find(b"\xda\xa3\x20", at + 1)) >= 0:
            start = at - 4
            if start > within and self._is_valid(window, view, start, base + start):
                return start
        if len(window) - within > _UNREADABLE_BYTES_MAX:
            raise Corrupt(
                f"the master sent {len(window) - within} bytes from {self._bad_at} on, no valid record: "
                "check its store with `kourou store check`, and what this slave is connected to"
            )
        self._needed = 2 * (len(window) - within)  # not the same search again for every byte that comes
        return None

    def _is_valid(self, window: bytes, view: memoryview, within: int, place: int) -> bool:
        if sketched(window, view, within, place) is not None:
            return True
        segment_left = self._config.commit_log_segment_bytes - place % self._config.commit_log_segment_bytes
        end = min(len(window), within + segment_left)
        return checked_record(window, within, end, True, place).verdict is Verdict.OK

    def _end_damage(self, at: int) -> None:
        if self._bad_at is not None:
            damage = Damage(self._bad_at, at, "no record, though records follow")
            self._stager.note_damage(damage)
            log.error("bytes %d to %d of the master's log are damaged, here too", damage.start, damage.end)
            self._bad_at = None


def _alike(said: list[bytes], sums: list[int]) -> int:
    """How many of these CRCs, from the first on, are what the record says."""
    for number, (text, crc) in enumerate(zip(said, sums, strict=True)):
        if text[::-1] != (_CRC_BACKWARDS % crc).encode():
            return number
    return len(said)
