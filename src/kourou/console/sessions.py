"""Who is logged in. Kept in memory: a restart ends every session, and nothing on disk can be stolen.

A session is made at login, under a new name each time, and found by what the browser's cookie says. It ends
by itself after a while without a request, at latest after half a day; and at once when its owner logs out,
changes the password, or is no more.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from dataclasses import dataclass, field

from kourou.console.login import Account, Accounts
from kourou.doors.chance import Chance
from kourou.doors.clock import Clock

IDLE_SECONDS_MAX = 60 * 60.0
SECONDS_MAX = 12 * 60 * 60.0
SESSIONS_MAX = 1000


@dataclass
class Session:
    user: str
    csrf: str
    """Every form carries it, and a change without it is refused."""
    began: float
    seen: float
    proof: str
    """The password's hash it began with: when that changes, the session is over."""
    notices: list[tuple[str, str]] = field(default_factory=list)
    """(kind, text): told on the next page, once."""


class Sessions:
    """Any thread may ask."""

    def __init__(self, accounts: Accounts, *, clock: Clock, chance: Chance) -> None:
        self._accounts = accounts
        self._clock = clock
        self._chance = chance
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}

    def begin(self, account: Account) -> tuple[str, Session]:
        """A new session, and what the cookie shall say."""
        cookie = self._chance.secret_bytes(32).hex()
        now = self._clock.monotonic()
        session = Session(account.name, self._chance.secret_bytes(32).hex(), now, now, account.password)
        with self._lock:
            self._forget_old(now)
            self._sessions[_key(cookie)] = session
        return cookie, session

    def find(self, cookie: str) -> tuple[Session, Account] | None:
        """The session of this cookie and whose it is, when it still holds."""
        key, now = _key(cookie), self._clock.monotonic()
        with self._lock:
            session = self._sessions.get(key)
            if session is None:
                return None
            account = self._accounts.get(session.user)
            if account is None or account.password != session.proof or _is_over(session, now):
                del self._sessions[key]
                return None
            session.seen = now
        return session, account

    def end(self, cookie: str) -> None:
        with self._lock:
            self._sessions.pop(_key(cookie), None)

    def end_all_of(self, user: str) -> None:
        with self._lock:
            self._sessions = {key: each for key, each in self._sessions.items() if each.user != user}

    def _forget_old(self, now: float) -> None:
        kept = {key: each for key, each in self._sessions.items() if not _is_over(each, now)}
        if len(kept) >= SESSIONS_MAX:
            del kept[min(kept, key=lambda key: kept[key].seen)]
        self._sessions = kept


def is_token_of(session: Session, given: str) -> bool:
    """Whether a form belongs to this login."""
    return hmac.compare_digest(session.csrf.encode(), given.encode())


def _is_over(session: Session, now: float) -> bool:
    return now - session.seen > IDLE_SECONDS_MAX or now - session.began > SECONDS_MAX


def _key(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()  # looking it up takes the same time for a near miss
