"""The Python twins of the native loops stay tested: what they do is tested once more without the others.

Everything else runs with the native loops, where they can be compiled; without a compiler, all of it is about
the twins anyway.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.native import native

ROOT = Path(__file__).parents[2]
TWINS = {
    "tests/unit/broker/handlers": ("send*", "pull*", "bulk_pull", "sql_filters", "usual_properties"),
    "tests/unit/store": (
        "store",
        "reading",
        "ahead",
        "following*",
        "recovery*",
        "key_*",
        "dispatch",
        "consume_queue",
    ),
    "tests/unit/remoting": ("connection", "runs", "answer", "tick"),
    "tests/unit/spark": ("*_columns",),
    "tests/unit/protocol": ("record", "checksum"),
    "tests/property": ("any_frame", "any_record", "store_model"),
}
"""By folder, the tests of what has a native loop."""
TESTS_MIN = 500


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(native is None, reason="the twins are what all other tests use already")
def test_the_twins_in_python_pass_the_tests_of_the_native_loops() -> None:
    found = [
        sorted((ROOT / folder).glob(f"test_{name}.py")) for folder, names in TWINS.items() for name in names
    ]
    assert all(found), "some of these tests have another name by now"
    paths = [str(path) for some in found for path in some]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not power_cut", *paths]
    environment = {**os.environ, "KOUROU_NATIVE": "0", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-10_000:]
    [passed] = re.findall(r"(\d+) passed", done.stdout.splitlines()[-1])
    assert int(passed) > TESTS_MIN
