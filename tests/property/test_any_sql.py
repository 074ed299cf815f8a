"""SQL92 filters against the plainest evaluator there can be, and against garbage."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kourou.broker.sql92 import SqlError, compile_sql

NAMES = ("a", "b", "c")
VALUES = st.sampled_from(["1", "2", "-3", "2.5", "x", "true", "10", ""])
MESSAGES = st.dictionaries(st.sampled_from(NAMES), VALUES.filter(bool))


Message = dict[str, str]
Holds = Callable[[Message], bool | None]
Tree = tuple[str, Holds]


class Fails(Exception):
    """The original throws, and the message does not match."""


# A tree and its meaning: (text, function of the message's properties giving True, False or None).
def _number(text: str, like: str) -> float:
    try:
        return float(text) if "." in like else int(text)
    except ValueError:
        raise Fails from None


def _compared(name: str, sign: str, literal: str) -> Tree:
    def holds(message: Message) -> bool | None:
        value = message.get(name)
        if value is None:
            return None
        left, right = _number(value, literal), float(literal)
        return {"=": left == right, "<>": left != right, ">": left > right, "<=": left <= right}[sign]

    return f"{name} {sign} {literal}", holds


def _null(name: str, negated: bool) -> Tree:
    text = f"{name} IS {'NOT ' if negated else ''}NULL"
    return text, lambda message: (message.get(name) is None) is not negated


def _in(name: str, texts: list[str], negated: bool) -> Tree:
    quoted = ", ".join(f"'{text}'" for text in texts)

    def holds(message: Message) -> bool | None:
        return None if name not in message else (message[name] in texts) is not negated

    return f"{name} {'NOT ' if negated else ''}IN ({quoted})", holds


def _not(inner: Tree) -> Tree:
    text, holds = inner

    def negated(message: Message) -> bool | None:
        value = holds(message)
        return None if value is None else not value

    return f"NOT ({text})", negated


def _joined(left: Tree, word: str, right: Tree) -> Tree:
    decisive = word == "OR"

    def holds(message: Message) -> bool | None:
        for side in (left, right):
            if side[1](message) is decisive:
                return decisive
        return None if None in (left[1](message), right[1](message)) else not decisive

    return f"({left[0]}) {word} ({right[0]})", holds


LEAVES = st.one_of(
    st.builds(
        _compared,
        st.sampled_from(NAMES),
        st.sampled_from(["=", "<>", ">", "<="]),
        st.sampled_from(["1", "2", "10", "2.5"]),
    ),
    st.builds(_null, st.sampled_from(NAMES), st.booleans()),
    st.builds(_in, st.sampled_from(NAMES), st.lists(VALUES, min_size=1, max_size=7), st.booleans()),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(_not, inner), st.builds(_joined, inner, st.sampled_from(["AND", "OR"]), inner)
    ),
    max_leaves=10,
)


@settings(max_examples=500)
@given(TREES, MESSAGES)
def test_an_expression_means_what_a_plain_evaluator_says(tree: Tree, message: Message) -> None:
    text, holds = tree
    try:
        expected = holds(message) is True
    except Fails:
        expected = False
    try:
        matches = compile_sql(text)
    except SqlError as error:
        assume(not any(limit in str(error) for limit in ("more than 64", "deeper than 16", "at most")))
        raise
    assert matches(message.get) is expected, text


TOKENS = "a b 'x' 1 2.5 = <> > ( ) , AND OR NOT IN BETWEEN IS NULL TRUE CONTAINS - + -- /* ' . 1e $"
WORDS = st.sampled_from(TOKENS.split())


@settings(max_examples=500)
@given(st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=20).map(" ".join)), MESSAGES)
def test_any_text_is_an_expression_or_an_sql_error(text: str, message: Message) -> None:
    try:
        matches = compile_sql(text)
    except SqlError:
        return
    assert matches(message.get) in (True, False)
