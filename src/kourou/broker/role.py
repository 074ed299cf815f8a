"""Master or slave: what this broker is right now, and in which term of its replica set.

    config/term.json    the highest term this broker has been in, what it was in it, and what its master was

A term begins when another broker becomes the master. Whoever knows of a higher one refuses the master of a
lower one; name servers do, too, since the term is the state version of what a master registers.
"""

from __future__ import annotations

import msgspec

from kourou.broker.state_file import StateFile
from kourou.doors.failpoints import reached
from kourou.replication.config import ASYNC_MASTER, SLAVE, SYNC_MASTER

__all__ = ["ASYNC_MASTER", "SLAVE", "SYNC_MASTER", "BrokerRole"]

FIRST_SLAVE_ID = 1


class KeptTerm(msgspec.Struct, frozen=True, rename="camel"):
    """The content of `term.json`."""

    term: int = 0
    role: str = ""
    master_role: str = ""
    """Of a slave: what its master was."""


class BrokerRole:
    """What this broker is; changes at run time."""

    def __init__(
        self, configured: str, configured_id: int, file: StateFile, *, is_elected: bool = False
    ) -> None:
        """`is_elected`: it leads only when its replica set says so, and begins as nobody's slave."""
        self._configured = configured
        self._file = file
        self.slave_id = configured_id or FIRST_SLAVE_ID
        """Its brokerId when it is no master."""
        self.name = SLAVE if is_elected else configured
        self._masters = ""  # what the master was that this broker followed last
        self.term = 0

    def load(self) -> None:
        """Read the term. A broker that was a slave, and is started as a master, begins the next one."""
        kept = self._file.load(KeptTerm) or KeptTerm()
        self.term = kept.term
        self._masters = kept.master_role
        if kept.role == SLAVE and self.is_master:
            self.change(self.name, kept.term + 1)
        elif kept.role != self.name and (kept.role or not self.is_master):
            self._save()

    @property
    def is_master(self) -> bool:
        return self.name != SLAVE

    @property
    def is_sync(self) -> bool:
        return self.name == SYNC_MASTER

    @property
    def broker_id(self) -> int:
        """As name servers know it: a master's is 0."""
        return 0 if self.is_master else self.slave_id

    @property
    def master_role(self) -> str:
        """Which kind of master it is when it is one: as configured; a slave, as the one it followed."""
        if self._configured != SLAVE:
            return self._configured
        return self._masters or ASYNC_MASTER

    def heard_of(self, masters: str) -> None:
        """The master that is followed is of this kind; on disk before it returns. Raises StoreError."""
        if masters in (ASYNC_MASTER, SYNC_MASTER) and masters != self._masters:
            self._masters = masters
            self._save()

    def change(self, name: str, term: int) -> None:
        """Be something else, or the same in another term; on disk before it returns. Raises StoreError."""
        assert term >= self.term, f"term {term} after {self.term}"
        if (name, term) != (self.name, self.term):
            is_promoted = name != SLAVE and term > self.term
            if is_promoted:
                reached("before-promote-epoch-write")
            self.name, self.term = name, term
            self._save()
            if is_promoted:
                reached("after-promote-epoch-write")

    def adopt(self, term: int) -> None:
        """A newer term has begun, and somebody else leads in it."""
        self.change(self.name, term)

    def _save(self) -> None:
        self._file.save(KeptTerm(self.term, self.name, self._masters))
