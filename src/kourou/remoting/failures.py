"""What went wrong with a connection, in words for the one who reads the error."""

from __future__ import annotations

import os
import ssl


def in_words(error: OSError) -> str:
    """`error` without numbers, addresses and library names; with the way out where TLS is to blame."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); "
            "name the CA that signed it, or the name it was given"
        )
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({getattr(error, 'reason', None) or error}); is TLS on at both ends?"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)  # asyncio puts a sentence of its own into `strerror`
    return error.strerror or str(error) or type(error).__name__
