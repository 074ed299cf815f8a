"""What is remembered of properties, against what the plain way makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.broker.handlers.usual_properties import (
    UNIQUE_ID,
    UNKNOWN,
    Stored,
    UsualProperties,
    rest_of,
)
from kourou.errors import Refused
from kourou.protocol.codes import ResponseCode

FIRST, SECOND = "7F0000010000A4714E0E2F2A00000001", "7F0000010000A4714E0E2F2A00000002"


def plain(text: str, sys_flag: int) -> tuple[bytes, str]:
    """As a broker does: WAIT is left out, something of its own is added."""
    if "refuse" in text:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, "refused")
    at = text.find(UNIQUE_ID)
    unique_id = text[at + 9 :].partition("\x02")[0] if at >= 0 else "made-up"
    text = text if text.endswith("\x02") else text + "\x02"
    return (text.replace("WAIT\x01true\x02", "") + "CLUSTER\x01c\x02").encode(), unique_id


def fast(usual: UsualProperties, text: str) -> bytes | None:
    """The look-up as `SendRunHandler` does it."""
    length, came_before, came_after, id_from, id_to, before, after, id_at, _ = usual.by_rest.get(
        rest_of(text), UNKNOWN
    )
    unique_id = text[id_from:id_to].encode()
    if not unique_id.isalnum():
        return None
    assert (len(text), text[:id_from], text[id_to:]) == (length, came_before, came_after)
    assert (before + unique_id + after)[id_at : id_at + 32] == unique_id
    return before + unique_id + after


def test_what_was_seen_once_is_known_the_next_time() -> None:
    usual = UsualProperties(plain)
    text = f"TAGS\x01TagA\x02UNIQ_KEY\x01{FIRST}\x02WAIT\x01true\x02"
    assert fast(usual, text) is None
    stored = usual.looked_at("T", text, 0)
    assert stored == Stored(plain(text, 0)[0], FIRST.encode(), 2598919)
    following = text.replace(FIRST, SECOND)
    assert fast(usual, following) == plain(following, 0)[0]


@pytest.mark.parametrize(
    "text",
    [
        *(f"UNIQ_KEY\x01{FIRST}\x02KEYS\x01k\x02", f"UNIQ_KEY\x01{FIRST}\x02WAIT\x01false\x02"),
        *(f"UNIQ_KEY\x01{FIRST}\x02TRAN_MSG\x01true\x02", f"MY_UNIQ_KEY\x01{FIRST}\x02"),
        *(f"UNIQ_KEY\x01{FIRST}\x02A\x01{FIRST}\x02", f"UNIQ_KEY\x01{FIRST}\x02UNIQ_KEY\x01{SECOND}\x02"),
        *("UNIQ_KEY\x01short\x02", "TAGS\x01a\x02", ""),
    ],
)
def test_what_is_different_every_time_or_doubtful_is_not_remembered(text: str) -> None:
    usual = UsualProperties(plain)
    usual.looked_at("T", text, 0)
    assert usual.by_rest == {}


def test_a_short_unique_id_at_the_end_is_not_taken_for_a_usual_one() -> None:
    usual = UsualProperties(plain)
    usual.looked_at("T", f"UNIQ_KEY\x01{FIRST}", 0)
    assert fast(usual, "UNIQ_KEY\x01x") is None
    [(properties, unique_id, id_at, _)] = usual.of_each("T", ["UNIQ_KEY\x01x"])
    assert (properties, unique_id, id_at) == (plain("UNIQ_KEY\x01x", 0)[0], b"x", 0)


def test_a_checksum_of_a_former_life_and_an_odd_unique_id_are_left_to_the_plain_way() -> None:
    usual = UsualProperties(plain)
    assert usual.looked_at("T", f"UNIQ_KEY\x01{FIRST}\x02__CRC32#\x010123456789\x02", 0) is None
    assert usual.looked_at("T", "UNIQ_KEY\x01a-b\x02", 0) is None


def test_a_refusal_is_passed_on() -> None:
    with pytest.raises(Refused):
        UsualProperties(plain).looked_at("T", "refuse", 0)


def test_what_is_remembered_is_bounded() -> None:
    usual = UsualProperties(plain)
    for number in range(5000):
        usual.looked_at("T", f"UNIQ_KEY\x01{FIRST}\x02number\x01{number}\x02", 0)
    assert 0 < len(usual.by_rest) <= 1024


PIECES = st.sampled_from(
    [*(UNIQUE_ID, FIRST, SECOND, "\x01", "\x02", "UNIQ_KEY", "TAGS\x01a\x02", "WAIT\x01true\x02", "é", "x")]
)


@given(st.lists(st.lists(PIECES, max_size=6).map("".join), min_size=2, max_size=6))
def test_memory_never_says_anything_but_what_the_plain_way_does(texts: list[str]) -> None:
    usual = UsualProperties(plain)
    for text in [*texts, *texts]:
        known = fast(usual, text)
        assert known is None or known == plain(text, 0)[0]
        usual.looked_at("T", text, 0)
