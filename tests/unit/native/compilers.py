"""Whether this machine could compile the native loops, which then have to be there."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest

import hatch_build

COMPILER = shutil.which(hatch_build.linker()[0])
HEADERS = Path(sysconfig.get_path("include")) / "Python.h"
IS_POSSIBLE = COMPILER is not None and HEADERS.exists() and not hatch_build.unfit()

needs_compiler = pytest.mark.skipif(
    not IS_POSSIBLE, reason="no C compiler, or no Python.h: install gcc and python3-dev"
)
