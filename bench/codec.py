"""What one send request costs before any work is done for it, and what `import kourou` costs."""

from __future__ import annotations

import subprocess
import sys
from statistics import median
from time import perf_counter

from kourou.protocol.command import decode
from kourou.protocol.frame import FrameReader
from kourou.protocol.headers import SendMessageV2
from tests.interop.recorder import RECORDINGS, load

BATCH = 16


def decode_us(repeats: int) -> float:
    """Frame, header and typed fields of a Java client's SEND_MESSAGE_V2; µs each, 16 in a read."""
    data = _recorded_send() * BATCH
    taken = []
    for _ in range(repeats):
        reader = FrameReader()
        began = perf_counter()
        for frame in reader.feed(data):
            decode(frame).parse(SendMessageV2)
        taken.append((perf_counter() - began) / BATCH * 1e6)
    return median(taken)


def _recorded_send() -> bytes:
    for frame in load(RECORDINGS / "send-sync-4.9.7.jsonl").frames:
        if frame.sent_by_client and b'"code":310' in frame.data:
            return frame.data
    raise LookupError("the recording holds no SEND_MESSAGE_V2")


def import_ms(rounds: int, statement: str = "import kourou") -> float:
    """In a fresh interpreter each time; what the interpreter itself needs to start is not counted."""
    programme = f"from time import perf_counter as t; a = t(); {statement}; print((t() - a) * 1000)"
    return median(
        float(subprocess.run([sys.executable, "-c", programme], capture_output=True, check=True).stdout)
        for _ in range(rounds)
    )


def server_modules_of_client() -> list[str]:
    """Which heavy parts `kourou.Producer` drags in; there should be none."""
    programme = (
        "import sys, kourou; kourou.Producer; "
        "print(*[m for m in ('kourou.broker', 'kourou.store', 'kourou.nameserver', 'kourou.remoting.server') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", programme], capture_output=True, check=True, text=True)
    return done.stdout.split()
