"""Whoever installs it gets the native loops where there is a C compiler, and a Kourou that works elsewhere.

Everything is built from an unpacked source distribution, so that the working tree is left alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

import pytest

import hatch_build
from tests.unit.native.compilers import needs_compiler

ROOT = Path(hatch_build.__file__).parent
pytestmark = pytest.mark.timeout(600)  # a busy machine is not a bug

WARNINGS = ("-Wall", "-Wextra", "-Werror")
QUICKLY = {"CFLAGS": "-O0"}
COMPILED = "compiled"
ABSENT = "without its native loops"
MODULE_BYTES_MAX = 256 * 1024


class Built(NamedTuple):
    path: Path
    names: list[str]
    said: str

    @property
    def modules(self) -> list[str]:
        return [name for name in self.names if name.endswith((".so", ".pyd", ".dylib"))]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    run("-m", "hatchling", "build", "-t", "sdist", "-d", str(folder), cwd=ROOT)
    [path] = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def tree(sdist: Path) -> Path:
    """What somebody has who downloaded it: not a clone."""
    with tarfile.open(sdist) as archive:
        archive.extractall(sdist.parent, filter="data")
    [tree] = [path for path in sdist.parent.iterdir() if path.is_dir()]
    return tree


@pytest.fixture(scope="module")
def native_wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return built(tree, tmp_path_factory.mktemp("native"), KOUROU_BUILD_NATIVE="1")


def built(tree: Path, folder: Path, **environment: str) -> Built:
    """The wheel, what is in it and what was said while it was built. Nothing else is left behind."""
    scratch = folder / "scratch"
    scratch.mkdir()
    wheels = folder / "wheels"
    arguments = ("-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels))
    said = run(*arguments, cwd=tree, TMPDIR=str(scratch), **environment)
    assert list(scratch.iterdir()) == []
    [path] = wheels.iterdir()
    with zipfile.ZipFile(path) as archive:
        return Built(path, archive.namelist(), said)


def run(*arguments: str, cwd: Path, **environment: str) -> str:
    """What a Python said to stderr. CalledProcessError when it failed."""
    kept = {name: text for name, text in os.environ.items() if name not in ("CC", hatch_build.VARIABLE)}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=cwd, env={**kept, **environment}, capture_output=True, text=True, check=True
    )
    return done.stderr


def unpacked(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def state_of(package_folder: Path, *flags: str, **environment: str) -> tuple[str, str]:
    """What is in use when `kourou` comes from there, and what was said on the way."""
    program = "import kourou.native as n, sys; print(n.__file__, n.described(), file=sys.stderr, sep='|')"
    said = run(*flags, "-c", program, cwd=package_folder, PYTHONPATH=str(package_folder), **environment)
    *warnings, last = said.splitlines()
    place, state = last.split("|")
    assert Path(place).is_relative_to(package_folder), "the tests' own kourou was looked at"
    return state, "\n".join(warnings)


# ---------------------------------------------------------------------------------------- with a compiler


@needs_compiler
def test_the_sources_compile_without_a_warning(tmp_path: Path) -> None:
    try:
        hatch_build.compile_native(tmp_path / hatch_build.NAME, *WARNINGS)
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stderr)
    assert [path.name for path in tmp_path.iterdir()] == [hatch_build.NAME]
    program = "import _native; assert _native.crc32(b'123456789') == 0xCBF43926"
    run("-c", program, cwd=tmp_path, PYTHONPATH=str(tmp_path))


@needs_compiler
def test_a_wheel_has_the_module_for_this_python_and_no_sources(native_wheel: Built) -> None:
    assert native_wheel.modules == [f"kourou/native/_native{EXTENSION_SUFFIXES[0]}"]
    assert not [name for name in native_wheel.names if name.endswith((".c", ".h"))]
    version = "".join(map(str, sys.version_info[:2]))
    assert re.fullmatch(
        rf"kourou-[\d.]+-cp{version}-cp{version}-(linux|macosx)_\w+\.whl", native_wheel.path.name
    )
    with zipfile.ZipFile(native_wheel.path) as archive:
        assert archive.getinfo(native_wheel.modules[0]).file_size < MODULE_BYTES_MAX
    assert ABSENT not in native_wheel.said


@needs_compiler
def test_what_is_installed_from_it_uses_the_module(native_wheel: Built, tmp_path: Path) -> None:
    folder = unpacked(native_wheel.path, tmp_path)
    assert state_of(folder) == ("with native loops", "")
    assert state_of(folder, KOUROU_NATIVE="0") == ("without native loops: KOUROU_NATIVE=0", "")


@needs_compiler
def test_an_installation_that_follows_its_tree_has_the_module_beside_its_stub(
    tree: Path, tmp_path: Path
) -> None:
    mine = Path(shutil.copytree(tree, tmp_path / "tree"))
    source, module = mine / "native" / "module.c", mine / "src" / hatch_build.PLACE
    run("-m", "hatchling", "build", "-t", "wheel:editable", "-d", str(tmp_path), cwd=mine, **QUICKLY)
    assert state_of(mine / "src") == ("with native loops", "")

    # What was compiled is for the sources that it was compiled from.
    source.write_text(source.read_text() + "/* changed */\n")
    state, warning = state_of(mine / "src")
    assert state.startswith("without native loops: they were compiled from other sources")
    assert "RuntimeWarning" in warning
    assert "hatch_build.py" in warning, "it says what to do"
    with pytest.raises(subprocess.CalledProcessError, match="exit status 1"):
        state_of(mine / "src", "-Werror")
    assert COMPILED in run("hatch_build.py", cwd=mine, **QUICKLY)
    assert state_of(mine / "src") == ("with native loops", "")

    # It stays in the tree, and out of what is built for others.
    wheel = built(mine, tmp_path, CC="/bin/false")
    assert (wheel.modules, module.exists()) == ([], True)
    assert ABSENT in run("hatch_build.py", cwd=mine, CC="/bin/false")
    assert not module.exists(), "one that was compiled earlier would be older than what is asked for"


@needs_compiler
def test_a_module_for_another_python_is_not_looked_at(native_wheel: Built, tmp_path: Path) -> None:
    folder = unpacked(native_wheel.path, tmp_path)
    module = folder / native_wheel.modules[0]
    module.rename(module.with_name("_native.cpython-39-somewhere.so"))
    state, said = state_of(folder)
    assert (state, said) == ("without native loops: they were not compiled when it was installed", "")


def test_a_module_that_cannot_be_loaded_says_why(tree: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tree / "src", tmp_path / "installed"))
    (folder / hatch_build.PLACE).write_bytes(b"not a library at all")
    state, _ = state_of(folder)
    assert state.startswith("without native loops: /")
    assert hatch_build.NAME in state


# ------------------------------------------------------------------------------------- without a compiler


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"CC": "/bin/false"}, "/bin/false ended with 1"),
        (
            {"CC": "/no/such/compiler"},
            "there is no C compiler (No such file or directory: /no/such/compiler)",
        ),
        ({"PATH": "/no/such/folder"}, "there is no C compiler (No such file or directory: cc)"),
        ({"KOUROU_BUILD_NATIVE": "0"}, "KOUROU_BUILD_NATIVE=0"),
        (
            {"CFLAGS": "-include /no/such/header.h"},
            "fatal error: /no/such/header.h: No such file or directory",
        ),
    ],
    ids=["fails", "named and not there", "nothing on the path", "not wished", "no headers"],
)
def test_without_a_compiler_the_wheel_is_one_for_everybody_and_says_so_in_a_line(
    tree: Path, tmp_path: Path, environment: dict[str, str], why: str
) -> None:
    wheel = built(tree, tmp_path, **environment)
    assert wheel.path.name.endswith("-py3-none-any.whl")
    assert wheel.modules == []
    [line] = [line for line in wheel.said.splitlines() if ABSENT in line]
    assert line.endswith(why)
    if "CC" in environment:  # one of them is enough to look into
        state, said = state_of(unpacked(wheel.path, tmp_path / "installed"))
        assert (state, said) == ("without native loops: they were not compiled when it was installed", "")


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        (
            {"KOUROU_BUILD_NATIVE": "1", "CC": "/bin/false"},
            "KOUROU_BUILD_NATIVE=1, but the native loops cannot be compiled: /bin/false ended with 1",
        ),
        ({"KOUROU_BUILD_NATIVE": "yes"}, "KOUROU_BUILD_NATIVE=yes: it is 0"),
    ],
)
def test_a_wish_that_cannot_be_met_is_an_error(
    tree: Path, tmp_path: Path, environment: dict[str, str], told: str
) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        built(tree, tmp_path, **environment)
    assert told in caught.value.stderr
    assert "Traceback" not in caught.value.stderr


# ------------------------------------------------------------------------------------- what is handed out


def test_a_source_distribution_has_the_sources_and_nothing_compiled(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = {f"native/{path.name}" for path in (ROOT / "native").glob("*.[ch]")}
    assert {*sources, "hatch_build.py", "src/kourou/native/_native.pyi"} <= names
    assert not [name for name in names if name.endswith((".so", ".o", ".pyc"))]
