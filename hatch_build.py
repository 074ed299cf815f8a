"""Compiles `native/*.c` into `kourou.native._native` where there is a C compiler; else that is left out.

Kourou works without it, slower: each of its functions has a twin in Python. KOUROU_BUILD_NATIVE=0 leaves it
out, KOUROU_BUILD_NATIVE=1 makes it an error when it cannot be compiled (for wheels that are to be published).
CC, CFLAGS, LDFLAGS and ARCHFLAGS mean what they always do.

    pip install .          a wheel for this platform with the module in it; else one for any platform
    pip install -e .       the module is put beside its stub, in src/kourou/native
    python hatch_build.py  only that: what `make` does when a source has changed
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
NAME = "_native" + (sysconfig.get_config_var("EXT_SUFFIX") or ".so")  # says for which Python it is
PLACE = f"kourou/native/{NAME}"
VARIABLE = "KOUROU_BUILD_NATIVE"
FLAGS = ("-std=gnu11", "-O2", "-g0", "-DNDEBUG", "-fPIC", "-fwrapv", "-fvisibility=hidden")
STRIPPED = "-Wl,-x" if sys.platform == "darwin" else "-Wl,-s"


class NativeHook(BuildHookInterface):  # type: ignore[type-arg]
    """What hatchling calls around a build, whoever asked for it."""

    folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        if version == "editable":
            target = ROOT / "src" / PLACE
        else:
            self.folder = tempfile.TemporaryDirectory(prefix="kourou-")
            target = Path(self.folder.name) / NAME
            build_data["force_include"][str(target)] = PLACE
        missing = made(target)
        if missing:
            build_data["force_include"].pop(str(target), None)
            self.app.display_warning(missing)
        else:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.folder is not None:
            self.folder.cleanup()


def made(target: Path) -> str:
    """Compile it, as far as that is wished and possible: "", or in one line why it is not there."""
    wish = os.environ.get(VARIABLE, "")
    if wish not in ("", "0", "1"):
        sys.exit(f"{VARIABLE}={wish}: it is 0 (leave it out), 1 (it has to be there) or unset (if possible)")
    missing = f"{VARIABLE}=0" if wish == "0" else unfit()
    if not missing:
        try:
            compile_native(target, STRIPPED)
        except (OSError, subprocess.CalledProcessError) as error:
            missing = _why(error)
    if not missing:
        return ""
    if wish == "1":
        sys.exit(f"{VARIABLE}=1, but the native loops cannot be compiled: {missing}")
    target.unlink(missing_ok=True)  # never an older one
    return f"kourou is installed without its native loops, and slower for it: {missing}"


def unfit() -> str:
    if sys.implementation.name != "cpython":
        return "they are for CPython"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "they need the GIL"  # and would switch it on for the whole process
    return ""


def _why(error: OSError | subprocess.CalledProcessError) -> str:
    if isinstance(error, OSError):
        return f"there is no C compiler ({error.strerror}: {error.filename})"
    told = [line for line in error.stderr.splitlines() if "error" in line]
    return told[0].strip() if told else f"{error.cmd[0]} ended with {error.returncode}"


def compile_native(target: Path, *flags: str) -> None:
    """Raises OSError without a compiler, CalledProcessError when it fails; `target` then is as it was."""
    sources = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "native").glob("*.c"))
    stamp = f'-DKOUROU_SOURCES="{sources_stamp():08x}"'
    include = f"-I{sysconfig.get_path('include')}"
    wished = [flag for name in ("CFLAGS", "ARCHFLAGS", "LDFLAGS") for flag in _words(os.environ.get(name))]
    with tempfile.TemporaryDirectory(prefix=".compiling-", dir=target.parent) as folder:
        fresh = Path(folder) / NAME
        command = [*linker(), *FLAGS, *flags, *wished, stamp, include, *sources, "-o", str(fresh)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603
        fresh.replace(target)  # at once: a broker may be loading it


def sources_stamp() -> int:
    """One number for one content of the sources; kourou.native compares it with those that lie beside it."""
    stamp = 0
    for path in sorted((ROOT / "native").glob("*.[ch]")):
        stamp = zlib.crc32(path.read_bytes(), stamp)
    return stamp


def linker() -> list[str]:
    """What links extensions of this Python: `gcc -shared`, `clang -bundle …`; CC replaces the first word."""
    compiler, *options = _words(sysconfig.get_config_var("LDSHARED")) or ["cc", "-shared"]
    if shutil.which(compiler) is None:
        compiler = "cc"  # of a Python that was built elsewhere
    return [*(_words(os.environ.get("CC")) or [compiler]), *options]


def _words(text: str | None) -> list[str]:
    return shlex.split(text or "")


if __name__ == "__main__":
    print(made(ROOT / "src" / PLACE) or f"compiled {PLACE}", file=sys.stderr)
