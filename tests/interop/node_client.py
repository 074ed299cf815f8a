"""Run our scenarios on the Node client ali-ons (node/), which `npm ci` brings, once, under .cache/node.

scenarios(folder, name_server, broker)   all its scenarios, and what each observed
names()                                  the scenarios of node/scenarios.js, read from the source
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.interop import apache
from tests.interop.scenario_runs import Observed, observations

SOURCES = Path(__file__).parent / "node"
CACHE = apache.CACHE.parent / "node"
RUN_SECONDS_MAX = 240.0


class NodeUnavailable(Exception):
    """Node or its packages are missing; the message says which and what to do."""


def names() -> list[str]:
    return re.findall(r"^  async '(node-[a-z-]+)'", (SOURCES / "scenarios.js").read_text(), re.MULTILINE)


def programme() -> Path:
    """The programme beside the packages that its lock file names; installed anew when that changed."""
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        raise NodeUnavailable(
            f"{', '.join(missing)} not found on PATH: the Node client needs Node 18 or later"
        )
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = (SOURCES / "package-lock.json").read_bytes()
        installed = CACHE / "installed"
        if not installed.exists() or installed.read_bytes() != wanted:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(SOURCES / name, CACHE / name)
            command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise NodeUnavailable(f"npm ci:\n{done.stdout}{done.stderr}")
            installed.write_bytes(wanted)
        shutil.copy(SOURCES / "scenarios.js", CACHE / "scenarios.js")
    return CACHE / "scenarios.js"


def scenarios(
    folder: Path, name_server: str, broker: str, *only: str, credentials: str = ""
) -> dict[str, Observed]:
    """All scenarios once, or `only` some, against a broker that is there."""
    said = run(folder, name_server, broker, *only, credentials=credentials)
    (folder / "observed.jsonl").write_text(said)  # for whoever wants to know why two differ
    return observations(said)


def run(folder: Path, *arguments: str, credentials: str = "") -> str:
    """One run of the programme to its end; returns what it printed."""
    done = subprocess.run(
        ["node", str(programme()), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS_MAX,
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "CREDENTIALS": credentials},
        preexec_fn=apache.die_with_parent,
    )
    (folder / "node-errors.log").write_text(done.stderr)
    if done.returncode != 0:
        raise apache.PartFailed(f"node {' '.join(arguments)}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout
