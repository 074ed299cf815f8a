"""Fetching one small page without asyncio: the list of name servers, say."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from kourou.errors import Unreachable
from kourou.remoting.config import ClientTls
from kourou.remoting.failures import in_words
from kourou.remoting.tls import client_context

BYTES_MAX = 64 * 1024


def fetch_text(url: str, timeout: float) -> str:
    """The text at an http or https `url`; no redirects. Raises Unreachable when it cannot be had."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    connection = (
        HTTPSConnection(host, parts.port, timeout=timeout, context=client_context(ClientTls()))
        if parts.scheme == "https"
        else HTTPConnection(host, parts.port, timeout=timeout)
    )
    try:
        connection.request("GET", parts.path or "/")
        reply = connection.getresponse()
        body = reply.read(BYTES_MAX + 1)
    except OSError as error:
        raise Unreachable(f"cannot fetch {url}: {in_words(error)}") from None
    except HTTPException as error:
        raise Unreachable(f"cannot fetch {url}: {type(error).__name__}: {error}") from None
    finally:
        connection.close()
    if reply.status != 200:
        raise Unreachable(f"cannot fetch {url}: it answered {reply.status} {reply.reason}")
    if len(body) > BYTES_MAX:
        raise Unreachable(f"cannot fetch {url}: it is longer than {BYTES_MAX} bytes")
    return body.decode("utf-8", "replace")
