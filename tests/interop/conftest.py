"""What the tests against real Apache parts share. Without Java or Maven they fail and say what is missing."""

from __future__ import annotations

import pytest

from tests.interop import apache


@pytest.fixture(params=apache.VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """A release of Apache RocketMQ."""
    reason = apache.missing_tools()
    if reason:
        pytest.fail(f"CANNOT TEST AGAINST APACHE: {reason}", pytrace=False)
    return str(request.param)
