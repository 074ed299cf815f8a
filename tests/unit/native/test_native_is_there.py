"""Where they can be compiled, the native loops are what is tested; nothing falls back to Python unseen."""

from __future__ import annotations

import os

import pytest

from kourou import native
from kourou.cli.main import run
from tests.unit.native.compilers import needs_compiler


@needs_compiler
@pytest.mark.skipif(os.environ.get("KOUROU_NATIVE") == "0", reason="KOUROU_NATIVE=0: their twins are tested")
def test_where_there_is_a_compiler_the_native_loops_are_in_use() -> None:
    assert native.native is not None, f"{native.missing}; rm -f .venv/compiled-* and then: make install"


def test_the_version_tells_whether_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.endswith(f", {native.described()}\n")


def test_words_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "native", None)
    monkeypatch.setattr(native, "missing", "of some reason")
    assert native.described() == "without native loops: of some reason"
    monkeypatch.setattr(native, "native", native)
    assert native.described() == "with native loops"
