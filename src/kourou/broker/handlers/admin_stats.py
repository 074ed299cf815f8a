"""One figure over the last minute, hour and day."""

from __future__ import annotations

from kourou.broker.spans import Spans
from kourou.errors import NotFound
from kourou.protocol.admin_bodies import BrokerStatsData
from kourou.protocol.admin_headers import BrokerStatsAsked
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.names import printable
from kourou.remoting.answer import Answer


class BrokerStatsHandler:
    """VIEW_BROKER_STATS_DATA (315)."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans

    def __call__(self, request: Command, answer: Answer) -> None:
        header = request.parse(BrokerStatsAsked)
        figures = self._spans.of(header.stats_name, header.stats_key)
        if figures is None:
            raise NotFound(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{printable(header.stats_name)}> <{printable(header.stats_key)}> not exist",
            )
        minute, hour, day = figures
        body = BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)
        answer(request.reply(body=body.encode()))
