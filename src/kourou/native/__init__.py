"""The innermost loops once more, in C. They are optional, and never do anything else than what they replace.

Each has its twin in Python, beside the code that calls it; the tests hold the two against each other. What is
unusual in any way is left to the twin. So nothing depends on this: without a C compiler at installation, or
with KOUROU_NATIVE=0, everything works, and a broker takes two to three times as long for a message.
"""

from __future__ import annotations

import os
from types import ModuleType

native: ModuleType | None = None
"""The compiled functions, as far as they are there."""

missing = ""
"""Why they are not, for people."""


def described() -> str:
    """Whether they are in use, for people."""
    return "with native loops" if native is not None else f"without native loops: {missing}"


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
        native = _native
