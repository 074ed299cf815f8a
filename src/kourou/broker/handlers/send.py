"""Taking messages in: may it be sent, to which queue, and what is it stored as.

    Command ─▶ checks ─▶ Draft ─▶ store.append ─▶ (durable as asked) ─▶ answer

The plain way, for every kind of send. What is usual and comes in numbers takes the fast one, `send_run.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from kourou.broker import half_messages
from kourou.broker.advertised import Advertised
from kourou.broker.config import BrokerConfig
from kourou.broker.handlers.usual_properties import UsualProperties
from kourou.broker.later import Later
from kourou.broker.retries import Retries
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock
from kourou.doors.failpoints import reached
from kourou.errors import Refused
from kourou.protocol import message_id, names
from kourou.protocol.bodies import PERM_WRITE, TopicConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import SendMessage, SendMessageV2, SendReply
from kourou.protocol.message_id import UniqueIds
from kourou.protocol.names import printable
from kourou.protocol.properties import PROPERTIES_BYTES_MAX, encode, find, parse, with_added
from kourou.protocol.recall_handle import RecallHandle
from kourou.protocol.record import CRC_PROPERTY_BYTES, BatchItem, decode_batch
from kourou.remoting.answer import Answer
from kourou.store.flush import FLUSH_SLAVE_TIMEOUT, FLUSH_TIMEOUT, OK, SLAVE_NOT_AVAILABLE, StoreStatus
from kourou.store.store import Appended, Draft, Store, Usual

BATCH_MESSAGES_MAX: Final = 1_024
TRANSACTION_BITS: Final = 0xC
PREPARED: Final = 0x4
MULTI_TAG: Final = "MULTI_TAG"
MULTI_TAG_BIT: Final = 0x2

_SEND_MESSAGE = int(RequestCode.SEND_MESSAGE)
_SEND_BATCH_MESSAGE = int(RequestCode.SEND_BATCH_MESSAGE)

_LATER = ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
_OURS = frozenset({"MSG_REGION", "TRACE_ON", "CLUSTER", "POP_CK"})


class SendHandler:
    """SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320)."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        store: Store,
        stats: Stats,
        *,
        advertised: Advertised,
        unique_ids: UniqueIds,
        clock: Clock,
        chance: Chance,
        later: Later,
        retries: Retries,
        when_known: Callable[[Callable[[], None]], None],
    ) -> None:
        """`when_known(then)` calls `then` when name servers know of a topic that has just been made."""
        self.config = config
        self._when_known = when_known
        self._later = later
        self._retries = retries
        self._topics = topics
        self._store = store
        self._stats = stats
        self._advertised = advertised
        self._unique_ids = unique_ids
        self._clock = clock
        self._chance = chance
        self._body_bytes_max = config.message_bytes_max
        self._properties_bytes_max = PROPERTIES_BYTES_MAX - CRC_PROPERTY_BYTES - 1
        trace_on = "true" if config.trace_on else "false"
        self._usual = UsualProperties(self.stored_properties)
        self._added = (
            f"MSG_REGION\x01{config.region}\x02TRACE_ON\x01{trace_on}\x02CLUSTER\x01{config.cluster_name}\x02"
        )

    @property
    def is_writable(self) -> bool:
        """As it is set now: operators may change it while the broker runs."""
        return self.config.permission & PERM_WRITE != 0

    def __call__(self, request: Command, answer: Answer) -> None:
        header: SendMessage | SendMessageV2
        if request.code == _SEND_MESSAGE:
            header = request.parse(SendMessage)
        else:
            header = request.parse(SendMessageV2)
        name, queue_id = header.topic, header.queue_id
        topic = self._topics.get(name)
        if (
            topic is None
            or not 0 <= queue_id < topic.write_queue_nums
            or not topic.perm & PERM_WRITE
            or name in names.NOT_SENDABLE
            or not self.is_writable
        ):
            queue_id = self._unusual_queue(header, topic)
        tell = answer if topic is not None else self._once_known(answer)
        if topic is not None and topic.topic_filter_type == MULTI_TAG:
            header = msgspec.structs.replace(header, sys_flag=header.sys_flag | MULTI_TAG_BIT)
        if header.batch or request.code == _SEND_BATCH_MESSAGE:
            self._send_batch(request, answer, tell, header, queue_id)
            return
        text = header.properties or ""
        properties, unique_id = self.stored_properties(text, header.sys_flag, may_wait=True)
        if name.startswith(names.RETRY_PREFIX):
            times, times_max = header.reconsume_times or 0, header.max_reconsume_times
            given_up = self._retries.instead_of(name, times, times_max, request.version)
            if given_up is not None:
                name, queue_id = given_up
                properties = with_added(properties, b"DELAY", b"-1")
        body = request.body
        if not body or len(body) > self._body_bytes_max:
            raise self._illegal_size(len(body))
        draft = Draft(
            name,
            queue_id,
            body,
            properties,
            header.flag,
            header.sys_flag,
            header.born_timestamp,
            answer.connection.packed_peer,
            self._advertised.packed,
            header.reconsume_times or 0,
        )
        is_half = "TRAN_MSG" in text and self._is_half(draft)
        if is_half:
            reached("before-half-append")
            draft = half_messages.prepared(draft, unique_id, header.producer_group)
        else:
            draft = self._later.redirect(draft)
        appended = self._store.append(draft)
        if is_half:
            reached("after-half-append")
        self._stats.put(draft.topic, 1, appended.size)
        reply = self.reply(queue_id, appended, unique_id)
        if draft.topic == names.TIMER_TOPIC and not name.startswith(names.RETRY_PREFIX):
            reply = msgspec.structs.replace(reply, recall_handle=self._recall_handle(name, draft, unique_id))
        # WAIT=false: the producer does not want to wait for a sync.
        no_wait = "WAIT\x01false" in text and find(properties, b"WAIT") == b"false"
        self._store.when_stored(
            appended.end,
            lambda status: tell(answer_to(request, reply, status)),
            written_is_enough=no_wait,
        )

    def queue_for(self, header: SendMessage | SendMessageV2) -> int:
        """The queue a message goes to, its topic made if need be; raises Refused when it may not."""
        topic = self._topics.get(header.topic)
        if (
            topic is not None
            and 0 <= header.queue_id < topic.write_queue_nums
            and topic.perm & PERM_WRITE
            and header.topic not in names.NOT_SENDABLE
            and self.is_writable
        ):
            return header.queue_id
        return self._unusual_queue(header, topic)

    def check_body(self, body: bytes) -> None:
        if not body or len(body) > self._body_bytes_max:
            raise self._illegal_size(len(body))

    def reply(self, queue_id: int, appended: Appended, unique_id: str) -> SendReply:
        """What the sender of one message is told."""
        offset_id = message_id.offset_id(self._advertised.packed, appended.physical_offset)
        return self._reply(offset_id, queue_id, appended.queue_offset, unique_id)

    def _reply(self, offset_ids: str, queue_id: int, queue_offset: int, unique_ids: str) -> SendReply:
        return SendReply(
            message_id=offset_ids,
            queue_id=queue_id,
            queue_offset=queue_offset,
            transaction_id=unique_ids or None,
            region=self.config.region,
            trace_on=self.config.trace_on,
        )

    def _recall_handle(self, topic: str, draft: Draft, unique_id: str) -> str:
        out_ms = int(find(draft.properties, b"TIMER_OUT_MS") or 0)
        return RecallHandle(topic, self.config.broker_name, out_ms + 1, unique_id).encode()

    def stored_properties(self, text: str, sys_flag: int, *, may_wait: bool = False) -> tuple[bytes, str]:
        """What is stored as the message's properties, and its unique id. Unless it `may_wait`, a message to
        be delivered later is refused.

        Works on the text as it came, because most messages need two look-ups and one encoding; 0.9 µs
        where taking the properties apart costs 3.
        """
        if (
            (sys_flag and sys_flag & TRANSACTION_BITS)
            or "TRAN_MSG" in text
            or "DELAY" in text
            or "TIMER_DE" in text
            or "MSG_REGION" in text
            or "TRACE_ON" in text
            or "CLUSTER" in text
            or "POP_CK" in text
        ):
            text = self._without_special(text, sys_flag, may_wait)
        if text and text[-1] != "\x02":
            text += "\x02"
        # Java sets WAIT=true on every message and no broker stores it.
        at = text.find("WAIT\x01true\x02")
        if at > 0 and text[at - 1] != "\x02":
            at = _entry(text, "WAIT\x01true\x02")
        if at >= 0:
            text = text[:at] + text[at + 10 :]
        at = text.find("UNIQ_KEY\x01")
        if at > 0 and text[at - 1] != "\x02":
            at = _entry(text, "UNIQ_KEY\x01")
        if at >= 0:
            unique_id = text[at + 9 : text.find("\x02", at)]
        else:
            unique_id = self._unique_ids.next(self._clock.now_ms())
            text = f"{text}UNIQ_KEY\x01{unique_id}\x02"
        properties = (text + self._added).encode()
        if len(properties) > self._properties_bytes_max:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the properties have {len(properties)} bytes with what a broker adds: at most "
                f"{self._properties_bytes_max} can be stored",
            )
        return properties, unique_id

    # ----------------------------------------------------------------------------------- what is unusual

    def _unusual_queue(self, header: SendMessage | SendMessageV2, topic: TopicConfig | None) -> int:
        """The queue to use all the same, or a refusal."""
        name, queue_id = header.topic, header.queue_id
        if name in names.NOT_SENDABLE:
            raise Refused(ResponseCode.NO_PERMISSION, f"sending to topic '{name}' is for the broker alone")
        if topic is None:
            topic = self._created(header)
        if not topic.perm & PERM_WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"topic '{name}' is not writable: its perm is {topic.perm}"
            )
        if not self.is_writable:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"broker {self.config.broker_name} is not writable: its brokerPermission is "
                f"{self.config.permission}",
            )
        if queue_id < 0:
            return self._chance.randrange(topic.write_queue_nums)
        if queue_id < max(topic.read_queue_nums, topic.write_queue_nums):
            return queue_id  # a topic being shrunk: readers still look there
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"queueId {queue_id} is illegal: topic '{name}' has {topic.write_queue_nums} write and "
            f"{topic.read_queue_nums} read queues",
        )

    def _created(self, header: SendMessage | SendMessageV2) -> TopicConfig:
        """A topic nobody knows: refused, or made after the default topic's pattern."""
        fault = names.sent_topic_fault(header.topic)
        if fault is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        sys_flag = 0
        if header.unit_mode:
            sys_flag = 2 if header.topic.startswith(names.RETRY_PREFIX) else 1
        return self._topics.create_for_send(
            header.topic, header.default_topic, header.default_topic_queue_nums, sys_flag
        )

    def _once_known(self, answer: Answer) -> Callable[[Command], None]:
        """Tells the sender to a new topic that it is stored when others can find the topic, too: who sends
        and then starts a reader reads."""
        return lambda reply: self._when_known(lambda: answer(reply))

    def _without_special(self, text: str, sys_flag: int, may_wait: bool) -> str:
        """Refuse what cannot be sent like this; drop what only a broker writes."""
        properties = parse(text.encode())
        if sys_flag & TRANSACTION_BITS and (
            sys_flag & TRANSACTION_BITS != PREPARED or not _says_true(properties.get("TRAN_MSG"))
        ):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"sysFlag {sys_flag} belongs to a transaction: only half messages can be sent, with sysFlag "
                f"{PREPARED} and TRAN_MSG=true",
            )
        for name in _LATER:
            if not may_wait and properties.get(name, "0") != "0":
                raise Refused(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"a batch holds no delayed messages: property {name} of one is "
                    f"'{printable(properties[name])}'; send it alone",
                )
        kept = {name: value for name, value in properties.items() if name not in _OURS}
        return encode(kept).decode()

    def _is_half(self, draft: Draft) -> bool:
        """Whether it waits for its sender's transaction. A consumer that wants a message again later sends
        its properties along, so that one is none."""
        properties = draft.properties
        is_half = _says_true((find(properties, b"TRAN_MSG") or b"").decode())
        if not is_half or (draft.reconsume_times and find(properties, b"DELAY")):
            draft.sys_flag &= ~TRANSACTION_BITS  # with them nobody would ever see it
            return False
        if self.config.reject_transactions:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"broker {self.config.broker_name} takes no transactions (rejectTransactionMessage=true)",
            )
        return True

    def _illegal_size(self, size: int) -> Refused:
        what = f"the body has {size} bytes" if size else "the message has no body"
        return Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"{what}: 1 to {self._body_bytes_max} bytes are taken (maxMessageSize)",
        )

    # ------------------------------------------------------------------------------------------- batches

    def _send_batch(
        self,
        request: Command,
        answer: Answer,
        tell: Callable[[Command], None],
        header: SendMessage | SendMessageV2,
        queue_id: int,
    ) -> None:
        if header.topic.startswith(names.RETRY_PREFIX):
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"topic '{header.topic}' takes no batches")
        if not request.body or len(request.body) > self._body_bytes_max:
            raise self._illegal_size(len(request.body))
        of_batch = (header.properties or "").encode()
        if find(of_batch, b"DELAY") not in (None, b"0"):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be delayed: send its messages one by one"
            )
        messages = decode_batch(request.body)
        if not 1 <= len(messages) <= BATCH_MESSAGES_MAX:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch of {len(messages)} messages: 1 to {BATCH_MESSAGES_MAX} are taken",
            )
        batch = self._take_usual(answer, header, queue_id, messages)
        if batch is None:
            batch = self._take_any(answer, header, queue_id, messages)
        self._stats.put(header.topic, len(messages), batch.size)
        template = self._advertised.hex.decode() + "%016X"
        offset_ids = ",".join([template % place for place, _ in batch.places])
        # A batch may have a unique id of its own (5.x clients); else its messages' ids stand for it.
        unique_id_of_batch = (find(of_batch, b"UNIQ_KEY") or b"").decode() or ",".join(batch.unique_ids)
        reply = self._reply(offset_ids, queue_id, batch.places[0][1], unique_id_of_batch)

        def accepted(status: StoreStatus) -> None:
            tell(answer_to(request, reply, status))

        no_wait = find(of_batch, b"WAIT") == b"false"
        self._store.when_stored(batch.end, accepted, written_is_enough=no_wait)

    def _take_usual(
        self,
        answer: Answer,
        header: SendMessage | SendMessageV2,
        queue_id: int,
        messages: list[BatchItem],
    ) -> _Batch | None:
        """The batch stored, if all of it is of the usual kind: a fifth less than the plain way takes."""
        texts = [_as_text(each.properties) for each in messages]
        # Not in the whole body: to look through a kilobyte for it takes half a microsecond.
        if header.sys_flag & TRANSACTION_BITS or "TRAN_MSG" in "".join(texts):
            return None
        run: list[Usual] = []
        unique_ids: list[str] = []
        key = (header.topic, queue_id)
        sys_flag, born_ms = header.sys_flag, header.born_timestamp
        stored = self._usual.of_each(header.topic, texts)
        for (flag, body, _), (properties, unique_id, id_at, tag) in zip(messages, stored, strict=False):
            run.append((key, body, properties, id_at, tag, flag, sys_flag, born_ms, 0))
            unique_ids.append(unique_id.decode())
        if len(run) < len(messages):
            return None
        peer = answer.connection.packed_peer
        taken = self._store.append_usual_batch(run, peer, self._advertised.packed)
        return None if taken is None else _Batch(taken.places, unique_ids, taken.end, taken.end - taken.start)

    def _take_any(
        self,
        answer: Answer,
        header: SendMessage | SendMessageV2,
        queue_id: int,
        messages: list[BatchItem],
    ) -> _Batch:
        drafts, unique_ids = [], []
        for flag, body, given in messages:
            if find(given, b"TRAN_MSG") == b"true" or header.sys_flag & TRANSACTION_BITS:
                raise Refused(
                    ResponseCode.MESSAGE_ILLEGAL, "a batch holds no half messages: send them one by one"
                )
            properties, unique_id = self.stored_properties(_as_text(given), header.sys_flag)
            unique_ids.append(unique_id)
            drafts.append(
                Draft(
                    header.topic,
                    queue_id,
                    body,
                    properties,
                    flag,
                    header.sys_flag,
                    header.born_timestamp,
                    answer.connection.packed_peer,
                    self._advertised.packed,
                    0,
                )
            )
        batch = self._store.append_batch(drafts)
        places = [(each.physical_offset, each.queue_offset) for each in batch]
        return _Batch(places, unique_ids, batch[-1].end, sum(each.size for each in batch))


class _Batch(NamedTuple):
    """Where the messages of a batch have their places (physical and queue offset), and their unique ids."""

    places: list[tuple[int, int]]
    unique_ids: list[str]
    end: int
    size: int


def _entry(text: str, start: str) -> int:
    """Where `start` begins an entry other than the first (X_WAIT is no WAIT); -1 when nowhere."""
    at = text.find("\x02" + start)
    return at + 1 if at >= 0 else -1


def _says_true(text: str | None) -> bool:
    return text is not None and text.lower() == "true"  # as Java's parseBoolean reads it


def _as_text(properties: bytes) -> str:
    try:
        return properties.decode()
    except UnicodeDecodeError as error:
        raise Refused(
            ResponseCode.MESSAGE_ILLEGAL, f"properties of a message of the batch are not UTF-8: {error}"
        ) from None


_STORED_CODES: Final = {
    FLUSH_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}


def answer_to(request: Command, reply: SendReply, status: StoreStatus) -> Command:
    """How the storing of a message ended, as its sender is told."""
    if status is OK:
        return request.reply(reply)
    if status.is_stored:
        return request.reply(reply, code=_STORED_CODES[status], remark=status.reason)
    return request.reply(code=ResponseCode.SERVICE_NOT_AVAILABLE, remark=status.reason)
