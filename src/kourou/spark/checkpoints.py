"""What Spark keeps of a streaming query, looked at before Spark does: a half-written file is told by name.

    CHECKPOINT/metadata     {"id": …}                                  which query it is
    CHECKPOINT/offsets/N    version, a line of JSON, one per source    batch N, as it was planned
    CHECKPOINT/commits/N    version, a line of JSON                    batch N is done

Spark writes each under another name and renames it, but does not wait for the disk: after a power cut, or on
a file system without atomic renames, one may be empty or cut. It then fails with the stack of whatever reads
JSON, or in a batch that nobody waits for. What it reads when a query starts is looked at here: `metadata`,
the last two plans, the last commit. Folders of other file systems (HDFS, object stores) are Spark's alone.
"""

from __future__ import annotations

import json
import os
from typing import Any

from kourou.doors.files import Files, RealFiles
from kourou.errors import ConfigError, Corrupt

COPY = "put a copy of it back"
ANOTHER = (
    "start the query with another checkpointLocation: with startingOffsets=group it goes on where its "
    "groupId is, and its last batch may come twice"
)


def check_checkpoint(location: str, files: Files | None = None) -> None:
    """Raises Corrupt, with the file and the way out, when one is there that Spark could not read, and
    ConfigError when the location is no folder."""
    files = RealFiles() if files is None else files
    folder = _local(location)
    if folder is None or not files.exists(folder):
        return
    if not files.is_folder(folder):
        raise ConfigError(f"checkpointLocation names '{folder}', which is a file; give it a folder")
    metadata = os.path.join(folder, "metadata")
    if files.exists(metadata) and not _is_metadata(_text(files, metadata)):
        raise _half_written(folder, metadata, files, f"{COPY}, or {ANOTHER}")
    for path in _batches(files, os.path.join(folder, "offsets"))[-2:]:
        if not _is_plan(_text(files, path)):
            raise _half_written(folder, path, files, f"{COPY}, or {ANOTHER}")
    for path in _batches(files, os.path.join(folder, "commits"))[-1:]:
        if not _is_commit(_text(files, path)):
            batch = os.path.basename(path)
            raise _half_written(folder, path, files, f"remove it, and batch {batch} is carried out once more")


def _half_written(folder: str, path: str, files: Files, way_out: str) -> Corrupt:
    size = len(files.read(path))
    how = "is empty" if size == 0 else f"is only half written ({size} bytes)"
    return Corrupt(f"the checkpoint '{folder}' cannot be used: '{path}' {how}; {way_out}")


def _local(location: str) -> str | None:
    """The folder, if it is one of this machine."""
    path = location.removeprefix("file://").removeprefix("file:")
    return None if ":" in path.partition("/")[0] else os.path.abspath(path)


def _batches(files: Files, folder: str) -> list[str]:
    """The files of batches, in their order."""
    numbers = sorted(int(name) for name in files.list(folder) if name.isdecimal())
    return [os.path.join(folder, str(number)) for number in numbers]


def _text(files: Files, path: str) -> str:
    return files.read(path).decode(errors="replace")


def _is_metadata(text: str) -> bool:
    told = _json(text)
    return isinstance(told, dict) and isinstance(told.get("id"), str)


def _is_plan(text: str) -> bool:
    version, _, rest = text.partition("\n")
    about, *sources = rest.removesuffix("\n").split("\n")
    if not _is_version(version) or not sources or (about.strip() and _json(about) is None):
        return False
    return all(_is_offset(line.partition(":")[2] if version == "v2" else line) for line in sources)


def _is_offset(line: str) -> bool:
    """Offsets are JSON, and what another source calls so is taken for it as long as it is something."""
    return _json(line) is not None if line.startswith(("{", "[", '"')) else bool(line.strip())


def _is_commit(text: str) -> bool:
    version, _, about = text.partition("\n")
    return _is_version(version) and (not about.strip() or isinstance(_json(about), dict))


def _is_version(line: str) -> bool:
    return line.startswith("v") and line[1:].strip().isdecimal()


def _json(text: str) -> Any:
    """None when it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None
