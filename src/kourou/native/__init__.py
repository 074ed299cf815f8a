"""The innermost loops once more, in C. They are optional, and never do anything else than what they replace.

Each has its twin in Python, beside the code that calls it; the tests hold the two against each other. What is
unusual in any way is left to the twin. So nothing depends on this: without a C compiler at installation, or
with KOUROU_NATIVE=0, everything works, and a broker takes two to three times as long for a message.
"""

from __future__ import annotations

import os
import warnings
import zlib
from types import ModuleType

native: ModuleType | None = None
"""The compiled functions, as far as they are there."""

missing = ""
"""Why they are not, for people."""


def described() -> str:
    """Whether they are in use, for people."""
    return "with native loops" if native is not None else f"without native loops: {missing}"


def _is_stale(compiled: ModuleType) -> bool:
    """Whether the sources lie beside us, as for `pip install -e .`, and are others by now.

    A wheel has no sources: what is in it was made together.
    """
    folder = os.path.normpath(os.path.join(os.path.dirname(__file__), "../../../native"))
    if not os.path.exists(os.path.join(folder, "kourou.h")):
        return False
    stamp = 0
    for name in sorted(os.listdir(folder)):
        if name.endswith((".c", ".h")):
            with open(os.path.join(folder, name), "rb") as source:
                stamp = zlib.crc32(source.read(), stamp)
    return bool(getattr(compiled, "SOURCES", None) != f"{stamp:08x}")


if os.environ.get("KOUROU_NATIVE") == "0":
    missing = "KOUROU_NATIVE=0"
else:
    try:
        import kourou.native._native as _native
    except ModuleNotFoundError:
        missing = "they were not compiled when it was installed"
    except ImportError as error:
        missing = str(error)
    else:
        if _is_stale(_native):
            missing = "they were compiled from other sources (python hatch_build.py compiles them)"
            warnings.warn(f"the native loops are left out, {missing}", RuntimeWarning, stacklevel=2)
        else:
            native = _native
