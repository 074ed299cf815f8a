"""The hash an index knows a key by."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.java_hash import java_hash
from kourou.store.key_hashes import KeyHashes, Keys, TopicKeys, key_hash


def collected(
    hashes: KeyHashes, topic: str, properties: bytes, id_at: int = 0
) -> tuple[list[int], list[int]]:
    keys = Keys([], [])
    hashes.collect([(topic.encode(), properties, id_at, 7)], keys)
    return keys.hashes, keys.places


def plain(topic: str, key: str) -> int:
    value = abs(java_hash(f"{topic}#{key}"))
    return value if value < 1 << 31 else 0


def test_hashes_are_those_of_the_original() -> None:
    assert key_hash("TopicTest", "k1") == 2746024  # taken from RocketMQ's own index
    assert plain("TopicTest", "k1") == 2746024


def test_the_smallest_number_has_no_positive_one_and_is_zero() -> None:
    # Found by trying: Java's best known text with this hash (polygenelubricants) holds no '#'.
    key = "#=&6-;'"
    assert java_hash(f"T#{key}") == -(1 << 31)
    assert key_hash("T", key) == 0
    assert TopicKeys(b"T").of(f"KEYS\x01{key}\x02".encode()) == [0]


KEYS = st.text(st.characters(codec="utf-8", exclude_characters=" \x01\x02"), min_size=1)
UNIQUE_IDS = st.one_of(KEYS, st.text("0123456789ABCDEF", min_size=32, max_size=32))


@given(st.sampled_from(["T", "TopicTest", "主题"]), st.none() | UNIQUE_IDS, st.lists(KEYS, max_size=3))
def test_the_fast_way_gives_what_java_does(topic: str, unique_id: str | None, keys: list[str]) -> None:
    entries = ["TAGS\x01a"]
    if unique_id is not None:
        entries.append(f"UNIQ_KEY\x01{unique_id}")
    if keys:
        entries.append("KEYS\x01" + " ".join(keys))
    for properties in ("\x02".join(entries), "\x02".join(reversed(entries)) + "\x02"):
        expected = [plain(topic, key) for key in ([unique_id] if unique_id else []) + keys]
        assert TopicKeys(topic.encode()).of(properties.encode()) == expected
        for hashes in (KeyHashes(), REMEMBERING):
            for _ in range(2):  # the second time from memory
                found = collected(hashes, topic, properties.encode())
                assert found == (expected, [7] * len(expected))


REMEMBERING = KeyHashes()


def test_an_entry_that_only_ends_like_a_key_is_none() -> None:
    assert TopicKeys(b"T").of(b"MY_UNIQ_KEY\x01x\x02MYKEYS\x01y\x02") == []
    properties = b"MY_UNIQ_KEY\x01" + b"A" * 32 + b"\x02MYKEYS\x01y\x02"
    assert collected(KeyHashes(), "T", properties) == ([], [])


def test_of_two_unique_ids_the_later_counts() -> None:
    first, second = "A" * 32, "B" * 32
    properties = f"UNIQ_KEY\x01{first}\x02UNIQ_KEY\x01{second}\x02".encode()
    assert collected(KeyHashes(), "T", properties)[0] == [plain("T", second)]


def test_a_unique_id_whose_place_is_known_is_all_there_is_to_find() -> None:
    unique_id = "7F0000010000A4714E0E2F2A00000012"
    properties = f"TAGS\x01a\x02UNIQ_KEY\x01{unique_id}\x02KEYS\x01k\x02".encode()
    for _ in range(2):  # the second time from memory
        assert collected(REMEMBERING, "T", properties, 16)[0][:1] == [plain("T", unique_id)]
