"""Offset ids and unique ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.message_id import UniqueIds, offset_id, parse_offset_id, parse_unique_id
from kourou.protocol.record import pack_host

LOCALHOST = bytes((127, 0, 0, 1))


def ms(year: int, month: int, day: int, *time: int, zone: timezone = UTC) -> int:
    hour, minute, second = (*time, 0, 0, 0)[:3]
    return int(datetime(year, month, day, hour, minute, second, tzinfo=zone).timestamp() * 1000)


def test_an_offset_id_may_hold_an_ipv6_address() -> None:
    host = pack_host("2001:db8::1", 10911)
    text = offset_id(host, 1 << 40)
    assert len(text) == 56
    assert parse_offset_id(text) == (host, 1 << 40)


def test_a_unique_id_says_who_made_it_and_when() -> None:
    ids = UniqueIds(LOCALHOST, process_id=0x1_2345, instance=0xCAFEBABE)
    text = ids.next(ms(2024, 3, 2))
    assert text == "7F0000012345CAFEBABE05265C000000"
    assert parse_unique_id(text) == (LOCALHOST, 0x2345, 0xCAFEBABE, 86_400_000, 0)


def test_unique_ids_differ_within_one_millisecond() -> None:
    ids = UniqueIds(bytes(16), 1, 2)
    made = {ids.next(1_700_000_000_000) for _ in range(65_536)}
    assert len(made) == 65_536
    assert {len(each) for each in made} == {56}


def test_the_span_starts_anew_with_each_month() -> None:
    ids = UniqueIds(LOCALHOST, 1, 2)
    spans = [
        parse_unique_id(ids.next(now_ms)).span_ms
        for now_ms in (ms(2024, 2, 29, 23, 59, 59), ms(2024, 3, 1), ms(2024, 12, 31), ms(2025, 1, 1))
    ]
    assert spans == [29 * 86_400_000 - 1000, 0, 30 * 86_400_000, 0]


def test_a_span_longer_than_2_to_the_31_ms_survives() -> None:
    now_ms = ms(2024, 1, 31, 12)
    made = parse_unique_id(UniqueIds(LOCALHOST, 1, 2).next(now_ms - 5))
    assert made.span_ms > 2**31
    assert made.made_at_ms(now_ms) == now_ms - 5


def test_the_month_is_that_of_the_local_zone() -> None:
    zone = timezone(timedelta(hours=8))
    now_ms = ms(2024, 3, 1, 0, 30, zone=zone)  # still February in UTC
    ids = UniqueIds(LOCALHOST, 1, 2, utc_offset_ms=8 * 3_600_000)
    assert parse_unique_id(ids.next(now_ms)).span_ms == 30 * 60 * 1000


def test_a_clock_set_back_over_the_month_makes_no_negative_span() -> None:
    ids = UniqueIds(LOCALHOST, 1, 2)
    ids.next(ms(2024, 3, 1))
    assert parse_unique_id(ids.next(ms(2024, 3, 1) - 1)).span_ms == 0


def test_an_id_from_last_month_is_dated_back() -> None:
    made_ms = ms(2024, 2, 20)
    made = parse_unique_id(UniqueIds(LOCALHOST, 1, 2).next(made_ms))
    assert made.made_at_ms(ms(2024, 3, 5)) == made_ms


@pytest.mark.parametrize("text", ["", "12", "g" * 32, "00 " * 10 + "00", "0" * 33, "0" * 31 + "é"])
def test_what_is_no_id_is_refused(text: str) -> None:
    for parse in (parse_offset_id, parse_unique_id):
        with pytest.raises(ProtocolError, match="32 or 56 hexadecimal"):
            parse(text)


def test_ids_of_go_clients_have_a_lower_case_end() -> None:
    assert parse_unique_id("7F0000012345CAFEBABE05265c00abcd").counter == 0xABCD
