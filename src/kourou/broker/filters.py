"""Which messages a subscription wants, as far as a broker can tell.

A tag expression becomes the set of its tags' Java hashes, compared with what the consume queue holds for
each message. Hashes collide, so the consumer compares the tag itself; a broker only has to be right about
what it leaves out. An SQL92 expression is compiled once and asked about each message's properties, of which
`TAGS` and `KEYS` are two; nobody compares again, so it must be right about both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, cast

from kourou.broker import sql92
from kourou.errors import Refused
from kourou.protocol.codes import ResponseCode
from kourou.protocol.java_hash import tag_code
from kourou.protocol.names import printable
from kourou.protocol.record import Values, values_of_each
from kourou.store.reading import Accepts

TAGS_MAX: Final = 128
EXPRESSION_CHARACTERS_MAX: Final = 32_768
REMEMBERED_CHARACTERS_MAX: Final = 2048
"""More than any SQL92 expression that is understood."""
TAG: Final = "TAG"
SQL92: Final = "SQL92"
KNOWN_MAX: Final = 256
KNOWN_BYTES_MAX: Final = 256
"""So many outcomes of an SQL92 expression are kept, for values of so many bytes together."""

TagCodes = frozenset[int] | None
"""The hashes that may match; None for every message."""


class Filter:
    """What a subscription wants: to be given to `Store.read`."""

    __slots__ = ("accepts", "codes")

    def __init__(self, codes: TagCodes = None, accepts: Accepts | None = None) -> None:
        self.codes = codes
        self.accepts = accepts
        """Says of whole records which are wanted; None where the tag says it all."""

    def matches(self, code: int, record: bytes) -> bool:
        """Whether a message is wanted, by the tag code of its consume queue entry and by its record."""
        if self.codes is not None and code not in self.codes:
            return False
        return self.accepts is None or self.accepts((record,))[0]


EVERYTHING: Final = Filter()


def make_filter(expression_type: str | None, expression: str | None) -> Filter:
    """The filter of a subscription. Raises Refused when it is of no known kind, or cannot be understood."""
    if len(expression or "") + len(expression_type or "") > REMEMBERED_CHARACTERS_MAX:
        return _made(expression_type, expression)
    return _remembered(expression_type, expression)


@lru_cache(maxsize=256)
def _remembered(expression_type: str | None, expression: str | None) -> Filter:
    """Understood once, also for a reader who sends its expression with each pull."""
    return _made(expression_type, expression)


def _made(expression_type: str | None, expression: str | None) -> Filter:
    if is_tag_expression(expression_type):
        return Filter(tag_codes(expression))
    if expression_type != SQL92:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"filters of type '{printable(expression_type or '')}' are not known: TAG and SQL92 are",
        )
    text = expression or ""
    try:
        return Filter(accepts=_SqlFilter(text))
    except sql92.SqlError as error:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"SQL92 expression '{printable(text)}', {error}"
        ) from None


class _SqlFilter:
    """Says of records whether an SQL92 expression holds.

    The values of the properties it asks for decide, and most messages have one of a few: what came out for
    these is kept. 1 us a message, where it takes 3.6 one by one and without, and 0.4 by `kourou.native`;
    bench: pull, SQL92.
    """

    __slots__ = ("_known", "_matches", "_names")

    def __init__(self, text: str) -> None:
        self._matches = sql92.compile_sql(text)
        self._names = tuple(name.encode() for name in sql92.property_names(text))
        self._known: dict[Values | None, bool] = {None: False}  # damaged: nobody can say, nobody is served it

    def __call__(self, many: Sequence[bytes | memoryview]) -> list[bool]:
        rows = values_of_each(many, self._names)
        known = list(map(self._known.get, rows))
        if None not in known:
            return cast(list[bool], known)
        return [
            self._matches_values(row) if each is None else each for row, each in zip(rows, known, strict=True)
        ]

    def _matches_values(self, values: Values | None) -> bool:
        matches = self._known.get(values)
        if matches is not None or values is None:
            return bool(matches)
        texts = {
            name.decode(): value.decode("utf-8", "replace")
            for name, value in zip(self._names, values, strict=True)
            if value is not None
        }
        matches = self._matches(texts.get)
        if sum(len(value) for value in values if value is not None) <= KNOWN_BYTES_MAX:
            if len(self._known) >= KNOWN_MAX:
                self._known = {None: False}
            self._known[values] = matches
        return matches


def is_tag_expression(expression_type: str | None) -> bool:
    """A missing or empty type means TAG, as in the original."""
    return not expression_type or expression_type == TAG


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
