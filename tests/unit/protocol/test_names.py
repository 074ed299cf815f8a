"""Topic and group names."""

from __future__ import annotations

import pytest

from kourou.protocol import names


@pytest.mark.parametrize(
    "topic", ["orders", "%RETRY%group", "a|b", "A-Z_0-9", "x" * 127, "%DLQ%" + "g" * 250]
)
def test_legal_topics_have_no_fault(topic: str) -> None:
    assert names.topic_fault(topic) is None


@pytest.mark.parametrize(
    "topic",
    [
        *("../../../../evil", "/etc/passwd", "..", ".", "a/b", "a\\b", "C:x"),
        *("a\0b", "a\nb", "a\x1b[31m", "\u202eevil", "", " ", "a b", "é", "x" * 128, "%DLQ%" + "g" * 251),
    ],
)
def test_names_that_could_be_a_path_or_more_have_a_fault_that_is_safe_to_print(topic: str) -> None:
    fault = names.topic_fault(topic)
    assert fault is not None
    assert fault.isascii() or "…" in fault
    assert all(character.isprintable() for character in fault)


def test_a_group_has_120_characters_at_most() -> None:
    assert names.group_fault("g" * 120) is None
    assert "longer than 120" in (names.group_fault("g" * 121) or "")


def test_system_topics_are_known_by_name_and_by_prefix() -> None:
    assert names.is_system_topic("SCHEDULE_TOPIC_XXXX")
    assert names.is_system_topic("rmq_sys_anything")
    assert not names.is_system_topic("orders")
