"""Replies on their way back to who asked.

    replier ─ SEND_REPLY_MESSAGE ─▶ broker ─ PUSH_REPLY_MESSAGE_TO_CLIENT ─▶ the client in REPLY_TO_CLIENT
                                      └─ and into its topic, for the record (storeReplyMessageEnable)

The replier hears how the push went; whether the reply was also stored changes nothing for it.
"""

from __future__ import annotations

import logging
from typing import Final

from kourou.broker.advertised import Advertised
from kourou.broker.config import BrokerConfig
from kourou.broker.half_messages import TRANSACTION_BITS
from kourou.broker.handlers.send import SendHandler
from kourou.broker.members import Members
from kourou.broker.stats import Stats
from kourou.doors.clock import Clock
from kourou.errors import MQError
from kourou.protocol import message_id
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.command import request as make_request
from kourou.protocol.headers import PushReply, SendMessage, SendMessageV2, SendReply
from kourou.protocol.names import printable
from kourou.protocol.properties import find, with_added
from kourou.remoting.answer import Answer
from kourou.remoting.complaints import Complaints
from kourou.store.store import Appended, Draft, Store

PUSH_TIMEOUT_MS: Final = 10_000
"""As long as the original waits for the client that asked."""

logger = logging.getLogger(__name__)


class ReplyHandler:
    """SEND_REPLY_MESSAGE (324), SEND_REPLY_MESSAGE_V2 (325)."""

    def __init__(
        self,
        config: BrokerConfig,
        send: SendHandler,
        *,
        members: Members,
        store: Store,
        stats: Stats,
        advertised: Advertised,
        clock: Clock,
    ) -> None:
        self._config = config
        self._send = send
        self._members = members
        self._store = store
        self._stats = stats
        self._advertised = advertised
        self._clock = clock
        self._complaints = Complaints(logger, clock)

    def __call__(self, request: Command, answer: Answer) -> None:
        header: SendMessage | SendMessageV2
        if request.code == RequestCode.SEND_REPLY_MESSAGE:
            header = request.parse(SendMessage)
        else:
            header = request.parse(SendMessageV2)
        queue_id = self._send.queue_for(header)
        self._send.check_body(request.body)
        properties = self._own_properties(header)
        stored = (
            self._store_reply(header, properties, queue_id, request.body, answer)
            if self._config.store_replies
            else None
        )

        def failed(why: str) -> None:
            told = None if stored is None else self._reply(queue_id, stored)
            answer(request.reply(told, code=ResponseCode.SYSTEM_ERROR, remark=why))

        asker = (find(properties, b"REPLY_TO_CLIENT") or b"").decode()
        if not asker:
            failed("the reply does not say for whom it is: property REPLY_TO_CLIENT")
            return
        connection = self._members.producer_connection(asker)
        if connection is None:
            failed(f"push reply message fail, channel of <{printable(asker)}> not found: it is not connected")
            return

        def pushed(outcome: Command | Exception) -> None:
            if isinstance(outcome, Command) and outcome.code == ResponseCode.SUCCESS:
                answer(request.reply(self._reply(queue_id, stored)))
                return
            why = str(outcome) if isinstance(outcome, Exception) else f"it answered {outcome.code}"
            failed(f"push reply message to {printable(asker)} fail: {why}")

        push = make_request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._push(header, properties, answer), request.body
        )
        connection.call(push, PUSH_TIMEOUT_MS, pushed)

    def _own_properties(self, header: SendMessage | SendMessageV2) -> bytes:
        """The reply's properties, and where and how this broker works."""
        properties = (header.properties or "").encode()
        trace_on = b"true" if self._config.trace_on else b"false"
        properties = with_added(properties, b"MSG_REGION", self._config.region.encode())
        return with_added(properties, b"TRACE_ON", trace_on)

    def _push(self, header: SendMessage | SendMessageV2, properties: bytes, answer: Answer) -> PushReply:
        now_ms = self._clock.now_ms()
        return PushReply(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=answer.connection.peer,
            store_host=self._advertised.address,
            store_timestamp=now_ms,
            properties=with_added(properties, b"PUSH_REPLY_TIME", b"%d" % now_ms).decode(),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
        )

    def _store_reply(
        self,
        header: SendMessage | SendMessageV2,
        properties: bytes,
        queue_id: int,
        body: bytes,
        answer: Answer,
    ) -> Appended | None:
        """Where the reply is kept; None when that is not possible now: its asker gets it all the same."""
        draft = Draft(
            header.topic,
            queue_id,
            body,
            properties,
            header.flag,
            header.sys_flag & ~TRANSACTION_BITS,
            header.born_timestamp,
            answer.connection.packed_peer,
            self._advertised.packed,
            header.reconsume_times or 0,
        )
        try:
            appended = self._store.append(draft)
        except MQError as error:
            self._complaints.warn("store", f"a reply is passed on and not stored: {error}")
            return None
        self._stats.put(header.topic, 1, appended.size)
        return appended

    def _reply(self, queue_id: int, stored: Appended | None) -> SendReply:
        place = (
            None if stored is None else message_id.offset_id(self._advertised.packed, stored.physical_offset)
        )
        return SendReply(
            message_id=place or "0",
            queue_id=queue_id,
            queue_offset=0 if stored is None else stored.queue_offset,
            region=self._config.region,
            trace_on=self._config.trace_on,
        )
