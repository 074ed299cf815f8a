"""What a transaction leaves in the log, in Apache's format: which record becomes which.

    half       RMQ_SYS_TRANS_HALF_TOPIC/0       the message, REAL_TOPIC, REAL_QID; transaction bits cleared
    done mark  RMQ_SYS_TRANS_OP_HALF_TOPIC/0    tag `d`, body: the half message's queue offset in digits
    committed  its real topic and queue         the message again, bits 0x8, pointing back at the half one
    copy       as half                          told to a producer (or not yet due); replaces an earlier half
    discarded  TRANS_CHECK_MAX_TIME_TOPIC/0     nobody knew the outcome, asked as often as is allowed

A record that ends or replaces a half message points back at it, and its done mark follows right behind it in
the log; a mark after a rollback stands alone. Readers of 4.9 take one number in its body, those of 5.x a list
parted by commas; we write the one and read both.
"""

from __future__ import annotations

from typing import Final

from kourou.errors import Refused
from kourou.protocol import message_id, record
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command, request
from kourou.protocol.headers import CheckTransaction
from kourou.protocol.names import DISCARDED_HALF_TOPIC, HALF_DONE_TOPIC, HALF_TOPIC
from kourou.protocol.properties import PROPERTIES_BYTES_MAX, find, with_added, without
from kourou.protocol.record import Record
from kourou.store.store import Appended, Draft

COMMIT: Final = 0x8
ROLLBACK: Final = 0xC
TRANSACTION_BITS: Final = 0xC

PAIRED: Final = b"TRAN_PAIRED"
OURS: Final = (b"TRAN_PREPARED_QUEUE_OFFSET", b"TRANSACTION_CHECK_TIMES", PAIRED)
"""What only the broker may say of a half message."""
_MOVED_TO: Final = (HALF_TOPIC.encode(), DISCARDED_HALF_TOPIC.encode())

PROPERTIES_RESERVED: Final = 256
"""What the copies of a half message add to its properties: they must be storable for as long as it lives."""


def prepared(draft: Draft, unique_id: str, producer_group: str) -> Draft:
    """What is stored when `draft` is sent as a half message; nobody who reads its topic sees it."""
    properties = draft.properties
    for name in OURS:  # a message that was copied may bring those of its former life
        properties = without(properties, name)
    if not find(properties, b"PGROUP"):
        properties = with_added(properties, b"PGROUP", producer_group.encode())
    for name, value in (
        (b"__transactionId__", unique_id),
        (b"REAL_TOPIC", draft.topic),
        (b"REAL_QID", str(draft.queue_id)),
    ):
        properties = with_added(properties, name, value.encode())
    if len(properties) > PROPERTIES_BYTES_MAX - PROPERTIES_RESERVED:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the properties have {len(properties)} bytes with what a transaction adds: at most "
            f"{PROPERTIES_BYTES_MAX - PROPERTIES_RESERVED} can be stored",
        )
    return Draft(
        HALF_TOPIC,
        0,
        draft.body,
        properties,
        draft.flag,
        draft.sys_flag & ~TRANSACTION_BITS,
        draft.born_ms,
        draft.born_host,
        draft.store_host,
        draft.reconsume_times,
    )


def committed(half: Record) -> Draft:
    """The message itself, for everybody to read. Its properties stay as they are, as in the original."""
    return _again(
        half,
        real_topic(half),
        real_queue(half),
        _without_own_notes(half),
        sys_flag=half.sys_flag & ~TRANSACTION_BITS | COMMIT,
        prepared_offset=half.physical_offset,
    )


def copied(half: Record, checks: int | None) -> Draft:
    """The half message once more, at the end of its queue; with `checks`, how often producers were asked."""
    properties = with_added(half.properties, b"TRAN_PREPARED_QUEUE_OFFSET", b"%d" % origin(half))
    if checks is not None:
        properties = with_added(properties, b"TRANSACTION_CHECK_TIMES", b"%d" % checks)
    return _again(half, HALF_TOPIC, 0, properties, prepared_offset=half.physical_offset)


def discarded(half: Record) -> Draft:
    return _again(half, DISCARDED_HALF_TOPIC, 0, half.properties, prepared_offset=half.physical_offset)


def done_mark(queue_offset: int, now_ms: int, host: bytes, *, is_paired: bool = False) -> Draft:
    """Says that the half message at `queue_offset` is over; paired, that the record before it is what became
    of it."""
    properties = b"TAGS\x01d\x02" + (PAIRED + b"\x01true\x02" if is_paired else b"")
    return Draft(HALF_DONE_TOPIC, 0, b"%d" % queue_offset, properties, 0, 0, now_ms, host, host)


def is_paired_mark(record: Record) -> bool:
    return record.topic == HALF_DONE_TOPIC.encode() and record.find(PAIRED) == b"true"


def is_committed(record: Record) -> bool:
    """Whether it is the message of a transaction, for everybody to read."""
    return bool(record.sys_flag & TRANSACTION_BITS == COMMIT)


def may_end_a_half(record: Record) -> bool:
    """Whether it may be what became of the half message at its `prepared_offset`."""
    return is_committed(record) or record.topic in _MOVED_TO


def done_offsets(mark: Record) -> list[int]:
    """The half messages a done mark ends; none when it is something else."""
    if mark.find(b"TAGS") != b"d":
        return []
    return [int(each) for part in mark.body.split(b",") if (each := part.strip()).isdigit()]


def checking(half: Record, copy: Appended, broker_name: str) -> Command:
    """The question to a producer: how did this transaction end?

    The message in its body lies where it was meant to go, so that a listener knows its topic.
    """
    unique_id = (half.find(b"UNIQ_KEY") or b"").decode() or None
    properties = without(_without_own_notes(half), b"__CRC32#")
    properties = with_added(properties, b"TRANSACTION_CHECK_TIMES", b"%d" % (checks_of(half) + 1))
    header = CheckTransaction(
        half_queue_offset=copy.queue_offset,
        physical_offset=copy.physical_offset,
        unique_id=unique_id,
        transaction_id=unique_id,
        offset_id=message_id.offset_id(half.store_host, copy.physical_offset),
        topic=real_topic(half),
        broker_name=broker_name,
    )
    body = record.encode(
        real_topic(half).encode(),
        real_queue(half),
        half.flag,
        copy.queue_offset,
        copy.physical_offset,
        half.sys_flag,
        half.born_ms,
        half.born_host,
        copy.store_ms,
        half.store_host,
        half.reconsume_times,
        0,
        half.body,
        with_added(properties, b"WAIT", b"false"),
    )
    return request(RequestCode.CHECK_TRANSACTION_STATE, header, body)


def _without_own_notes(half: Record) -> bytes:
    """Its properties as a copy of the original's would have them: that one notes an origin only in copies it
    made because their sender wanted to be left alone."""
    if own_immunity_ms(half) is not None:
        return half.properties
    return without(half.properties, b"TRAN_PREPARED_QUEUE_OFFSET")


def origin(half: Record) -> int:
    """The queue offset this message had when it was sent; copies remember it."""
    given = _number(half, b"TRAN_PREPARED_QUEUE_OFFSET")
    return half.queue_offset if given is None else given


def is_copy(record: Record) -> bool:
    """Whether it is a half message that took over from an earlier one."""
    return record.topic == HALF_TOPIC.encode() and _number(record, b"TRAN_PREPARED_QUEUE_OFFSET") is not None


def identity(half: Record) -> tuple[bytes | None, int]:
    """Which transaction it stands for: all copies of one have the same."""
    return half.find(b"UNIQ_KEY"), origin(half)


def checks_of(half: Record) -> int:
    return _number(half, b"TRANSACTION_CHECK_TIMES") or 0


def own_immunity_ms(half: Record) -> int | None:
    """For how long its sender wants not to be asked; None when it did not say."""
    seconds = _number(half, b"CHECK_IMMUNITY_TIME_IN_SECONDS")
    return None if seconds is None else seconds * 1000


def producer_group(half: Record) -> str:
    return (half.find(b"PGROUP") or b"").decode()


def real_topic(half: Record) -> str:
    return (half.find(b"REAL_TOPIC") or b"").decode()


def real_queue(half: Record) -> int:
    return _number(half, b"REAL_QID") or 0


def _number(half: Record, name: bytes) -> int | None:
    value = half.find(name)
    return int(value) if value and value.isdigit() and len(value) < 19 else None


def _again(
    half: Record,
    topic: str,
    queue_id: int,
    properties: bytes,
    *,
    sys_flag: int | None = None,
    prepared_offset: int = 0,
) -> Draft:
    return Draft(
        topic,
        queue_id,
        half.body,
        properties,
        half.flag,
        half.sys_flag if sys_flag is None else sys_flag,
        half.born_ms,
        half.born_host,
        half.store_host,
        half.reconsume_times,
        prepared_offset,
    )
