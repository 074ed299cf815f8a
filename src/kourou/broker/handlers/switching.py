"""Requests of replica sets, and of operators who switch masters and stop brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from kourou.broker.replicating import Replicating
from kourou.broker.role import ASYNC_MASTER, SYNC_MASTER, BrokerRole
from kourou.broker.switching import Switching
from kourou.doors.clock import Clock
from kourou.errors import MQError, Refused
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.names import printable
from kourou.protocol.switching import ReplicaState, Switch, SwitchReply
from kourou.remoting.answer import Answer, refusal
from kourou.remoting.connection import Connection
from kourou.store.store import Store

HAND_OVER_SECONDS_MAX: Final = 5.0
LOOK_SECONDS: Final = 0.01

logger = logging.getLogger(__name__)


class ReplicaSetHandler:
    """KOUROU_REPLICA_SET (30010): what members say to each other."""

    def __init__(self, switching: Switching | None) -> None:
        self._switching = switching

    def __call__(self, request: Command, answer: Answer) -> None:
        if self._switching is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, "this broker is in no replica set that elects: set electionMembers"
            )
        answer(request.reply(body=self._switching.handle(request.body)))


class ReplicaSetStateHandler:
    """KOUROU_REPLICA_SET_STATE (30012): what this broker is, and how far its replicas are."""

    def __init__(self, switching: Switching | None, replicating: Replicating) -> None:
        self._switching = switching
        self._replicating = replicating

    def __call__(self, request: Command, answer: Answer) -> None:
        status = self._replicating.status()
        following = status.following
        state = ReplicaState(
            role=status.role,
            term=status.term,
            log_end=status.log_end,
            ha_address=status.ha_address,
            acked={link.member: link.acked for link in status.links},
            following="" if following is None else f"{following.state} {following.reason}".strip(),
            lag=None if following is None else following.lag,
            master=self._replicating.master_address or "",
        )
        if self._switching is not None:
            elected = self._switching.state
            state = msgspec.structs.replace(
                state,
                term=elected.term,
                is_elected=True,
                master=elected.master or "",
                in_sync=list(elected.in_sync),
                members=list(elected.members),
                witnesses=list(elected.witnesses),
                may_acknowledge=elected.may_acknowledge,
            )
        answer(request.reply(body=msgspec.json.encode(state)))


class SwitchHandler:
    """KOUROU_SWITCH (30011): what an operator wants this broker to be."""

    def __init__(
        self,
        switching: Switching | None,
        *,
        replicating: Replicating,
        role: BrokerRole,
        store: Store,
        clock: Clock,
    ) -> None:
        self._switching = switching
        self._replicating = replicating
        self._role = role
        self._store = store
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, request: Command, answer: Answer) -> None:
        wanted = request.parse(Switch)
        task = asyncio.get_running_loop().create_task(self._switch(wanted, request, answer))
        self._tasks.add(task)  # a task nobody holds may vanish
        task.add_done_callback(self._tasks.discard)

    async def _switch(self, wanted: Switch, request: Command, answer: Answer) -> None:
        try:
            logger.warning("%s wants: %s", answer.connection.peer, printable(f"{wanted.what} {wanted.heir}"))
            if self._switching is not None:
                await self._elected(self._switching, wanted)
            else:
                await self._by_hand(wanted, answer.connection)
        except MQError as error:
            answer(refusal(request, error))
        else:
            answer(request.reply(SwitchReply(term=self._role.term, log_end=self._store.wrote)))

    async def _elected(self, switching: Switching, wanted: Switch) -> None:
        if wanted.what == "hand-over":
            await switching.hand_over(wanted.heir)
        elif wanted.what == "master":
            switching.force()
        else:
            raise _unknown(wanted)

    async def _by_hand(self, wanted: Switch, operator: Connection) -> None:
        replicating = self._replicating
        if wanted.what == "hand-over":
            await self._let_go(wanted.heir, operator)
        elif wanted.what == "master":
            await replicating.become_master(max(wanted.term, self._role.term + 1), _kind_of_master(wanted))
        elif wanted.what == "slave":
            await replicating.become_slave(
                max(wanted.term, self._role.term), wanted.master or None, wanted.ha_address or None
            )
        else:
            raise _unknown(wanted)

    async def _let_go(self, heir: str, operator: Connection) -> None:
        """Take nothing more, wait until the heir has everything, then lead no more; or go on as before."""
        primary = self._replicating.primary
        if not self._role.is_master:
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker does not lead: it cannot hand over")
        deadline = self._clock.monotonic() + HAND_OVER_SECONDS_MAX
        while heir not in primary.acked:  # it may just have started; we go on meanwhile
            if self._clock.monotonic() > deadline:
                known = ", ".join(sorted(primary.acked)) or "nobody"
                raise Refused(
                    ResponseCode.SYSTEM_ERROR, f"{printable(heir)} does not follow this master; {known} does"
                )
            await self._moment()
        if not operator.is_open:  # and nobody would tell the heir to lead
            raise Refused(ResponseCode.SYSTEM_ERROR, "whoever wanted this hand-over has gone")
        self._store.refuse_appends(f"this master hands over to {heir}: look up the route again")
        while primary.acked.get(heir, -1) < primary.end or heir in primary.lacking:
            if self._clock.monotonic() > deadline or heir not in primary.acked:
                self._store.refuse_appends(None)
                lag = primary.end - primary.acked.get(heir, 0)
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    f"{heir} is {lag} bytes behind and did not catch up within {HAND_OVER_SECONDS_MAX:g} s; "
                    "this broker goes on as master",
                )
            await self._moment()
        await self._replicating.become_idle(self._role.term)

    async def _moment(self) -> None:
        passed = asyncio.Event()
        self._clock.later(LOOK_SECONDS, passed.set)
        await passed.wait()


def _kind_of_master(wanted: Switch) -> str | None:
    if wanted.role not in ("", ASYNC_MASTER, SYNC_MASTER):
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"a master is {ASYNC_MASTER} or {SYNC_MASTER}, not '{printable(wanted.role)}'",
        )
    return wanted.role or None


def _unknown(wanted: Switch) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, f"'{printable(wanted.what)}' is nothing this broker could do")


class StopHandler:
    """KOUROU_STOP (30013): end in order, as on SIGTERM."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    def __call__(self, request: Command, answer: Answer) -> None:
        logger.warning("%s asked this broker to stop", answer.connection.peer)
        answer(request.reply())
        self._stop()
