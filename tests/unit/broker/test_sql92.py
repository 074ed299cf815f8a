"""SQL92 filters: the grammar, what null does, and what is refused."""

from __future__ import annotations

import pytest

from kourou.broker.sql92 import SqlError, compile_sql

PROPERTIES = {
    "a": "5",
    "big": "5000000000",
    "price": "9.50",
    "word": "it's",
    "city": "Zürich",
    "yes": "True",
    "TAGS": "TagA",
    "KEYS": "k1 k2",
}


def matches(expression: str) -> bool:
    return compile_sql(expression)(PROPERTIES.get)


@pytest.mark.parametrize(
    "expression",
    [
        "a = 5",
        "5 = a",
        "a > 4 AND a < 6",
        "a >= 5 and a <= 5L",
        "a <> 6",
        "a BETWEEN 1 AND 5",
        "a BETWEEN -3 AND +5",
        "a NOT BETWEEN 6 AND 9",
        "price > 9.4",
        "price BETWEEN 9.5 AND 9.51",
        "big > 4999999999",
        "big = 5000000000",
        "a > .5e1 OR a = 5",
        "word = 'it''s'",
        "city = 'Zürich'",
        "TAGS = 'TagA' AND KEYS CONTAINS 'k2'",
        "TAGS IN ('TagB', 'TagA')",
        "TAGS NOT IN ('TagB')",
        "missing IS NULL",
        "a IS NOT NULL",
        "NOT (a = 6)",
        "missing = missing",  # null is null, in the original
        "yes = TRUE",
        "TRUE",
        "NOT FALSE",
        "(((a = 5)))",
        "a = 5 -- the rest is a comment",
        "a /* in between */ = /**/ 5",
        "missing = 1 OR a = 5",
        "a = 5 OR word > 3",  # the second is not looked at
        "city STARTSWITH 'Zü' AND city endswith 'ich'",
        "city NOT CONTAINS 'x' AND city NOT STARTSWITH 'x' AND city NOT ENDSWITH 'x'",
        "a > big OR a < big",  # two texts: both as numbers
        "$x IS NULL AND _y IS NULL",
    ],
)
def test_these_match(expression: str) -> None:
    assert matches(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "a = 6",
        "a = '5.0'",  # texts are equal or not, as texts
        "missing = 1",
        "missing <> 1",  # null, not true
        "NOT (missing = 1)",
        "missing = 1 AND a = 5",
        "missing > 1 OR missing < 1",
        "missing BETWEEN 1 AND 5",
        "missing NOT BETWEEN 1 AND 5",
        "missing IN ('x')",
        "missing NOT IN ('x')",
        "missing NOT CONTAINS 'x'",  # unlike the others: false, not null
        "NOT (NOT (missing NOT CONTAINS 'x'))",
        "a CONTAINS ''",
        "a NOT CONTAINS ''",
        "word > 3",  # no number
        "word > 3 OR a = 5",  # looked at first: nothing matches
        "a = 5000000000000",
        "big = 5",  # does not fit into 32 bits, as the 5 does
        "price = 9",  # no whole number
        "word > city",
        "a",  # a text is not true
        "NOT a = 5",  # (NOT a) = 5
        "TRUE = yes",  # the other way round it works, in the original
        "NULL",
        "NOT NULL",
        "-a = -5",  # only numbers have a negative
        "1 = TRUE",
        "FALSE",
    ],
)
def test_these_do_not_match(expression: str) -> None:
    assert not matches(expression)


@pytest.mark.parametrize(
    ("expression", "where", "why"),
    [
        ("", 1, "no expression"),
        ("  ", 1, "no expression"),
        ("a =", 4, "a value is missing"),
        ("a = 5 b", 7, "'b' after the end"),
        ("a = 5)", 6, "after the end"),
        ("(a = 5", 7, "')' is missing"),
        ("a == 5", 4, "a value is missing before '='"),
        ("a = 'open", 5, "does not end"),
        ("a = 5 /* open", 7, "does not end"),
        ("a ? 5", 3, "means nothing"),
        ("a & b", 3, "means nothing"),
        ("a > 'x'", 5, "only numbers and properties"),
        ("a > TRUE", 5, "only numbers and properties"),
        ("a < (b = 1)", 6, "only numbers and properties"),
        ("a = NULL", 5, "IS NULL"),
        ("TRUE = 1", 8, "cannot be compared"),
        ("a BETWEEN 5 AND 1", 11, "must not be the greater"),
        ("a BETWEEN 5", 12, "AND of BETWEEN is missing"),
        ("a BETWEEN 'a' AND 'b'", 11, "only numbers"),
        ("5 IN ('5')", 1, "only a property"),
        ("a IN (5)", 7, "a text in single quotes is missing"),
        ("a IN ()", 7, "a text in single quotes is missing"),
        ("a CONTAINS b", 12, "a text in single quotes is missing"),
        ("a IS 5", 6, "NULL or NOT NULL is missing"),
        ("5", 1, "a condition is wanted"),
        ("'x' AND TRUE", 1, "a condition is wanted"),
        ("-a", 1, "a condition is wanted"),
        ("a = 9223372036854775808", 5, "greater than"),
        ("a = 1e999", 5, "is not between"),
        ("a = 0.0", 5, "a zero is written 0"),
        ("a = 007", 6, "after the end"),
        ("a-b = 5", 2, "after the end"),
        ("AND", 1, "a value is missing"),
    ],
)
def test_these_are_refused_with_place_and_reason(expression: str, where: int, why: str) -> None:
    with pytest.raises(SqlError) as refused:
        compile_sql(expression)
    assert f"at character {where}: " in str(refused.value)
    assert why in str(refused.value)


def test_size_parts_and_depth_are_limited() -> None:
    with pytest.raises(SqlError, match="at most 1024"):
        compile_sql("a = '" + "x" * 1024 + "'")
    with pytest.raises(SqlError, match="more than 64 parts"):
        compile_sql(" OR ".join(["a=1"] * 17))
    compile_sql(" OR ".join(["a=1"] * 16))
    with pytest.raises(SqlError, match="deeper than 16"):
        compile_sql("(" * 16 + "a=1" + ")" * 16)
    compile_sql("(" * 15 + "a=1" + ")" * 15)
    with pytest.raises(SqlError, match="deeper than 16"):
        compile_sql("NOT " * 200 + "TRUE")


@pytest.mark.parametrize(
    ("text", "matching"),
    [("1.5", True), (" 1.5 ", True), ("1.5d", True), ("+1.5F", True), ("15e-1", True), ("0x1.8p0", True)]
    + [(text, False) for text in ("1_5", "inf", "nan", "Infinity", "", "1,5", "0x18", "--1")],
)
def test_numbers_are_read_as_java_reads_them(text: str, matching: bool) -> None:
    assert compile_sql("x = 1.5")({"x": text}.get) is matching


def test_what_is_no_number_is_above_all_numbers() -> None:
    assert compile_sql("x > 1.5")({"x": "NaN"}.get)
    assert compile_sql("x > 1.5")({"x": "Infinity"}.get)
    assert not compile_sql("x > 1.5")({"x": "-Infinity"}.get)
