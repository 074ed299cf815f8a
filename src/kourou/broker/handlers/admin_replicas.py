"""Who copies from this broker, or from whom it copies, in the original's words."""

from __future__ import annotations

from collections.abc import Callable

from kourou.protocol.admin_bodies import HaClient, HaConnection
from kourou.protocol.admin_bodies import HaStatus as HaStatusBody
from kourou.protocol.command import Command
from kourou.remoting.answer import Answer
from kourou.replication.status import HaStatus


class HaStatusHandler:
    """GET_BROKER_HA_STATUS (907)."""

    def __init__(self, status: Callable[[], HaStatus], is_master: Callable[[], bool]) -> None:
        self._status = status
        self._is_master = is_master

    def __call__(self, request: Command, answer: Answer) -> None:
        status = self._status()
        body = HaStatusBody(
            master=self._is_master(),
            master_commit_log_max_offset=status.log_end,
            in_sync_slave_nums=sum(link.is_in_sync for link in status.links),
            ha_connection_info=[
                HaConnection(
                    addr=link.peer,
                    diff=link.lag,
                    in_sync=link.is_in_sync,
                    slave_ack_offset=link.acked,
                    transfer_from_where=link.sent,
                )
                for link in status.links
            ],
        )
        if status.following is not None:
            body.ha_client_runtime_info = HaClient(
                activated=status.following.state == "following",
                master_addr=status.following.address,
                max_offset=status.log_end,
                master_flush_offset=status.log_end + (status.following.lag or 0),
            )
        answer(request.reply(body=body.encode()))
