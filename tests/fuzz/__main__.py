"""Coverage-guided fuzzing of every decoder, parser and server, one process after the other.

    python -m tests.fuzz                         10 seconds of each
    python -m tests.fuzz --seconds 600 sql92     of some, for longer
    python -m tests.fuzz --again FILE sql92      one input again, with its traceback

What reached new lines is kept in .cache/fuzz and is where the next run begins; a finding stays there, too.
Ends with 1 when there was one: it belongs in tests/fuzz/found, as NAME-what-it-was, for `make test` to try.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from typing import NamedTuple

try:
    from tests.fuzz.guided import TARGETS, judge, said_by
except ModuleNotFoundError as error:
    if error.name != "atheris":
        raise
    sys.exit(
        "make fuzz: NOT RUN, there is no atheris: it comes with .venv on Linux (x86-64), Python 3.11 to 3.13"
    )

CACHE = Path(".cache/fuzz")


class Outcome(NamedTuple):
    inputs: int
    edges: int
    finding: str | None


def main() -> None:
    arguments = _arguments()
    if arguments.again is not None:
        judge(TARGETS[arguments.names[0]], arguments.again.read_bytes())
        return
    found, inputs, begin = [], 0, time.monotonic()
    print(f"{'target':<20}{'inputs':>10}{'a second':>10}{'edges':>8}  outcome", flush=True)
    for name in arguments.names or TARGETS:
        outcome = fuzzed(name, arguments.seconds)
        inputs += outcome.inputs
        rate = outcome.inputs / arguments.seconds
        verdict = outcome.finding or "nothing found"
        print(f"{name:<20}{outcome.inputs:>10,}{rate:>10,.0f}{outcome.edges:>8,}  {verdict}", flush=True)
        found += [name] if outcome.finding else []
    print(f"{inputs:,} inputs in {time.monotonic() - begin:.0f} s; findings: {', '.join(found) or 'none'}")
    sys.exit(1 if found else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seconds", type=int, default=10, help="for each target")
    parser.add_argument("--again", type=Path, metavar="FILE", help="try this input once more")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of targets; all of them when none is given")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in TARGETS]
    if unknown or (arguments.again is not None and len(arguments.names) != 1):
        parser.error(f"name targets out of {', '.join(TARGETS)}")
    return arguments


def fuzzed(name: str, seconds: int) -> Outcome:
    """What became of one target within so many seconds."""
    corpus = CACHE / name
    corpus.mkdir(parents=True, exist_ok=True)
    options = (f"-max_total_time={seconds}", f"-artifact_prefix={CACHE}/found-{name}-")
    code, said = said_by(TARGETS[name], corpus, *options)
    inputs = re.findall(r"^stat::number_of_executed_units:\s*(\d+)|^#(\d+)\s", said, re.MULTILINE)
    edges = re.findall(r"cov: (\d+)", said)
    counted = max((int(one or other) for one, other in inputs), default=0)
    return Outcome(counted, int(edges[-1]) if edges else 0, None if code == 0 else _finding(code, said))


def _finding(code: int, said: str) -> str:
    kept = re.search(r"Test unit written to (\S+)", said)
    what = re.findall(r"^((?:\w+\.)*\w*(?:Error|TooMuch|Exception)\b.*|SUMMARY: .*)$", said, re.MULTILINE)
    if not kept:
        return f"ended with {code}: {said[-500:]}"
    return f"{what[0] if what else 'ended'}: {kept[1]}"


if __name__ == "__main__":
    main()
