"""Everything a request may need, in one place: who has accounts, the way to the cluster, what was sampled."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.admin import Connection
from kourou.console.attempts import Attempts
from kourou.console.audit import Audit
from kourou.console.config import ConsoleConfig
from kourou.console.ending import Ending
from kourou.console.login import Accounts
from kourou.console.receivers import Receivers
from kourou.console.samples import Sampler
from kourou.console.sessions import Sessions
from kourou.doors.clock import Clock


@dataclass(frozen=True)
class Desk:
    config: ConsoleConfig
    clock: Clock
    connection: Connection
    accounts: Accounts
    sessions: Sessions
    attempts: Attempts
    audit: Audit
    sampler: Sampler
    receivers: Receivers
    ending: Ending
