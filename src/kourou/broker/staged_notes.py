"""What a staged transaction leaves in the log: which record says what. All lie in topic
rmq_sys_KOUROU_STAGED.

    queue 0   chunk      some messages of a stage, packed (`protocol/staged.py`); whose, as properties
    queue 1   commit     tag `c`: the transaction is decided; body: of which stages, on every broker
              done       tag `d`: all its messages lie in their queues
              snapshot   tag `s`: one page of all that is known here; a start need not read further back

A message that came out of a chunk is a usual record of its own topic; its prepared offset says which one of
the chunk it is: the chunk's place in the log and the message's number in the chunk, added. A chunk has more
bytes than messages, so no two messages have the same. That is how a start finds out where a crash came
between.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from kourou.protocol.extensions import Decision, StageMessages
from kourou.protocol.names import STAGED_TOPIC
from kourou.protocol.properties import encode
from kourou.protocol.record import Record
from kourou.store.store import Draft

CHUNKS_QUEUE: Final = 0
NOTES_QUEUE: Final = 1
PAGE_BYTES: Final = 256 * 1024

COMMIT: Final = b"c"
DONE: Final = b"d"
SNAPSHOT: Final = b"s"


class ChunkPlace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a chunk lies."""

    physical_offset: int
    size: int
    messages: int


class ChunkOf(NamedTuple):
    """Whose a chunk is."""

    producer: str
    number: int
    stage: str
    sequence: int
    topic: str
    messages: int


class Decided(msgspec.Struct, omit_defaults=True):
    """The last transaction of a producer, and every one before it, is decided."""

    producer: str
    number: int
    decision: Decision
    at: int
    """Where in the log it was decided; its messages lie behind that."""
    touched_ms: int
    messages: int = 0
    is_done: bool = False
    chunks: list[ChunkPlace] = msgspec.field(default_factory=list)
    """What is yet to be made messages of; empty once that is done."""


class OpenStage(msgspec.Struct):
    """A stage that nobody has decided about."""

    producer: str
    number: int
    stage: str
    touched_ms: int
    chunks: list[ChunkPlace] = msgspec.field(default_factory=list)


class CommitNote(msgspec.Struct, frozen=True):
    """The body of a commit; `chunks` are those on this broker, in order."""

    producer: str
    number: int
    decision: Decision
    messages: int
    chunks: list[ChunkPlace]


class DoneNote(msgspec.Struct, frozen=True):
    producer: str
    number: int


class SnapshotPage(msgspec.Struct, frozen=True):
    """The body of one page of a snapshot; the pages follow one another in their queue."""

    page: int
    pages: int
    chunks_end: int
    """The queue offset of the first chunk the snapshot does not know of."""
    decided: list[Decided]
    open: list[OpenStage]


def chunk_draft(
    header: StageMessages, body: bytes, messages: int, now_ms: int, born_host: bytes, host: bytes
) -> Draft:
    properties = encode(
        {
            "PRODUCER": header.producer,
            "NUMBER": str(header.number),
            "STAGE": header.stage,
            "SEQ": str(header.sequence),
            "TARGET": header.topic,
            "MESSAGES": str(messages),
        }
    )
    return Draft(STAGED_TOPIC, CHUNKS_QUEUE, body, properties, 0, 0, now_ms, born_host, host)


def chunk_of(record: Record) -> ChunkOf | None:
    """Whose chunk `record` is; None when it is something else."""
    table = record.property_table()
    try:
        return ChunkOf(
            table["PRODUCER"],
            int(table["NUMBER"]),
            table["STAGE"],
            int(table["SEQ"]),
            table["TARGET"],
            int(table["MESSAGES"]),
        )
    except (KeyError, ValueError):
        return None


def note_draft(tag: bytes, note: msgspec.Struct, now_ms: int, host: bytes) -> Draft:
    body = msgspec.json.encode(note)
    return Draft(STAGED_TOPIC, NOTES_QUEUE, body, b"TAGS\x01%b\x02" % tag, 0, 0, now_ms, host, host)


Note = CommitNote | DoneNote | SnapshotPage

_KINDS: Final[dict[bytes, type[Note]]] = {COMMIT: CommitNote, DONE: DoneNote, SNAPSHOT: SnapshotPage}


def note_of(record: Record) -> Note | None:
    """What `record` says; None when that cannot be read."""
    kind = _KINDS.get(record.find(b"TAGS") or b"")
    if kind is None:
        return None
    try:
        return msgspec.json.decode(record.body, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def snapshot_pages(
    chunks_end: int, decided: list[Decided], open_stages: list[OpenStage]
) -> list[SnapshotPage]:
    """Everything that is known, in pages of bounded size; at least one."""
    pages: list[tuple[list[Decided], list[OpenStage]]] = [([], [])]
    size = 0
    known: list[Decided | OpenStage] = [*decided, *open_stages]
    for each in known:
        size += len(msgspec.json.encode(each))
        if size > PAGE_BYTES and (pages[-1][0] or pages[-1][1]):
            pages.append(([], []))
            size = 0
        if isinstance(each, Decided):
            pages[-1][0].append(each)
        else:
            pages[-1][1].append(each)
    return [SnapshotPage(page, len(pages), chunks_end, *lists) for page, lists in enumerate(pages)]
