"""Whether a filter can be used here, asked before a consumer starts."""

from __future__ import annotations

from kourou.broker import filters
from kourou.broker.config import BrokerConfig
from kourou.errors import Refused
from kourou.protocol.bodies import CheckClient
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.names import printable
from kourou.remoting.answer import Answer


class CheckClientHandler:
    """CHECK_CLIENT_CONFIG (46): is this expression one that the broker understands, and applies?

    A Java consumer asks for each subscription that is not by tag, and does not start on any answer but yes.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def __call__(self, request: Command, answer: Answer) -> None:
        subscription = CheckClient.decode_request(request.body).subscription_data if request.body else None
        if subscription is not None and not filters.is_tag_expression(subscription.expression_type):
            if not self._config.property_filter:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    "The broker does not support consumer to filter message by "
                    f"{printable(subscription.expression_type or '')} (enablePropertyFilter=false)",
                )
            filters.make_filter(subscription.expression_type, subscription.sub_string)
        answer(request.reply())
