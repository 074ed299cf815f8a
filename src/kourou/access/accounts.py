"""Who there is: accounts with their secrets and rights, and the addresses that are not asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kourou.access.addresses import Addresses
from kourou.access.rules import Policy

NOWHERE: Final = Addresses(())
NO_RIGHTS: Final = Policy(())


@dataclass(frozen=True, kw_only=True)
class Account:
    """Somebody who signs requests. `is_super`: may do everything.

    From an address in `white` a request that names the account needs no signature, as in 4.x.
    """

    name: str
    secret: bytes = field(repr=False)
    is_super: bool = False
    is_enabled: bool = True
    white: Addresses = NOWHERE
    policy: Policy = NO_RIGHTS
    origin: str = ""


@dataclass(frozen=True)
class Accounts:
    """All accounts at one moment; a change makes another one of these."""

    by_name: Mapping[str, Account] = field(default_factory=dict)
    white: Addresses = NOWHERE
    """From here everything is allowed, and nothing need be signed."""

    def get(self, name: str) -> Account | None:
        return self.by_name.get(name)


def merged(parts: Iterable[Accounts]) -> Accounts:
    """Several sources as one; of two accounts with one name the later counts."""
    by_name: dict[str, Account] = {}
    white: list[str] = []
    for part in parts:
        by_name.update(part.by_name)
        white += part.white.patterns
    return Accounts(by_name, Addresses(white))
