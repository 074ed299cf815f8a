"""Which messages a subscription wants."""

from __future__ import annotations

import pytest

from kourou.broker.filters import TAGS_MAX, is_tag_expression, make_filter, tag_codes
from kourou.errors import Refused
from kourou.protocol.codes import ResponseCode
from kourou.protocol.record import encode, pack_host


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_everything_is_wanted_by_a_star_and_by_nothing(expression: str | None) -> None:
    assert tag_codes(expression) is None


def test_tags_become_their_java_hashes() -> None:
    assert tag_codes(" TagA||TagB || ") == frozenset({2598919, 2598920})


def test_tags_that_hash_alike_are_one_code() -> None:
    assert tag_codes("Aa || BB") == frozenset({2112})


def test_an_expression_without_a_tag_is_refused() -> None:
    with pytest.raises(Refused, match="names no tag") as refused:
        tag_codes(" || ")
    assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_more_tags_than_allowed_are_refused() -> None:
    assert len(tag_codes("||".join(f"t{n}" for n in range(TAGS_MAX))) or ()) == TAGS_MAX
    with pytest.raises(Refused, match=f"names {TAGS_MAX + 1} tags"):
        tag_codes("||".join(f"t{n}" for n in range(TAGS_MAX + 1)))


def test_a_missing_expression_type_means_tag() -> None:
    assert is_tag_expression(None)
    assert is_tag_expression("")
    assert is_tag_expression("TAG")
    assert not is_tag_expression("SQL92")


def test_an_sql_expression_is_right_about_each_message_however_many_came_before() -> None:
    one = make_filter("SQL92", "n > 3 OR n IS NULL").accepts
    two = make_filter("SQL92", "n > 3 AND k = 'x'").accepts
    assert one is not None
    assert two is not None
    for number in [*range(600), 2, 5, None]:
        for k in (b"x", b"y"):
            text = (b"" if number is None else b"n\x01%d\x02" % number) + b"k\x01%b\x02" % k
            record = memoryview(record_with(text))
            assert one([record]) == [(number is None or number > 3)]
            assert two([record]) == [(number is not None and number > 3 and k == b"x")]


def test_a_damaged_record_matches_no_sql_expression() -> None:
    accepts = make_filter("SQL92", "n IS NULL").accepts
    assert accepts is not None
    record = record_with(b"")
    many = [record, record[:-1], record[:40], bytes(len(record)), record]
    assert accepts(many) == [True, False, False, False, True]


def record_with(properties: bytes) -> bytes:
    host = pack_host("127.0.0.1", 1)
    return encode(b"T", 0, 0, 0, 0, 0, 0, host, 0, host, 0, 0, b"body", properties, True)
