"""Java's hash of a text."""

from __future__ import annotations

from kourou.protocol.java_hash import REMEMBERED_CHARACTERS_MAX, java_hash


def plain_hash(text: str) -> int:
    """Java's definition, with nothing clever."""
    value = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = 31 * value + int.from_bytes(units[at : at + 2], "big")
    return (value + 2**31) % 2**32 - 2**31


def test_long_texts_are_hashed_like_short_ones() -> None:
    for length in (1, REMEMBERED_CHARACTERS_MAX, REMEMBERED_CHARACTERS_MAX + 1, 1000):
        assert java_hash("x" * length) == plain_hash("x" * length)


def test_text_beyond_ascii_is_hashed_by_utf_16_units() -> None:
    for text in ("é", "中文标签", "a\U0001f600b", "ÿ" * 300):
        assert java_hash(text) == plain_hash(text)


def test_half_a_surrogate_pair_has_a_hash_as_in_java() -> None:
    assert java_hash("\ud83d") == 0xD83D
