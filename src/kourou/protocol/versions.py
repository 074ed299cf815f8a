"""The number in every header's `version`, and the release it stands for: `409` is `V4_9_8`.

The original counts its releases, a snapshot before each: from 3.0.1 on in twos, ten patches to a minor
release, of which 3.3 to 3.9 have no patch 0. Older ones have names of their own, which nobody meets any more.
"""

from __future__ import annotations

_HIGHEST = 612
_FIRST_OF_3_1, _FIRST_OF_3_3, _FIRST_OF_4, _FIRST_OF_5 = 46, 86, 212, 412


def version_name(number: int) -> str:
    """`V4_9_8`, `V5_3_3_SNAPSHOT`; a number beyond all is the highest, as the original says."""
    if number >= _HIGHEST:
        return "HIGHER_VERSION"
    if number < 16:
        return "V3_0_0"
    release, is_final = divmod(number, 2)
    suffix = "" if is_final else "_SNAPSHOT"
    if number < _FIRST_OF_3_1:
        return f"V3_0_{release - 7}{suffix}"
    if number < _FIRST_OF_3_3:
        minor, patch = divmod(release - _FIRST_OF_3_1 // 2, 10)
        return f"V3_{minor + 1}_{patch}{suffix}"
    if number < _FIRST_OF_4:
        minor, patch = divmod(release - _FIRST_OF_3_3 // 2, 9)
        return f"V3_{minor + 3}_{patch + 1}{suffix}"
    major, first = (4, _FIRST_OF_4) if number < _FIRST_OF_5 else (5, _FIRST_OF_5)
    minor, patch = divmod(release - first // 2, 10)
    return f"V{major}_{minor}_{patch}{suffix}"
