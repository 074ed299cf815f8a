"""CRC-32 by whichever code is installed."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.native import native
from kourou.protocol import checksum


@given(st.binary(max_size=5000), st.binary(max_size=100))
def test_the_sum_is_zlibs_whoever_computes_it(first: bytes, second: bytes) -> None:
    assert checksum.crc32(first) == zlib.crc32(first)
    assert checksum.crc32(second, checksum.crc32(first)) == zlib.crc32(first + second)


def test_the_tests_run_with_the_faster_code() -> None:
    pytest.importorskip("isal", reason="isal is part of kourou[server], which the tests install")
    fastest = "isal.isal_zlib" if native is None else "kourou.native._native"
    assert checksum.crc32.__module__ == fastest
