"""A reply that is not a success, as the exception a caller can act upon.

The only place that knows which response code means what to a caller.
"""

from __future__ import annotations

from collections.abc import Collection

from kourou.errors import Busy, Denied, NotFound, Refused
from kourou.protocol.codes import ResponseCode, response_name
from kourou.protocol.command import Command

_KINDS: dict[int, type[Refused]] = {
    ResponseCode.TOPIC_NOT_EXIST: NotFound,
    ResponseCode.QUERY_NOT_FOUND: NotFound,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: NotFound,
    ResponseCode.CONSUMER_NOT_ONLINE: NotFound,
    ResponseCode.NO_MESSAGE: NotFound,
    ResponseCode.BROKER_NOT_EXIST: NotFound,
    ResponseCode.USER_NOT_EXIST: NotFound,
    ResponseCode.POLICY_NOT_EXIST: NotFound,
    ResponseCode.NO_PERMISSION: Denied,
    ResponseCode.SYSTEM_BUSY: Busy,
    ResponseCode.FLOW_CONTROL: Busy,
}


def accepted(reply: Command, asked: str, expected: Collection[int] = (ResponseCode.SUCCESS,)) -> Command:
    """`reply` itself when its code is among `expected`; otherwise raises what it means.

    `asked` says who was asked for what, and begins the error's text: "broker-a (10.0.0.1:10911), send to …".
    """
    if reply.code in expected:
        return reply
    raise refusal(reply.code, reply.remark, asked)


def refusal(code: int, remark: str | None, asked: str) -> Refused:
    error = _KINDS.get(code, Refused)(code, remark or "")
    return explained(error, f"{asked}: {remark or 'refused'} [{response_name(code)}]")


def explained(error: Refused, text: str) -> Refused:
    """The same refusal with a text that says more than the peer did; `remark` stays the peer's own words."""
    error.args = (text,)
    return error
