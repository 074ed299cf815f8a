"""A sender takes back a message that is not due yet."""

from __future__ import annotations

from kourou.broker.advertised import Advertised
from kourou.broker.config import BrokerConfig
from kourou.broker.later import Later
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.doors.clock import Clock
from kourou.errors import Busy, ProtocolError, Refused
from kourou.protocol import properties
from kourou.protocol.bodies import PERM_WRITE
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import RecallMessage, RecallRefused, RecallReply
from kourou.protocol.names import printable
from kourou.protocol.recall_handle import RecallHandle, parse_recall_handle
from kourou.remoting.answer import Answer
from kourou.store.flush import StoreStatus
from kourou.store.store import Draft, Store


class RecallHandler:
    """RECALL_MESSAGE (370).

    What is stored is a message of its own, which reaches the timers just before the one it takes back. So
    nobody is told whether there was one: as with the original, an unknown id is recalled successfully.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        topics: Topics,
        later: Later,
        store: Store,
        stats: Stats,
        advertised: Advertised,
        clock: Clock,
    ) -> None:
        self._config = config
        self._topics = topics
        self._later = later
        self._store = store
        self._stats = stats
        self._advertised = advertised
        self._clock = clock

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(RecallMessage)
        try:
            self._check_allowed()
            self._topics.named(header.topic)
            handle = self._checked(header)
        except Refused as refused:
            told = RecallRefused(region=self._config.region)
            answer(request.reply(told, code=refused.code, remark=refused.remark))
            return
        now_ms = self._clock.now_ms()
        draft = self._later.redirect(
            Draft(
                handle.topic,
                0,
                b"0",
                properties.encode(
                    {
                        "TAGS": "_RECALL_TAG_",
                        "TIMER_DEL_UNIQKEY": f"{handle.topic}+{handle.unique_id}",
                        "UNIQ_KEY": handle.unique_id,
                        "TIMER_DELIVER_MS": str(handle.time_ms),
                        "PGROUP": header.producer_group or "",
                    }
                ),
                0,
                0,
                now_ms,
                answer.connection.packed_peer,
                self._advertised.packed,
            )
        )
        appended = self._store.append(draft)
        self._stats.put(draft.topic, 1, appended.size)
        reply = RecallReply(message_id=handle.unique_id, region=self._config.region)

        def accepted(status: StoreStatus) -> None:
            if status.is_stored:
                answer(request.reply(reply))
            else:
                answer(request.reply(code=ResponseCode.SYSTEM_ERROR, remark=status.reason))

        self._store.when_stored(appended.end, accepted)

    def _check_allowed(self) -> None:
        config = self._config
        if not config.recall_enabled:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"broker {config.broker_name} lets nobody take back messages (recallMessageEnable=false)",
            )
        if not config.permission & PERM_WRITE:
            raise Busy(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"broker {config.broker_name} is not writable: its brokerPermission is {config.permission}",
            )

    def _checked(self, header: RecallMessage) -> RecallHandle:
        try:
            handle = parse_recall_handle(header.recall_handle)
        except ProtocolError as error:
            raise _illegal(str(error)) from None
        if handle.topic != header.topic:
            raise _illegal(
                f"the recall handle is of topic '{printable(handle.topic)}', and the request of topic "
                f"'{printable(header.topic)}'"
            )
        if handle.broker_name != self._config.broker_name:
            raise _illegal(
                f"the recall handle is of broker '{printable(handle.broker_name)}'; this is "
                f"{self._config.broker_name}"
            )
        left_ms = handle.time_ms - self._clock.now_ms()
        if not 0 < left_ms <= self._config.timer_seconds_max * 1000:
            raise _illegal(
                f"the message was due {-left_ms} ms ago"
                if left_ms <= 0
                else f"the recall handle names a time {left_ms} ms from now, later than any message's here"
            )
        return handle


def _illegal(remark: str) -> Refused:
    return Refused(ResponseCode.ILLEGAL_OPERATION, remark)
