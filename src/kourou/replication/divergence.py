"""Where two logs part.

A record holds its own place, its queue offset, the time it was stored and a CRC, so two logs that have the
same record at one place are the same up to there. A slave asks its master about a few records at a time:

    the newest one ── same ──▶ all is the same
         │ other
    the first of each file ── the last file that begins alike ──▶ its records, halved again and again

What comes of it: where to go on, or that the two logs have nothing in common.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, Protocol, TypeAlias

from kourou.protocol.checksum import crc32

Sample: TypeAlias = tuple[int, int, int]
"""Place, size and CRC of some bytes of a log."""

A_ROUND: Final = 64


class OwnLog(Protocol):
    """What is asked of the slave's own store."""

    @property
    def start(self) -> int: ...
    @property
    def wrote(self) -> int: ...
    @property
    def file_places(self) -> list[int]: ...
    def raw(self, place: int, size: int) -> bytes: ...
    def places_of(self, start: int, end: int) -> list[tuple[int, int]]: ...


Search: TypeAlias = Generator[list[Sample], list[bool], int | None]


def common_end(log: OwnLog, newest: int, whole: int, their_start: int) -> Search:
    """Yields samples of `log` and is sent which of them the other has; returns where the two part, or None
    when they have nothing in common that could be compared.

    `newest` is where the last record begins, `whole` where it ends; what follows is the beginning of another.
    """
    last = [sample_of(log, newest, whole - newest)] if whole > newest >= log.start else []
    rest = [sample_of(log, whole, log.wrote - whole)] if log.wrote > whole else []
    equal = yield [*last, *rest]
    if not last or equal[0]:
        return log.wrote if all(equal) else whole
    overlap = max(log.start, their_start)
    files = [place for place in log.file_places if overlap <= place < whole]
    firsts = [log.places_of(place, place + 1) for place in files]
    alike = yield from _last_alike(log, [found[0] if found else (-1, 0) for found in firsts])
    if alike < 0:
        return None
    end = files[alike + 1] if alike + 1 < len(files) else whole
    places = log.places_of(files[alike], end)
    at = yield from _last_alike(log, places)
    return places[at][0] + places[at][1] if at >= 0 else None


def _last_alike(log: OwnLog, places: Sequence[tuple[int, int]]) -> Generator[list[Sample], list[bool], int]:
    """Which of these records is the last that both have, when all before it are the same; -1: none."""
    low, high = -1, len(places)  # `low` is alike, `high` is not
    while high - low > 1:
        step = max(1, (high - low) // A_ROUND)
        asked = list(range(low + 1, high, step))[: A_ROUND + 1]
        equal = yield [sample_of(log, *places[number]) for number in asked]
        for number, is_equal in zip(asked, equal, strict=True):
            if is_equal:
                low = number
            else:
                high = number
                break
    return low


def sample_of(log: OwnLog, place: int, size: int) -> Sample:
    return place, size, crc32(log.raw(place, size)) if place >= 0 else 0
