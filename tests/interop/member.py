"""A client in a process of its own, consumer or producer, that stays until it is told to go.

It prints one JSON object a line, each with an `event`, and reads words from its standard input; the end of
the input tells it to leave in good order.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from types import TracebackType
from typing import Any, Self


class Member:
    """What it has said so far. Leaving the block ends the process, whatever happened."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in list(self._lines) if line["event"] == kind]

    def bodies(self, kind: str = "received") -> list[str]:
        return [line["body"] for line in self.events(kind)]

    def tell(self, line: str) -> None:
        """Have it do what it does with a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def leave(self) -> None:
        """Shut down in good order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._reader.join(10)

    def wait(self, seconds: float) -> None:
        """Until it has ended by itself."""
        self._process.wait(seconds)
        self._reader.join(10)

    def crash(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                said = json.loads(line)
                if "event" in said:
                    self._lines.append(said)
