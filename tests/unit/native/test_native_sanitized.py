"""A short form of `make sanitize`: the native functions under AddressSanitizer and its like."""

from __future__ import annotations

import pytest

from tools import sanitize

pytestmark = pytest.mark.skipif(
    bool(sanitize.missing()), reason=f"NOT TESTED: {sanitize.missing()} (Debian and Ubuntu: the package gcc)"
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_reads_or_writes_what_is_not_its_own() -> None:
    done = sanitize.run(
        "-q",
        *("-k", "not stub"),
        "tests/unit/native/test_native_arguments.py",
        "tests/property/test_any_frame.py",
    )
    assert done.returncode == 0, done.stdout[-10_000:]
