"""A name server as voter: it has no log, but with it two brokers have a majority when one of them is gone.

What it promised is on disk before it says so, one small file for all replica sets, beside the key-value
configuration. The rules are those of every voter (`replication/ballots.py`).
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from kourou.doors.clock import Clock
from kourou.doors.files import Files, make_lasting_folder
from kourou.errors import Busy, Corrupt, Refused
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.names import printable
from kourou.remoting.answer import Answer
from kourou.replication.ballots import Ask, Ballot, Envelope, Message, Propose, Voter, decoded, encoded

SETS_MAX: Final = 1_000

logger = logging.getLogger(__name__)


class _Kept(msgspec.Struct):
    """The file: the ballot of every replica set, and the longest lease each of them asked for."""

    ballots: dict[str, Ballot]
    leases: dict[str, float]


class Witness:
    """KOUROU_REPLICA_SET (30010) at a name server."""

    def __init__(self, files: Files, path: str, clock: Clock) -> None:
        self._files = files
        self._path = path
        self._clock = clock
        self._kept = _Kept({}, {})
        self._voters: dict[str, Voter] = {}

    def load(self) -> None:
        """Read what was promised; nothing there is fine. Raises Corrupt: a voter must not forget."""
        try:
            data = self._files.read(self._path)
        except FileNotFoundError:
            return
        try:
            self._kept = msgspec.json.decode(data, type=_Kept)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise self._damaged(str(error)) from None
        if self._kept.ballots.keys() != self._kept.leases.keys():
            raise self._damaged("ballots and leases are not of the same replica sets")
        now = self._clock.monotonic()
        for name, ballot in self._kept.ballots.items():
            self._voters[name] = Voter(ballot, self._kept.leases[name], now)

    def _damaged(self, why: str) -> Corrupt:
        return Corrupt(
            f"{self._path} is damaged ({why}); it holds what this name server promised as a voter. "
            "Move it away only when every broker of its replica sets is running"
        )

    def __call__(self, request: Command, answer: Answer) -> None:
        envelope = decoded(request.body)
        message = envelope.message
        if not isinstance(message, (Ask, Propose)):
            raise Refused(ResponseCode.SYSTEM_ERROR, "a witness is asked for votes, and told of records")
        voter = self._voter(envelope.replica_set, message.lease)
        before, now = voter.ballot, self._clock.monotonic()
        reply: Message
        if isinstance(message, Ask):
            reply = voter.asked(now, message, None)
        else:
            reply = voter.proposed(now, message)
        if voter.ballot != before:
            try:
                self._save(envelope.replica_set, voter, message.lease)
            except OSError as error:
                voter.ballot = before
                what = f"{self._path} cannot be written: {error.strerror or error}"
                logger.error("as a witness: %s", what)
                raise Busy(ResponseCode.SERVICE_NOT_AVAILABLE, what) from None
        mine = Envelope(envelope.replica_set, "witness", reply)
        answer(request.reply(body=encoded(mine)))

    def _voter(self, name: str, lease: float) -> Voter:
        voter = self._voters.get(name)
        if voter is None:
            if len(self._voters) >= SETS_MAX:
                what = f"{SETS_MAX} replica sets are voted for here, which is the most"
                raise Refused(ResponseCode.SYSTEM_ERROR, what)
            logger.info("votes in replica set %s from now on", printable(name))
            voter = self._voters[name] = Voter(Ballot(), lease, self._clock.monotonic())
        return voter

    def _save(self, name: str, voter: Voter, lease: float) -> None:
        kept = _Kept(
            {**self._kept.ballots, name: voter.ballot},
            {**self._kept.leases, name: max(lease, self._kept.leases.get(name, 0.0))},
        )
        folder = self._path.rpartition("/")[0]
        if folder:
            make_lasting_folder(self._files, folder)
        self._files.write_atomically(self._path, msgspec.json.encode(kept))
        self._kept = kept
