from __future__ import annotations

import msgspec
import pytest

from kourou.errors import ProtocolError
from kourou.protocol.command import BINARY, Command, decode
from kourou.protocol.frame import Frame


class Named(msgspec.Struct, frozen=True):
    topic: str


def json_command(fields: str) -> Command:
    return decode(Frame(0, b'{"code":1,"extFields":%b}' % fields.encode(), b""))


@pytest.mark.parametrize("name", ["", "x" * 129, "a\\u0000b"])
def test_a_name_no_field_may_have_is_refused_where_all_fields_are_kept(name: str) -> None:
    command = json_command(f'{{"topic":"T","{name}":"1"}}')
    assert command.parse(Named) == Named("T")  # skipped: nothing of it is kept
    with pytest.raises(ProtocolError, match="field name"):
        _ = command.fields


@pytest.mark.parametrize("name", ["", "x" * 129, "a\0b"])
def test_a_binary_header_refuses_the_same_names(name: str) -> None:
    command = Command(1, {name: "1"}, serialization=BINARY)
    header = command.encode()[8:]
    with pytest.raises(ProtocolError, match="field name"):
        decode(Frame(BINARY, header, b""))


def test_of_a_field_given_twice_the_last_one_counts_however_it_is_read() -> None:
    twice = json_command('{"topic":"first","topic":"last"}')
    assert twice.parse(Named) == Named("last")
    assert dict(twice.fields) == {"topic": "last"}


def test_more_fields_than_a_header_may_have_are_refused_where_all_are_kept() -> None:
    many = json_command("{" + ",".join(f'"f{n}":"1"' for n in range(65)) + "}")
    with pytest.raises(ProtocolError, match="65 fields in one header: at most 64 are taken"):
        _ = many.fields
