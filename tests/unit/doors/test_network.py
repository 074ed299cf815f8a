from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kourou.doors.network import file_stamps


def test_a_changed_or_vanished_file_shows_in_its_stamp(tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    path.write_text("one")
    first = file_stamps([str(path), None])
    assert first == file_stamps([str(path)])
    path.write_text("another")
    assert file_stamps([str(path)]) != first
    path.unlink()
    assert file_stamps([str(path)]) == (None,)


def test_dialling_needs_no_asyncio() -> None:
    code = "import sys, kourou.doors.network, kourou.doors.clock; sys.exit('asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
