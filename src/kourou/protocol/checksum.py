"""CRC-32 as zlib computes it, by the fastest code that is installed.

Every record is summed twice (its body, and all of it), so this is a twentieth of a send. Our own
(`kourou.native`) takes a quarter of zlib's time for a kilobyte; ISA-L, part of `kourou[server]`, half.
"""

from __future__ import annotations

from collections.abc import Callable

from kourou.native import native

crc32: Callable[..., int]

if native is not None:
    crc32 = native.crc32
else:
    try:
        from isal.isal_zlib import crc32
    except ImportError:
        from zlib import crc32  # noqa: F401  (it is, as that of this module)
