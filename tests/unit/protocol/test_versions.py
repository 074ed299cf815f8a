"""The number in every header, and the release it stands for."""

from __future__ import annotations

import pytest

from kourou.protocol.versions import version_name


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (17, "V3_0_1"),
        (37, "V3_0_11"),
        (45, "V3_0_15"),
        (47, "V3_1_0"),
        (62, "V3_1_8_SNAPSHOT"),
        (63, "V3_1_8"),
        (67, "V3_2_0"),
        (85, "V3_2_9"),
        (87, "V3_3_1"),  # there is no 3.3.0
        (121, "V3_4_9"),
        (211, "V3_9_9"),
        (213, "V4_0_0"),
        (232, "V4_1_0_SNAPSHOT"),
        (317, "V4_5_2"),
        (393, "V4_9_0"),
        (401, "V4_9_4"),
        (409, "V4_9_8"),
        (413, "V5_0_0"),
        (475, "V5_3_1"),
        (479, "V5_3_3"),
        (611, "V5_9_9"),
        (612, "HIGHER_VERSION"),
        (100_000, "HIGHER_VERSION"),
        (0, "V3_0_0"),
        (-1, "V3_0_0"),
    ],
)
def test_a_number_stands_for_a_release(number: int, name: str) -> None:
    assert version_name(number) == name
