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


def test_every_flipped_bit_in_the_seal_is_seen() -> None:
    text = sealed(TEXT)
    for at in range(text.index(b',\n "kourouCrc32"'), len(text)):
        for bit in range(8):
            harmed = bytearray(text)
            harmed[at] ^= 1 << bit
            with pytest.raises(ProtocolError, match="kourouCrc32"):
                check_seal(bytes(harmed))


@pytest.mark.parametrize(
    "name", [b"kourouOrder", b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b", b"###########"]
)
def test_a_seal_by_another_name_is_damage_as_its_number_is_right(name: bytes) -> None:
    with pytest.raises(ProtocolError, match="kourouCrc32 is damaged"):
        check_seal(sealed(TEXT).replace(b"kourouCrc32", name))


@pytest.mark.parametrize(
    "text",
    [
        b'{"kourou-orders":4096}',
        b'{\n "a": 1,\n "kourou": 4096\n}',
        b'{\n "a": 1,\n "kourouOrder": 4096\n}',
        b'{\n "a": 1,\n "kourouCrash": 4096\n}',
        b'{\n "a": 1,\n "kourou-orders": 4096\n}\n',
        b'{"offsetTable":{"T@kourou-test":{0:12}}}',
        b'{\n\t"offsetTable":{\n\t\t"T@g":{0:5,1:5},\n\t\t"%RETRY%kourou@kourou":{0:0\n\t\t}\n\t}\n}',
        b'{"offsetTable":{"T@g":{0:5},"%RETRY%kourou@kourou":{0:0}}}',
    ],
)
def test_a_name_that_begins_as_the_seal_does_is_none(text: bytes) -> None:
    check_seal(text)
