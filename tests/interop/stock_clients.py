"""Run the C++ client of the `rocketmq` wheel in a process of its own, and read what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAMME = Path(__file__).parent / "cpp_client.py"


class ClientFailed(Exception):
    """The programme crashed or overran its time; the message ends with its output."""


def cpp_client(home: Path, *arguments: str, timeout: float = 60.0) -> list[dict[str, Any]]:
    """One run of cpp_client.py; `home` receives the logs the library insists on writing."""
    environment = {**os.environ, "HOME": str(home)}
    command = [sys.executable, str(PROGRAMME), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=environment, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise ClientFailed(
            f"{' '.join(arguments)} not done after {timeout} s; it said {late.stdout!r}"
        ) from late
    if done.returncode != 0:
        raise ClientFailed(
            f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"event"')]
