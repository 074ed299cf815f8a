"""The checksum inside a small JSON file."""

from __future__ import annotations

import json

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.sealed import check_seal, sealed

TEXT = b'{\n "offsetTable": {\n  "T@g": {\n   "0": 12\n  }\n }\n}'


def test_a_sealed_text_is_json_with_one_more_key() -> None:
    text = sealed(TEXT)
    check_seal(text)
    content = json.loads(text)
    assert content.pop("kourouCrc32") > 0
    assert content == json.loads(TEXT)


def test_every_flipped_bit_before_the_seal_is_seen() -> None:
    text = sealed(TEXT)
    for at in range(text.index(b',\n "kourouCrc32"')):
        for bit in range(8):
            harmed = bytearray(text)
            harmed[at] ^= 1 << bit
            with pytest.raises(ProtocolError, match="kourouCrc32 does not fit"):
                check_seal(bytes(harmed))


@pytest.mark.parametrize("text", [b"", b"{}", TEXT, b'{"offsetTable":{}}\n', b"\0\0\0"])
def test_what_has_no_seal_is_not_judged(text: bytes) -> None:
    check_seal(text)


def test_an_empty_object_is_not_sealed() -> None:
    assert sealed(b"{}") == b"{}"


def test_damage_to_the_seal_itself_does_not_make_a_text_one_without() -> None:
    text = sealed(TEXT)
    name = text.index(b"kourouCrc32")
    for at in range(name, name + len(b"kourouCrc32")):
        for bit in range(8):
            harmed = bytearray(text)
            harmed[at] ^= 1 << bit
            harmed[text.index(b"12")] ^= 1
            with pytest.raises(ProtocolError, match="kourouCrc32 is damaged"):
                check_seal(bytes(harmed))
