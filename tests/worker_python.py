"""The Python that Spark starts for its workers, in tests: this one, without the zip of sources it is given.

Spark puts a zip with its own Python sources before what is installed, and Python compiles what it takes from
there again in every process: 0.7 s of CPU for each, of which 0.5 are spared when the same modules come from
the environment, where they are compiled already. Hundreds of such processes are started in a run.
"""

from __future__ import annotations

import os
import sys
from hashlib import blake2b
from pathlib import Path

CACHE = Path(__file__).parents[1] / ".cache" / "spark"
SCRIPT = """#!/bin/sh
kept=
IFS=:
for part in $PYTHONPATH; do
    case $part in */python/lib/*.zip) ;; *) kept=$kept${kept:+:}$part ;; esac
done
PYTHONPATH=$kept exec "@" "$@"
"""


def worker_python() -> str:
    """A program that is this Python; made when it is not there yet. Each Python has its own: two environments
    may run tests of one tree side by side."""
    script = SCRIPT.replace('"@"', f'"{sys.executable}"')
    path = CACHE / blake2b(script.encode(), digest_size=6).hexdigest() / "python"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"python.{os.getpid()}")  # several processes of one run may do the same now
        draft.write_text(script)
        draft.chmod(0o755)
        draft.replace(path)
    return str(path)
