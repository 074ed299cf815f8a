"""The signature of a request: who sent it, and that nobody changed it on the way.

    HMAC-SHA1, by the secret key, of the values of all fields but `Signature` in the order of their names,
    and then the body

Written as base64 into the field `Signature`, next to `AccessKey` and, for temporary credentials,
`SecurityToken`, which are signed as all other fields are. Names are ordered by UTF-16 code units, as Java
orders them: upper case before lower case.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105 - the name of a field
SIGNATURE = "Signature"


def signature(fields: Mapping[str, str], body: bytes, secret_key: str) -> str:
    """What `Signature` has to say for these fields and this body."""
    digest = hmac.new(secret_key.encode(), digestmod="sha1")
    for name in sorted(fields, key=_code_units):
        if name != SIGNATURE:
            digest.update(fields[name].encode())
    digest.update(body)
    return b64encode(digest.digest()).decode()


def _code_units(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
