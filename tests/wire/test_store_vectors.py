"""Bytes of RocketMQ's commit log, read and written by ours.

Source of every vector here: the store of Apache RocketMQ 4.9.8 and 5.3.4-SNAPSHOT (commit 8fc57f14), run
with small files, its bytes compared and noted down.
"""

from __future__ import annotations

import zlib

import pytest

from kourou.protocol import record
from kourou.protocol.java_hash import java_hash, tag_code

RECORD_OF_104_BYTES = bytes.fromhex(
    "00000068 daa320a7 58932aac 00000001 00000000 0000000000000005 0000000000000400 00000000 0000018bcfe5687b"
    "0a000001000004d2 0000018bcfe569c8 7f00000100002a9f 00000000 0000000000000000 00000002 6869 01 54 000a"
    "54414753015461674102"
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("", 0),
        ("polygenelubricants", -2147483648),
        ("中文", 646394),
        ("\U0001f600", 1772899),
        ("TopicTest#k1", 2746024),
    ],
)
def test_texts_are_hashed_as_java_does(text: str, code: int) -> None:
    assert java_hash(text) == code


def test_a_negative_tag_code_is_sign_extended_in_a_consume_queue() -> None:
    assert tag_code("tag-neg-10") == -1195727601
    assert tag_code("tag-neg-10").to_bytes(8, "big", signed=True).hex() == "ffffffffb8baa50f"


def test_a_record_is_written() -> None:
    written = record.encode(
        b"T", 1, 0, 5, 1024, 0, 1700000000123, record.pack_host("10.0.0.1", 1234), 1700000000456,
        record.pack_host("127.0.0.1", 10911), 0, 0, b"hi", b"TAGS\x01TagA\x02",
    )  # fmt: skip
    assert written == RECORD_OF_104_BYTES


def test_a_record_is_read() -> None:
    checked = record.check(RECORD_OF_104_BYTES, 0, 104, verify=True, physical_offset=1024)
    assert (checked.verdict, checked.size) == (record.Verdict.OK, 104)
    assert checked.record is not None
    assert (checked.record.body_crc, checked.record.tag_code) == (0x58932AAC, 2598919)


def test_the_crc_of_a_whole_record_is_written_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "crc32", lambda _: 1382280817)
    host = record.pack_host("127.0.0.1", 1)
    written = record.encode(b"T", 0, 0, 0, 0, 0, 0, host, 0, host, 0, 0, b"", b"", append_crc=True)
    assert written.endswith(b"__CRC32#\x017180822831\x02")


def test_the_crc_of_a_whole_record_is_over_all_that_comes_before_it() -> None:
    host = record.pack_host("127.0.0.1", 1)
    written = record.encode(b"T", 0, 0, 0, 0, 0, 0, host, 0, host, 0, 0, b"hi", b"K\x01v", append_crc=True)
    digits = written[-11:-1].decode()
    assert int(digits[::-1]) == zlib.crc32(written[:-20]) & 0x7FFFFFFF
    assert written[:-20].endswith(b"K\x01v\x02")


def test_the_end_of_a_file_is_marked() -> None:
    assert record.blank(300).hex() == "0000012ccbd43194"
