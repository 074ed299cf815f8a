"""What a slave does not do: its log, its topics and its groups are its master's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kourou.broker.role import BrokerRole
from kourou.errors import Busy, Refused
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.remoting.answer import Answer, Handler

SENDS: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.RECALL_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.KOUROU_STAGE,
        RequestCode.KOUROU_COMMIT_STAGED,
        RequestCode.KOUROU_ABORT_STAGED,
        RequestCode.KOUROU_STAGED_STATE,
    }
)
CHANGES: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    }
)


def masters_only(handlers: Mapping[int, Handler], role: BrokerRole, broker_name: str) -> dict[int, Handler]:
    """The same handlers, with those in front that a slave refuses."""
    guarded: dict[int, Handler] = dict(handlers)
    for code in (SENDS | CHANGES) & handlers.keys():
        guarded[code] = MastersOnly(handlers[code], role, broker_name, code)
    return guarded


class MastersOnly:
    """Passes on to the handler of a master."""

    def __init__(self, handler: Handler, role: BrokerRole, broker_name: str, code: int) -> None:
        self._handler = handler
        self._role = role
        self._broker_name = broker_name
        self._code = code

    def __call__(self, request: Command, answer: Answer) -> None:
        if not self._role.is_master:
            raise self._refusal()
        self._handler(request, answer)

    def _refusal(self) -> Refused:
        what = f"this broker is a slave of {self._broker_name} (brokerId {self._role.broker_id})"
        if self._code == RequestCode.END_TRANSACTION:
            return Refused(ResponseCode.SLAVE_NOT_AVAILABLE, f"Transaction message end on a slave: {what}")
        if self._code == RequestCode.CONSUMER_SEND_MSG_BACK:
            return Refused(ResponseCode.SYSTEM_ERROR, f"{what}: send it back to the master")
        if self._code in SENDS:  # the code of 4.9: stock producers of every version try another broker then
            return Busy(ResponseCode.SERVICE_NOT_AVAILABLE, f"{what}: it takes no messages; its master does")
        return Refused(
            ResponseCode.SYSTEM_ERROR,
            f"{what}: Can't modify topic or subscription group from slave broker, please execute it from "
            "master broker",
        )
