"""SQL92 filters: `price > 100 AND (region = 'EU' OR vip IS NOT NULL)`, over a message's properties.

    or          and ( OR and )*
    and         equality ( AND equality )*
    equality    comparison ( = comparison | <> comparison | IS [NOT] NULL )*
    comparison  unary ( > >= < <= unary | [NOT] BETWEEN unary AND unary | [NOT] IN ('a', 'b')
                        | [NOT] CONTAINS | STARTSWITH | ENDSWITH 'text' )*
    unary       + unary | - unary | NOT unary | literal | property | ( or )

The grammar is RocketMQ's, and so is what comes out of it, with its corners:

  - NOT binds closer than a comparison: NOT a = 1 is (NOT a) = 1; write NOT (a = 1).
  - A property is a text, or null when the message has none of that name. Beside a number it is read as one,
    of the number's own kind (32 or 64 bit, or floating); where that fails the message does not match at all.
  - null beside a comparison gives null, which AND, OR and NOT carry on as SQL does; but null = null is true.
  - Texts are compared by = and <> only; under < and > both must read as numbers.
  - CONTAINS and its kin are false for null, also behind NOT.

One thing is stricter: what follows a complete expression is an error here, where the original ignores it.
Expressions come from strangers: no recursion beyond `DEPTH_MAX`, no more than `NODES_MAX` parts, nothing that
looks at a character twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

TEXT_BYTES_MAX: Final = 1024
NODES_MAX: Final = 64
DEPTH_MAX: Final = 16

Lookup = Callable[[str], str | None]
"""Gives a property's value; None when there is none."""


class Long(int):
    """A whole number that does not fit into 32 bits, or is compared with one."""


Value = str | int | float | bool | None
Evaluate = Callable[[Lookup], Value]


class SqlError(ValueError):
    """An expression that cannot be understood: where, and why."""


class Incomparable(ValueError):
    """Two values that cannot be compared: the message does not match."""


def compile_sql(text: str) -> Callable[[Lookup], bool]:
    """The expression as a function that says whether a message matches. Raises SqlError."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > TEXT_BYTES_MAX:
        raise SqlError(f"the expression has {size} bytes; at most {TEXT_BYTES_MAX} are taken")
    return partial(_matches, _Parser(text).parse())


def property_names(text: str) -> tuple[str, ...]:
    """The properties that an expression asks for, each once. Raises SqlError."""
    return tuple(dict.fromkeys(token.text for token in _tokens(text) if token.kind == "name"))


def _matches(evaluate: Evaluate, lookup: Lookup) -> bool:
    try:
        return evaluate(lookup) is True
    except Incomparable:
        return False


# ---------------------------------------------------------------------------------------------- tokens


class _Token(NamedTuple):
    kind: str
    """`name`, `text`, `whole`, `float`, `end`; a keyword or a sign is its own kind."""
    text: str
    at: int


_KEYWORDS: Final = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)
_SIGNS: Final = ("<>", ">=", "<=", "=", ">", "<", "(", ")", ",", "+", "-")
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$")
_DIGITS: Final = frozenset("0123456789")
_BLANKS: Final = frozenset(" \t\n\r\f")


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while (at := _skip_blanks(text, at)) < len(text):
        token = _token(text, at)
        tokens.append(token)
        at += len(token.text)
    tokens.append(_Token("end", "", len(text)))
    return tokens


def _skip_blanks(text: str, at: int) -> int:
    """Past white space and comments."""
    while at < len(text):
        if text[at] in _BLANKS:
            at += 1
        elif text.startswith("--", at):
            ends = [end for mark in "\r\n" if (end := text.find(mark, at)) >= 0]
            at = min(ends, default=len(text))
        elif text.startswith("/*", at):
            end = text.find("*/", at + 2)
            if end < 0:
                raise _fault(at, "a comment that does not end")
            at = end + 2
        else:
            break
    return at


def _token(text: str, at: int) -> _Token:
    first = text[at]
    if first in _LETTERS:
        end = _span(text, at, _LETTERS | _DIGITS)
        word = text[at:end]
        return _Token(word.upper() if word.upper() in _KEYWORDS else "name", word, at)
    if first in _DIGITS or (first == "." and text[at + 1 : at + 2] in _DIGITS):
        return _number(text, at)
    if first == "'":
        return _quoted(text, at)
    for sign in _SIGNS:
        if text.startswith(sign, at):
            return _Token(sign, sign, at)
    raise _fault(at, f"{first!r} means nothing here")


def _span(text: str, at: int, characters: frozenset[str]) -> int:
    while at < len(text) and text[at] in characters:
        at += 1
    return at


def _number(text: str, at: int) -> _Token:
    whole_end = end = _span(text, at, _DIGITS)
    if text.startswith(".", end):
        end = _span(text, end + 1, _DIGITS)
    if text[end : end + 1] in ("e", "E"):
        sign = text[end + 1 : end + 2] in ("+", "-")
        digits = _span(text, end + 1 + sign, _DIGITS)
        if digits > end + 1 + sign:
            end = digits
    if end > whole_end:
        return _Token("float", text[at:end], at)
    if text[at] == "0":
        return _Token("whole", "0", at)
    if text[end : end + 1] in ("l", "L"):
        end += 1
    return _Token("whole", text[at:end], at)


def _quoted(text: str, at: int) -> _Token:
    end = at + 1
    while (end := text.find("'", end)) >= 0:
        if not text.startswith("''", end):
            return _Token("text", text[at : end + 1], at)
        end += 2
    raise _fault(at, "a text that does not end; a quote inside one is written twice")


def _fault(at: int, why: str) -> SqlError:
    return SqlError(f"at character {at + 1}: {why}")


# ---------------------------------------------------------------------------------------------- parsing


class _Node(NamedTuple):
    evaluate: Evaluate
    at: int
    kind: str
    """`constant` (true, false and null among them), `property`, `condition`, or `negative`."""
    constant: Value = None

    @property
    def is_condition(self) -> bool:
        return self.kind == "condition" or (
            self.kind == "constant" and (self.constant is None or isinstance(self.constant, bool))
        )


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = 0
        self._nodes = 0
        self._depth = 0

    def parse(self) -> Evaluate:
        if self._tokens[0].kind == "end":
            raise _fault(0, "there is no expression")
        condition = self._condition(self._or())
        rest = self._peek()
        if rest.kind != "end":
            raise _fault(rest.at, f"{rest.text!r} after the end of the expression")
        return condition.evaluate

    # Tokens.

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def _take(self, *kinds: str) -> _Token | None:
        """The next token, if it is one of these."""
        token = self._peek()
        if token.kind not in kinds:
            return None
        self._next += 1
        return token

    def _need(self, kind: str, what: str) -> _Token:
        token = self._take(kind)
        if token is None:
            found = self._peek()
            raise _fault(
                found.at, f"{what} is missing before {found.text!r}" if found.text else f"{what} is missing"
            )
        return token

    def _node(self, evaluate: Evaluate, at: int, kind: str = "condition", constant: Value = None) -> _Node:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise _fault(at, f"more than {NODES_MAX} parts")
        return _Node(evaluate, at, kind, constant)

    # Levels, from the loosest to the closest binding.

    def _or(self) -> _Node:
        left = self._and()
        while self._take("OR"):
            right = self._and()
            left = self._logic(_either, left, right)
        return left

    def _and(self) -> _Node:
        left = self._equality()
        while self._take("AND"):
            right = self._equality()
            left = self._logic(_both, left, right)
        return left

    def _logic(
        self, combine: Callable[[Evaluate, Evaluate, Lookup], Value], left: _Node, right: _Node
    ) -> _Node:
        first, second = self._condition(left), self._condition(right)
        return self._node(partial(combine, first.evaluate, second.evaluate), left.at)

    def _equality(self) -> _Node:
        left = self._comparison()
        while token := self._take("=", "<>", "IS"):
            if token.kind == "IS":
                is_not = self._take("NOT") is not None
                self._need("NULL", "NULL or NOT NULL")
                node = self._node(partial(_is_equal, left.evaluate, _nothing), left.at)
            else:
                is_not = token.kind == "<>"
                right = self._comparison()
                _check_equality(left, right)
                node = self._node(partial(_is_equal, left.evaluate, right.evaluate), left.at)
            left = node._replace(evaluate=partial(_not, node.evaluate)) if is_not else node
        return left

    def _comparison(self) -> _Node:
        left = self._unary()
        while True:
            if token := self._take(">", ">=", "<", "<="):
                left = self._ordered(token.kind, left, self._unary())
                continue
            is_not = self._peek().kind == "NOT" and self._peek(1).kind in _AFTER_NOT
            token = self._peek(1 if is_not else 0)
            if token.kind not in _AFTER_NOT:
                return left
            self._next += 2 if is_not else 1
            if token.kind == "BETWEEN":
                left = self._between(left, is_not)
            elif token.kind == "IN":
                left = self._in(left, is_not)
            else:
                searched = _unquoted(self._need("text", "a text in single quotes"))
                test = partial(_has_part, _PART_TESTS[token.kind], searched, is_not, left.evaluate)
                left = self._node(test, left.at)

    def _ordered(self, sign: str, left: _Node, right: _Node) -> _Node:
        for side in (left, right):
            if side.is_condition or (side.kind == "constant" and isinstance(side.constant, str)):
                raise _fault(side.at, f"only numbers and properties can be compared by {sign}")
        return self._node(partial(_is_ordered, _ORDERS[sign], left.evaluate, right.evaluate), left.at)

    def _between(self, value: _Node, is_not: bool) -> _Node:
        low = self._unary()
        self._need("AND", "AND of BETWEEN")
        high = self._unary()
        if is_not:
            below, above = self._ordered("<", value, low), self._ordered(">", value, high)
            return self._node(partial(_either, below.evaluate, above.evaluate), value.at)
        from_low, to_high = self._ordered(">=", value, low), self._ordered("<=", value, high)
        if low.kind == high.kind == "constant" and _compare(high.constant, low.constant) < 0:
            raise _fault(
                low.at, f"BETWEEN {low.constant} AND {high.constant}: the first must not be the greater"
            )
        return self._node(partial(_both, from_low.evaluate, to_high.evaluate), value.at)

    def _in(self, left: _Node, is_not: bool) -> _Node:
        if left.kind != "property":
            raise _fault(left.at, "only a property can stand before IN")
        self._need("(", "'('")
        texts = [_unquoted(self._need("text", "a text in single quotes"))]
        while self._take(","):
            texts.append(_unquoted(self._need("text", "a text in single quotes")))
        self._need(")", "')'")
        return self._node(partial(_is_in, frozenset(texts), is_not, left.evaluate), left.at)

    def _unary(self) -> _Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise _fault(self._peek().at, f"nested deeper than {DEPTH_MAX}")
        node = self._unary_inside()
        self._depth -= 1
        return node

    def _unary_inside(self) -> _Node:
        if self._take("+"):
            return self._unary()
        if token := self._take("-"):
            return self._node(partial(_negative, self._unary().evaluate), token.at, "negative")
        if token := self._take("NOT"):
            return self._node(partial(_not, self._condition(self._unary()).evaluate), token.at)
        if self._take("("):
            inside = self._or()
            self._need(")", "')'")
            return inside
        return self._primary()

    def _primary(self) -> _Node:
        token = self._take("name", "text", "whole", "float", "TRUE", "FALSE", "NULL")
        if token is None:
            found = self._peek()
            raise _fault(
                found.at, f"a value is missing before {found.text!r}" if found.text else "a value is missing"
            )
        if token.kind == "name":
            return self._node(partial(_property, token.text), token.at, "property")
        value = _constant(token)
        return self._node(lambda _: value, token.at, "constant", value)

    def _condition(self, node: _Node) -> _Node:
        """What can be true or false; a property is a text, and so never true."""
        if node.kind == "property":
            return node._replace(evaluate=partial(_as_condition, node.evaluate), kind="condition")
        if not node.is_condition:
            raise _fault(node.at, "this is a value, and a condition is wanted")
        return node


_AFTER_NOT: Final = frozenset(("BETWEEN", "IN", "CONTAINS", "STARTSWITH", "ENDSWITH"))


def _check_equality(left: _Node, right: _Node) -> None:
    for side in (left, right):
        if side.kind == "constant" and side.constant is None:
            raise _fault(side.at, "NULL cannot be compared: write IS NULL or IS NOT NULL")
    if left.kind == right.kind == "constant" and left.is_condition and not right.is_condition:
        raise _fault(right.at, "TRUE and FALSE cannot be compared with this")


def _unquoted(token: _Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _constant(token: _Token) -> Value:
    if token.kind == "text":
        return _unquoted(token)
    if token.kind == "whole":
        number = int(token.text.rstrip("lL"))
        if number > _LONG_MAX:
            raise _fault(token.at, f"{token.text} is greater than {_LONG_MAX}")
        return number if number <= _INT_MAX else Long(number)
    if token.kind == "float":
        fraction = float(token.text)
        if fraction == float("inf") or fraction == 0.0:  # 0.0 too: the original refuses it
            raise _fault(token.at, f"{token.text} is not between 4.9E-324 and 1.8E308; a zero is written 0")
        return fraction
    return {"TRUE": True, "FALSE": False, "NULL": None}[token.kind]


# ------------------------------------------------------------------------------------------- evaluation

_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_ORDERS: Final[dict[str, Callable[[int], bool]]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}
_PART_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def _nothing(lookup: Lookup) -> Value:
    return None


def _property(name: str, lookup: Lookup) -> Value:
    return lookup(name)


def _as_condition(value: Evaluate, lookup: Lookup) -> Value:
    return None if value(lookup) is None else False


def _negative(value: Evaluate, lookup: Lookup) -> Value:
    number = value(lookup)
    if isinstance(number, str | bool | None):
        return None
    return type(number)(-number)


def _not(condition: Evaluate, lookup: Lookup) -> Value:
    value = condition(lookup)
    return None if value is None else not value


def _both(left: Evaluate, right: Evaluate, lookup: Lookup) -> Value:
    first = left(lookup)
    if first is False:
        return False
    second = right(lookup)
    if second is False:
        return False
    return None if first is None or second is None else True


def _either(left: Evaluate, right: Evaluate, lookup: Lookup) -> Value:
    first = left(lookup)
    if first is True:
        return True
    second = right(lookup)
    if second is True:
        return True
    return None if first is None or second is None else False


def _is_in(texts: frozenset[str], is_not: bool, value: Evaluate, lookup: Lookup) -> Value:
    text = value(lookup)
    return None if text is None else (text in texts) is not is_not


def _has_part(
    test: Callable[[str, str], bool], searched: str, is_not: bool, value: Evaluate, lookup: Lookup
) -> Value:
    text = value(lookup)
    if not searched or not isinstance(text, str):
        return False
    return test(text, searched) is not is_not


def _is_equal(left: Evaluate, right: Evaluate, lookup: Lookup) -> Value:
    first, second = left(lookup), right(lookup)
    if first is None:
        return True if second is None else None
    return second is not None and _compare(first, second) == 0


def _is_ordered(holds: Callable[[int], bool], left: Evaluate, right: Evaluate, lookup: Lookup) -> Value:
    first = left(lookup)
    if first is None:
        return None
    second = right(lookup)
    if second is None:
        return None
    if isinstance(first, str) and isinstance(second, str):
        first, second = _float(first), _float(second)
    return holds(_compare(first, second))


def _compare(left: Value, right: Value) -> int:
    """Below, at or above 0, as the original compares values of two kinds; what it cannot compare is -1."""
    if isinstance(left, str):
        if isinstance(right, str):
            return (left > right) - (left < right)
        left = left.lower() == "true" if isinstance(right, bool) else _number_like(right, left)
    elif isinstance(right, str):
        if isinstance(left, bool):
            raise Incomparable("a text is not compared with TRUE or FALSE on its left")
        right = _number_like(left, right)
    elif isinstance(left, bool) is not isinstance(right, bool):
        return -1
    if isinstance(left, float) or isinstance(right, float):
        return _compare_floats(float(left or 0), float(right or 0))
    assert left is not None
    assert right is not None
    return (left > right) - (left < right)


def _compare_floats(left: float, right: float) -> int:
    """Java's order: not-a-number is equal to itself and above all others, -0.0 below 0.0."""
    return (_float_key(left) > _float_key(right)) - (_float_key(left) < _float_key(right))


def _float_key(value: float) -> tuple[bool, float, bool]:
    if value != value:
        return True, 0.0, True
    return False, value, str(value) != "-0.0"


def _number_like(number: Value, text: str) -> int | float:
    """A property as a number of the kind it is compared with."""
    if isinstance(number, float):
        return _float(text)
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or len(digits) > _DIGITS_MAX:
        raise Incomparable(f"{text[:40]!r} is no number")
    value = int(text)
    most = _LONG_MAX if isinstance(number, Long) else _INT_MAX
    if not -most - 1 <= value <= most:
        raise Incomparable(f"{value} does not fit")
    return value


_DIGITS_MAX: Final = 4000
_FLOAT_CHARACTERS: Final = frozenset("0123456789+-.eE")
_FLOAT_NAMES: Final = {
    sign + name: float(sign + value)
    for sign in ("", "+", "-")
    for name, value in (("NaN", "nan"), ("Infinity", "inf"))
}


def _float(text: str) -> float:
    """As Java reads one: also with a letter f or d behind it, `NaN`, `Infinity` and `0x1.8p1`."""
    text = text.strip(_TRIMMED)
    if text in _FLOAT_NAMES:
        return _FLOAT_NAMES[text]
    digits = text[:-1] if text[-1:] in ("f", "F", "d", "D") else text
    try:
        if "x" in digits[:3] or "X" in digits[:3]:
            if "p" in digits or "P" in digits:
                return float.fromhex(digits)
        elif _FLOAT_CHARACTERS.issuperset(digits):
            return float(digits)
    except (ValueError, OverflowError):
        pass
    raise Incomparable(f"{text[:40]!r} is no number")


_TRIMMED: Final = "".join(map(chr, range(0x21)))
