"""The benchmark still runs and its figures make sense; how good they are is for `make bench` to say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import generator, messages
from bench.servers import OURS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(
    generator.compiler() is None,
    reason="THE BENCHMARK WAS NOT TRIED: its load generator needs a C compiler (cc, gcc or clang) on PATH",
)
def test_the_quick_benchmark_measures_every_case(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--json", str(tmp_path / "figures.json")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "APACHE IS NOT MEASURED" in done.stderr
    results = json.loads((tmp_path / "figures.json").read_text())
    assert set(results["messages"]) == {case.name for case in messages.CASES}
    for case, row in results["messages"].items():
        assert case in done.stdout
        assert row[OURS]["rate"] > 0
        assert 0 < row[OURS]["p50"] <= row[OURS]["p99"]
        assert row[OURS]["cpu_us"] > 0
    # A server that does nothing must be far ahead of one that does: the generator is not what is measured.
    assert (
        results["ceiling"]["send 64x16, 1 KiB"] > 2 * results["messages"]["send 64x16, 1 KiB"][OURS]["rate"]
    )
    assert results["name_server"][OURS]["lookups"] > 0
    assert results["server_modules_of_client"] == []
