"""The address clients are told to reach this broker at.

It stands in the route, in every stored message and in every offset id. Its port is known once the broker
listens (a test may ask for any free one), which is before the first request is served.
"""

from __future__ import annotations

from kourou.protocol.record import pack_host
from kourou.remoting.address import format_address


class Advertised:
    """Host and port, in the three forms they are needed in."""

    __slots__ = ("_host", "address", "hex", "packed")

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self.listens_on(port)

    def listens_on(self, port: int) -> None:
        """The port is this one."""
        self.address = format_address(self._host, port)
        self.packed = pack_host(self._host, port)
        self.hex = self.packed.hex().upper().encode()
