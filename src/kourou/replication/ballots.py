"""What voters of a replica set say to each other, and what each of them keeps.

    Record      the outcome: in this term this member leads, and these hold all that was acknowledged
    Ballot      what one voter has on disk: the highest term it promised, the newest record it took
    Voter       the rules by which it answers; a witness is nothing more than this

    Ask ──▶ Vote         may I lead in this term?  (on trial first: would you, if I asked?)
    Propose ──▶ Taken    this is the record; repeated as a heartbeat, it renews the lease
    HandOver             the master leaves: you may ask at once

A voter takes no record of a term below the one it promised, and promises nobody anything for as long as the
lease lasts that it granted with the last record. So of two masters the older one has lost its lease before
the newer one can have a majority, and whatever the clocks do, no record of the older one is taken any more.

Every message carries the term it speaks of. Nothing here reads a clock or a socket: `now` is given.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, TypeAlias

import msgspec

from kourou.errors import ProtocolError

MEMBERS_MAX: Final = 5
NAME_CHARACTERS_MAX: Final = 255
TERM_MAX: Final = 1 << 62
LEASE_SECONDS_MAX: Final = 60.0


class Record(msgspec.Struct, frozen=True, array_like=True):
    """Who leads, and who may lead next. Of two, the one with the higher (term, version) counts."""

    term: int
    version: int
    master: str
    in_sync: frozenset[str]

    @property
    def rank(self) -> tuple[int, int]:
        return self.term, self.version


class Ballot(msgspec.Struct, frozen=True):
    """A voter's memory. It must be on disk before the answer that follows from it is sent."""

    promised: int = 0
    record: Record | None = None


class Position(msgspec.Struct, frozen=True, array_like=True, order=True):
    """How far a log goes: its last term, then its end in bytes."""

    term: int = 0
    end: int = 0


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """May I lead in `term`? On trial nothing is promised. `released`: the master of that term has let go."""

    term: int
    trial: bool
    position: Position
    released: int = -1
    lease: float = 1.0
    """What it will ask for as a master."""


class Vote(msgspec.Struct, frozen=True, tag="vote"):
    """Yes or no, and all that the candidate must know to decide whether it may lead."""

    term: int
    trial: bool
    granted: bool
    ballot: Ballot
    position: Position | None
    """None from a witness: it has no log."""
    free_in: float = 0.0
    """So many seconds are left of a lease this voter granted."""


class Propose(msgspec.Struct, frozen=True, tag="propose"):
    """The record of the master's term; `number` counts the master's rounds."""

    record: Record
    number: int
    lease: float = 1.0
    """For how many seconds nobody else is to be voted for."""
    ha_address: str = ""
    """Where the master's log is to be had."""

    @property
    def term(self) -> int:
        return self.record.term


class Taken(msgspec.Struct, frozen=True, tag="taken"):
    """Whether the record was taken; when not, `promised` says why."""

    term: int
    version: int
    number: int
    granted: bool
    promised: int
    doubtful: bool = False
    """This replica cannot vouch for its log: it must catch up before it counts as in sync."""


class HandOver(msgspec.Struct, frozen=True, tag="hand-over"):
    """The master of `term` has stopped; whoever gets this has all it had."""

    term: int


Message: TypeAlias = Ask | Vote | Propose | Taken | HandOver


class Envelope(msgspec.Struct, frozen=True):
    """A message on its way: of which replica set, and from whom."""

    replica_set: str
    sender: str
    message: Message
    proof: str = ""
    """That the sender knows the secret of the set, where it has one."""


_encoder = msgspec.json.Encoder(order="deterministic")  # a proof is made of the same bytes everywhere
_decoder = msgspec.json.Decoder(Envelope)


def encoded(envelope: Envelope) -> bytes:
    return _encoder.encode(envelope)


def signed(envelope: Envelope, secret: str) -> Envelope:
    """The same with its proof. An old message that comes again is harmless: it speaks of an old term."""
    return msgspec.structs.replace(envelope, proof=_proof(envelope, secret)) if secret else envelope


def is_signed(envelope: Envelope, secret: str) -> bool:
    return not secret or hmac.compare_digest(envelope.proof.encode(), _proof(envelope, secret).encode())


def _proof(envelope: Envelope, secret: str) -> str:
    said = _encoder.encode([envelope.replica_set, envelope.sender, envelope.message])
    return hmac.new(secret.encode(), said, hashlib.sha256).hexdigest()


def decoded(data: bytes) -> Envelope:
    """Raises ProtocolError on anything but a message that could have been sent."""
    try:
        envelope = _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not a message of a replica set: {error}") from None
    if not 0 <= envelope.message.term < TERM_MAX:
        raise ProtocolError(f"term {envelope.message.term} is beyond all terms")
    lease = getattr(envelope.message, "lease", 1.0)
    if not 0 < lease <= LEASE_SECONDS_MAX:
        raise ProtocolError(f"a lease of {lease} seconds is none; up to {LEASE_SECONDS_MAX:g} are granted")
    names = [envelope.replica_set, envelope.sender, *_names_in(envelope.message)]
    if any(not 0 < len(name) <= NAME_CHARACTERS_MAX for name in names):
        raise ProtocolError(f"a name of a replica set's message is empty or over {NAME_CHARACTERS_MAX} long")
    return envelope


def _names_in(message: Message) -> list[str]:
    record = None
    if isinstance(message, Propose):
        record = message.record
    elif isinstance(message, Vote):
        record = message.ballot.record
    if record is None:
        return []
    if len(record.in_sync) > MEMBERS_MAX:
        raise ProtocolError(f"{len(record.in_sync)} replicas in sync, of at most {MEMBERS_MAX}")
    return [record.master, *record.in_sync]


class Voter:
    """Answers candidates and masters. `ballot` must be on disk before an answer goes out."""

    def __init__(self, ballot: Ballot, lease_seconds: float, now: float) -> None:
        self.ballot = ballot
        self._lease_term = -1
        # What was granted before a crash is not remembered: wait for as long as it may have lasted.
        self.lease_until = now if ballot.record is None else now + lease_seconds

    def asked(self, now: float, ask: Ask, position: Position | None) -> Vote:
        """Whether the one who asks may lead; a promise is made only when it is not on trial."""
        granted = now >= self.lease_until or 0 <= ask.released == self._lease_term
        if not ask.trial:  # on trial the candidate does not know yet which term is high enough
            granted = granted and ask.term > self.ballot.promised
            if granted:
                self.ballot = Ballot(ask.term, self.ballot.record)
        free_in = max(0.0, self.lease_until - now)
        return Vote(ask.term, ask.trial, granted, self.ballot, position, free_in)

    def proposed(self, now: float, propose: Propose) -> Taken:
        """Take the record, unless a later term was promised or a newer record is known; grants the lease."""
        record, known = propose.record, self.ballot.record
        granted = record.term >= self.ballot.promised and (known is None or record.rank >= known.rank)
        if granted:
            if record != known or record.term != self.ballot.promised:
                self.ballot = Ballot(record.term, record)
            self._lease_term = record.term
            self.lease_until = max(self.lease_until, now + propose.lease)
        return Taken(record.term, record.version, propose.number, granted, self.ballot.promised)
