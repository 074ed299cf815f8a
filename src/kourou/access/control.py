"""May this request be served? Who sent it, and whether they may do what it asks for.

    from a white-listed address                              served, nobody is asked anything
    names an account, from an address of its white list      served
    signed by an enabled account                             its rights decide
    names nobody, over TLS with a client certificate         the account called as the certificate is
    anything else                                            refused

A refusal of the first question is the same whoever was named, and takes as long: it does not tell who exists.
What was decided once is kept until the accounts change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kourou.access.accounts import Account, Accounts
from kourou.access.needs import Needs, needs_of
from kourou.access.replay import ReplayWindow
from kourou.access.rules import ADMIN, CHANGE, LOOK, PUB, SUB, Need
from kourou.access.signatures import ACCESS_KEY, SIGNATURE, is_signed
from kourou.errors import Denied
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.names import TRACE_TOPIC, printable

DECISIONS_MAX: Final = 10_000
NOBODYS_SECRET: Final = b"\0" * 32

UNSIGNED: Final = (
    "No permission: requests to this server are signed; give the client an access key and a secret key"
)
NOT_KNOWN: Final = "No permission: unknown access key or wrong signature"


class Unauthenticated(Denied):
    """Nobody we know sent this; whoever keeps trying is made to wait."""


@dataclass(frozen=True)
class Sender:
    """Where a request comes from: the address of its socket, and whom a verified client certificate names."""

    address: str
    certificate: str = ""


class AccessControl:
    """The decisions of one server."""

    def __init__(
        self,
        accounts: Accounts,
        *,
        authorise: bool = True,
        unauthenticated_codes: Iterable[int] = (),
        unauthorised_codes: Iterable[int] = (),
        is_certificate_enough: bool = False,
        replay: ReplayWindow | None = None,
    ) -> None:
        self._accounts = accounts
        self._authorises = authorise
        self._unauthenticated_codes = frozenset(unauthenticated_codes)
        self._unauthorised_codes = frozenset(unauthorised_codes)
        self._is_certificate_enough = is_certificate_enough
        self._replay = replay
        self._decisions: dict[tuple[str, Need, str], bool] = {}

    @property
    def accounts(self) -> Accounts:
        return self._accounts

    def use(self, accounts: Accounts) -> None:
        """These count from now on."""
        self._accounts = accounts
        self._decisions.clear()

    def check(self, request: Command, sender: Sender) -> None:
        """Raises Denied when it is not to be served, ProtocolError when its body cannot be read."""
        if request.code in self._unauthenticated_codes:
            return
        account = self.authenticated(request.fields, request.body, sender)
        if account is None:
            return
        is_free = account.is_super or not self._authorises or request.code in self._unauthorised_codes
        if is_free and self._replay is None:
            return
        needs = needs_of(request)
        if not is_free:
            self.authorise(account, needs, sender)
        self.refuse_replay(request.fields, needs, sender)

    @property
    def refuses_replays(self) -> bool:
        return self._replay is not None

    def refuse_replay(self, fields: Mapping[str, str], needs: Needs, sender: Sender) -> None:
        """Raises Denied when this request was here before; nothing is looked at unless that was asked for."""
        if self._replay is None:
            return
        actions = 0
        for need in needs:
            actions |= need.actions
        if actions & (PUB | CHANGE | ADMIN) and not actions & (LOOK | SUB):
            self._replay.check(fields, sender.address, is_change=not actions & PUB)

    def require(self, request: Command, sender: Sender, need: Need) -> None:
        """The same for a need that shows only while the request is served. Raises Denied."""
        account = self.authenticated(request.fields, request.body, sender)
        if account is not None:
            self.authorise(account, (need,), sender)

    def authenticated(self, fields: Mapping[str, str], body: bytes, sender: Sender) -> Account | None:
        """Whose request it is; None for one that needs no account. Raises Unauthenticated."""
        accounts = self._accounts
        if sender.address in accounts.white:
            return None
        name = fields.get(ACCESS_KEY)
        if not name:
            account = self._by_certificate(sender)
            if account is None:
                raise Unauthenticated(ResponseCode.NO_PERMISSION, UNSIGNED)
            return account
        account = accounts.get(name)
        if account is not None and sender.address in account.white:
            return None
        secret = NOBODYS_SECRET if account is None else account.secret
        is_right = is_signed(fields, body, secret)
        if account is None or not is_right or not account.is_enabled or SIGNATURE not in fields:
            raise Unauthenticated(ResponseCode.NO_PERMISSION, NOT_KNOWN)
        return account

    def authorise(self, account: Account, needs: Needs, sender: Sender) -> None:
        """Raises Denied when one of the needs is not met."""
        if account.is_super or not self._authorises:
            return
        decisions = self._decisions
        for need in needs:
            key = (account.name, need, sender.address)
            is_allowed = decisions.get(key)
            if is_allowed is None:
                is_allowed = self._decide(account, need, sender.address)
                if len(decisions) >= DECISIONS_MAX:
                    decisions.clear()
                decisions[key] = is_allowed
            if not is_allowed:
                raise Denied(ResponseCode.NO_PERMISSION, _refusal(account, need, sender))

    def _decide(self, account: Account, need: Need, address: str) -> bool:
        if need.kind == "Topic" and need.name == TRACE_TOPIC and need.actions & PUB:
            return True  # every client may leave its traces
        return account.policy.allows(need, address)

    def _by_certificate(self, sender: Sender) -> Account | None:
        if not self._is_certificate_enough or not sender.certificate:
            return None
        account = self._accounts.get(sender.certificate)
        return account if account is not None and account.is_enabled else None


def _refusal(account: Account, need: Need, sender: Sender) -> str:
    by = f" as group {printable(need.group)}" if need.group else ""
    return (
        f"No permission: {printable(account.name)} at {sender.address} may not do this with "
        f"{printable(str(need), 160)}{by}"
    )
