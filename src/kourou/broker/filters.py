"""Which messages a subscription wants, as far as a broker can tell.

A tag expression becomes the set of its tags' Java hashes, compared with what the consume queue holds for
each message. Hashes collide, so the consumer compares the tag itself; a broker only has to be right about
what it leaves out.
"""

from __future__ import annotations

from typing import Final

from kourou.errors import Refused
from kourou.protocol.codes import ResponseCode
from kourou.protocol.java_hash import tag_code
from kourou.protocol.names import printable

TAGS_MAX: Final = 128
EXPRESSION_CHARACTERS_MAX: Final = 32_768

TagCodes = frozenset[int] | None
"""The hashes that may match; None for every message."""


def is_tag_expression(expression_type: str | None) -> bool:
    """A missing or empty type means TAG, as in the original."""
    return not expression_type or expression_type == "TAG"


def tag_codes(expression: str | None) -> TagCodes:
    """What `"TagA || TagB"` wants; `*`, empty and absent want all."""
    if not expression or expression == "*":
        return None
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise _unusable(expression, f"is longer than {EXPRESSION_CHARACTERS_MAX} characters")
    tags = {tag for part in expression.split("||") if (tag := part.strip())}
    if not tags:
        raise _unusable(expression, "names no tag; use '*' for all, or 'TagA || TagB'")
    if len(tags) > TAGS_MAX:
        raise _unusable(expression, f"names {len(tags)} tags; at most {TAGS_MAX} are taken")
    return frozenset(map(tag_code, tags))


def _unusable(expression: str, why: str) -> Refused:
    return Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"tag expression '{printable(expression)}' {why}")
