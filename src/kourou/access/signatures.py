"""The signature of a request: who sent it, and that nobody changed it on the way.

    HMAC-SHA1, by the secret key, of the values of all fields but `Signature` in the order of their names,
    and then the body

Written as base64 into the field `Signature`, next to `AccessKey` and, for temporary credentials,
`SecurityToken`, which are signed as all other fields are. Names are ordered by UTF-16 code units, as Java
orders them: upper case before lower case.

The form is the original's, with its weaknesses: neither names nor the request code are signed, and nothing
separates two values. `docs/security.md` says what follows from that.
"""

from __future__ import annotations

import hmac
from binascii import b2a_base64
from collections.abc import Mapping

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105 - the name of a field
SIGNATURE = "Signature"
SIGNED_AT = "SignedAt"
"""When our own client signed a request, in ms; the original's clients do not say."""
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
"""Clients up to 4.9.3 do not sign this field of QUERY_MESSAGE."""

ORDERS_MAX = 1_000

_orders: dict[tuple[str, ...], tuple[str, ...]] = {}


def signature(fields: Mapping[str, str], body: bytes, secret_key: str) -> str:
    """What `Signature` has to say for these fields and this body."""
    return _signature(fields, body, secret_key.encode()).decode()


def is_signed(fields: Mapping[str, str], body: bytes, secret_key: bytes) -> bool:
    """Whether `Signature` says so, found out in a time that tells nothing about the right one."""
    given = fields.get(SIGNATURE, "").encode(errors="surrogatepass")
    if hmac.compare_digest(_signature(fields, body, secret_key), given):
        return True
    if UNIQUE_KEY_QUERY not in fields:
        return False
    signed = {name: value for name, value in fields.items() if name != UNIQUE_KEY_QUERY}
    return hmac.compare_digest(_signature(signed, body, secret_key), given)


def _signature(fields: Mapping[str, str], body: bytes, secret_key: bytes) -> bytes:
    names = tuple(fields)
    order = _orders.get(names) or _order(names)
    content = "".join([fields[name] for name in order]).encode(errors="surrogatepass")
    return b2a_base64(hmac.digest(secret_key, content + body, "sha1"), newline=False)


def _order(names: tuple[str, ...]) -> tuple[str, ...]:
    """In which order values are signed. A client sends few sets of fields, and each of them very often."""
    if len(_orders) >= ORDERS_MAX:
        _orders.clear()
    order = tuple(sorted((name for name in names if name != SIGNATURE), key=_code_units))
    _orders[names] = order
    return order


def _code_units(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
