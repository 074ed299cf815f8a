"""The end of `make demo CONSOLE=1`: everything runs again, with the console, until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path


def leave_console_running(data: Path) -> int:
    """`kourou start` over what the demo has stored; it prints the console's address. Nothing unless asked."""
    if os.environ.get("CONSOLE", "") in ("", "0"):
        return 0
    print(f"\nThe console, over what is in {data}; Ctrl-C ends it.\n", flush=True)
    command = [str(Path(sys.executable).with_name("kourou")), "start", "--data", str(data)]
    with subprocess.Popen([*command, "--name-server-port", "0", "--port", "0"]) as server:
        with contextlib.suppress(KeyboardInterrupt):  # the terminal has told the server, too
            return server.wait()
        return server.wait()
