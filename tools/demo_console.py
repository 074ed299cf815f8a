"""The end of `make demo CONSOLE=1`: everything runs again, with the console, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

TOLD_SECONDS = 2.0


def leave_console_running(data: Path) -> int:
    """`kourou start` over what the demo has stored; it prints the console's address. Nothing unless asked."""
    if os.environ.get("CONSOLE", "") in ("", "0"):
        return 0
    print(f"\nThe console, over what is in {data}; Ctrl-C ends it.\n", flush=True)
    command = [str(Path(sys.executable).with_name("kourou")), "start", "--data", str(data)]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends us ends the server as well
    with subprocess.Popen([*command, "--name-server-port", "0", "--port", "0"]) as server:
        try:
            return server.wait()
        except KeyboardInterrupt:
            return _ended(server)


def _ended(server: subprocess.Popen[bytes]) -> int:
    """A terminal has told the server, too; somebody who only told us has not."""
    try:
        return server.wait(TOLD_SECONDS)
    except subprocess.TimeoutExpired:
        server.terminate()
        return server.wait()
