"""One target under atheris, which sees the lines an input reaches and keeps those that reach new ones.

To be imported before anything of `kourou`: it is instrumented while it is imported, which takes a while. So
one process imports it once, and forks for each target; libFuzzer ends the process it runs in.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import tempfile
from pathlib import Path

import atheris

with (
    contextlib.redirect_stderr(io.StringIO()),  # the name of each module
    atheris.instrument_imports(include=["kourou"], enable_loader_override=False),
):
    from tests.fuzz.mutation import TEXTS
    from tests.fuzz.target import INPUT_BYTES_MAX, Target, judge
    from tests.fuzz.targets import TARGETS

__all__ = ["TARGETS", "judge", "said_by"]


def said_by(target: Target, corpus: Path, *options: str) -> tuple[int, str]:
    """Fuzz it in a process of its own; how that ended, and what libFuzzer said."""
    with tempfile.TemporaryFile() as output:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            _fuzz(target, corpus, *options)  # ends the process, and a finding is written down while it ends
        _, status = os.waitpid(child, 0)
        output.seek(0)
        return os.waitstatus_to_exitcode(status), output.read().decode(errors="replace")


def _fuzz(target: Target, corpus: Path, *options: str) -> None:
    logging.getLogger().addHandler(logging.NullHandler())
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    words = corpus.with_suffix(".words")
    words.write_text("".join(f'"{_quoted(word)}"\n' for word in (*target.words, *TEXTS)))
    atheris.Setup(
        [
            *("fuzz", f"-dict={words}", f"-max_len={INPUT_BYTES_MAX // 8}", "-print_final_stats=1"),
            *("-timeout=10", "-rss_limit_mb=1024", "-malloc_limit_mb=512", *options, str(corpus)),
        ],
        lambda data: judge(target, data),
    )
    atheris.Fuzz()


def _quoted(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)
