"""Run tests with the native loops compiled so that a mistake in C ends the process and says where it is.

    python -m tools.sanitize                     the tests of all that uses them: ten minutes
    python -m tools.sanitize tests/unit/native   these, or whatever pytest takes

AddressSanitizer sees each access beyond or after an object's life, and UndefinedBehaviorSanitizer overflows
and the like; assertions of Python's own headers are on. Python takes its memory from malloc meanwhile, else
small objects would lie in arenas that nobody watches. What is leaked is not looked for here, because Python
itself leaves much behind; `tests/unit/native/test_native_arguments.py` counts blocks instead.

As a plugin of pytest (`-p tools.sanitize`) this puts that module in the place of the usual one.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = "KOUROU_TEST_SANITIZED"
MODULE = "kourou.native._native"
FLAGS = (
    *("-O1", "-g", "-UNDEBUG", "-fno-wrapv", "-fno-omit-frame-pointer"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)
TESTS = (
    *("tests/unit/native", "tests/property", "tests/wire", "tests/fuzz/test_hostile_input.py"),
    *(
        "tests/unit/protocol",
        "tests/unit/store",
        "tests/unit/remoting",
        "tests/unit/broker",
        "tests/unit/replication",
    ),
    "tests/unit/spark",
)
OTHER_PROCESSES = ("tests/unit/native/test_native_build.py", "tests/unit/native/test_native_sanitized.py")
"""These compile and start others, which have nothing to gain from it."""


def missing() -> str:
    """What this machine lacks for it, or ""."""
    if sys.platform != "linux":
        return "it is done on Linux alone"
    if shutil.which("gcc") is None:
        return "there is no gcc"
    absent = [name for name, path in _libraries().items() if not Path(path).is_absolute()]
    return f"gcc has no {', '.join(absent)}" if absent else ""


def run(*arguments: str, is_shown: bool = False) -> subprocess.CompletedProcess[str]:
    """Compile, and run pytest with it; what it said is shown, or in `stdout`."""
    import hatch_build

    with tempfile.TemporaryDirectory(prefix="kourou-") as folder:
        module = Path(folder) / hatch_build.NAME
        hatch_build.compile_native(module, *FLAGS)
        environment = {
            **{name: text for name, text in os.environ.items() if name != "KOUROU_NATIVE"},
            PLACE: str(module),
            "LD_PRELOAD": " ".join(_libraries().values()),  # before anybody takes memory from another malloc
            "PYTHONMALLOC": "malloc",
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:handle_segv=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        ignored = [f"--ignore={path}" for path in OTHER_PROCESSES]
        command = [sys.executable, "-m", "pytest", "-p", "tools.sanitize", "-p", "no:cacheprovider"]
        return subprocess.run(
            [*command, *ignored, *arguments],
            cwd=ROOT,
            env=environment,
            text=True,
            stdout=None if is_shown else subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )


def _libraries() -> dict[str, str]:
    """Of gcc; the name alone where it has none."""
    return {
        name: subprocess.run(
            ["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    }


def _put_in_place(path: str) -> None:
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[MODULE] = module
    from kourou.native import native

    assert native is module, "the usual one is in use"


def main() -> None:
    lacking = missing()
    if lacking:
        sys.exit(f"make sanitize: NOT RUN, {lacking} (Debian and Ubuntu: the package gcc)")
    sys.exit(run(*(sys.argv[1:] or TESTS), is_shown=True).returncode)


if __name__ == "__main__":
    main()
elif PLACE in os.environ:
    _put_in_place(os.environ[PLACE])
