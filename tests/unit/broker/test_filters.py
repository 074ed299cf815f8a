"""Which messages a subscription wants."""

from __future__ import annotations

import pytest

from kourou.broker.filters import TAGS_MAX, is_tag_expression, tag_codes
from kourou.errors import Refused
from kourou.protocol.codes import ResponseCode


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
