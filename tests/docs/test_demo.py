"""`make demo` does what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.docs


@pytest.mark.timeout(600)
def test_the_demo_tells_its_story_and_leaves_its_files(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    demo = subprocess.run(
        [sys.executable, "-m", "tools.demo"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    clients = ("kourou start", "our client sends", "our client receives", "stock", "Ctrl-C", "Next")
    kinds = ("tags", "a delay", "order", "a retry, a dead letter", "a transaction")
    on_spark = ("archive to Parquet", "SQL", "alerts back to a topic", "a page with a picture")
    fail_over = ("kourou cluster up", "kill -9 of the master", "nothing is lost")
    for chapter in (*clients, *kinds, *on_spark, *fail_over):
        assert chapter in demo.stdout
    assert "data:image/png" in (tmp_path / "kourou-data/demo/spark/payments.html").read_text()
    assert [path.name for path in (tmp_path / "kourou-data/demo/store/commitlog").iterdir()] == ["0" * 20]
