"""Numbers as wide as Java's, for structs that are decoded from a peer's bytes.

What is taken in is also stored, replicated and handed on to peers that know no wider ones: a number that does
not fit is refused where it comes in.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
