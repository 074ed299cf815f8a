"""Which HTTP status an error is."""

from __future__ import annotations

from kourou.errors import (
    Busy,
    ConfigError,
    Denied,
    MQError,
    NoMaster,
    NotFound,
    Refused,
    TimedOut,
    Unreachable,
)
from kourou.protocol.codes import ResponseCode

ABSENT = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.CONSUMER_NOT_ONLINE,
        ResponseCode.QUERY_NOT_FOUND,
    }
)


def status_of(error: MQError) -> int:
    if isinstance(error, NoMaster):
        return 502
    if isinstance(error, NotFound) or (isinstance(error, Refused) and error.code in ABSENT):
        return 404
    if isinstance(error, Denied):
        return 403
    if isinstance(error, ConfigError):
        return 400
    if isinstance(error, Busy):
        return 503
    if isinstance(error, TimedOut):
        return 504
    if isinstance(error, Unreachable):
        return 502
    return 409 if isinstance(error, Refused) else 500
