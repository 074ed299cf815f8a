from __future__ import annotations

import pytest

from kourou.client.refusals import accepted
from kourou.errors import Busy, Denied, NotFound, Refused
from kourou.protocol.codes import ResponseCode
from tests.unit.client.conversation import reply


@pytest.mark.parametrize(
    ("code", "kind", "exit_code", "is_retryable"),
    [
        (ResponseCode.TOPIC_NOT_EXIST, NotFound, 3, False),
        (ResponseCode.QUERY_NOT_FOUND, NotFound, 3, False),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, NotFound, 3, False),
        (ResponseCode.NO_PERMISSION, Denied, 4, False),
        (ResponseCode.SYSTEM_BUSY, Busy, 1, True),
        (ResponseCode.FLOW_CONTROL, Busy, 1, True),
        (ResponseCode.SYSTEM_ERROR, Refused, 1, False),
        (9999, Refused, 1, False),
    ],
)
def test_a_refusal_is_what_its_code_means(
    code: int, kind: type[Refused], exit_code: int, is_retryable: bool
) -> None:
    with pytest.raises(Refused) as refused:
        accepted(reply(code=code, remark="the peer's words"), "asking b:1")
    assert type(refused.value) is kind
    assert (refused.value.exit_code, refused.value.retryable) == (exit_code, is_retryable)
    assert (refused.value.code, refused.value.remark) == (code, "the peer's words")


def test_a_refusal_s_text_says_who_was_asked_what_they_said_and_the_code() -> None:
    with pytest.raises(NotFound) as refused:
        accepted(reply(code=17, remark="no such topic"), "asking b:1 for 't'")
    assert str(refused.value) == "asking b:1 for 't': no such topic [TOPIC_NOT_EXIST (17)]"


def test_a_peer_without_words_is_given_some() -> None:
    with pytest.raises(Refused, match=r"asking b:1: refused \[SYSTEM_ERROR \(1\)\]"):
        accepted(reply(code=1), "asking b:1")


def test_expected_codes_are_no_refusals() -> None:
    answer = reply(code=ResponseCode.PULL_NOT_FOUND)
    assert accepted(answer, "asking", (ResponseCode.PULL_NOT_FOUND,)) is answer
    with pytest.raises(Refused):
        accepted(reply(), "asking", (ResponseCode.PULL_NOT_FOUND,))
