"""Machines of their own on one machine: network namespaces, and a wire between them that can really be cut.

        the test, 10.213.n.1 ─────┬──────────────┬───── sees everybody, all the time
                                main           island
                             ┌────┴────┐         │
                          machine   machine   machine      each 10.213.n.11 and on, with a wire of its own

Whoever is put on the island reaches the test and nobody else: its frames go nowhere, nobody is told, and
connections hang as they do when a switch dies. Needs root, `ip` and bridges; `CannotWire` says what is
missing.
"""

from __future__ import annotations

import itertools
import os
import random
import string
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

TEST_MAC = "02:6b:6f:75:72:01"
"""Of both bridges: whoever is moved finds the test where it was."""
CLONE_NEWNET = 0x40000000


class CannotWire(Exception):
    """Network namespaces are not to be had here."""


_LETTERS = itertools.cycle(string.ascii_lowercase)


class Wires:
    """Two bridges, and the machines on them."""

    def __init__(self) -> None:
        # Of its own each time: what was taken down just before may take a moment to be gone.
        self._name = f"k{os.getpid() % 1_000_000}{next(_LETTERS)}"
        self._net = f"10.213.{random.randrange(1, 255)}"
        self._count = 0
        self._undo: list[tuple[str, ...]] = []

    @property
    def test_host(self) -> str:
        return f"{self._net}.1"

    def build(self) -> None:
        for bridge in (self._main, self._island):
            self._ip("link", "add", bridge, "address", TEST_MAC, "type", "bridge")
            self._undo.append(("link", "del", bridge))
            self._ip("link", "set", bridge, "up")
        self._ip("addr", "add", f"{self.test_host}/32", "dev", self._main)

    @property
    def _main(self) -> str:
        return f"{self._name}m"

    @property
    def _island(self) -> str:
        return f"{self._name}i"

    def machine(self) -> Machine:
        """One more, on the main bridge."""
        self._count += 1
        name, wire = f"{self._name}-{self._count}", f"{self._name}w{self._count}"
        machine = Machine(name, wire, f"{self._net}.{10 + self._count}")
        self._ip("netns", "add", name)
        self._undo.append(("netns", "del", name))
        self._ip("link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", name)
        self._ip("-n", name, "addr", "add", f"{machine.host}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            self._ip("-n", name, "link", "set", device, "up")
        self._ip("link", "set", wire, "up")
        self.join(machine)
        return machine

    def join(self, machine: Machine) -> None:
        self._plug(machine, self._main)

    def isolate(self, machine: Machine) -> None:
        """From all other machines, both ways; the test still reaches it."""
        self._plug(machine, self._island)

    def _plug(self, machine: Machine, bridge: str) -> None:
        self._ip("link", "set", machine.wire, "master", bridge)
        self._ip("route", "replace", f"{machine.host}/32", "dev", bridge, "src", self.test_host)

    def take_down(self) -> None:
        for command in reversed(self._undo):
            with suppress(CannotWire):
                self._ip(*command)

    def _ip(self, *arguments: str) -> None:
        try:
            subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=20)
        except FileNotFoundError:
            raise CannotWire("there is no `ip` here") from None
        except subprocess.CalledProcessError as error:
            raise CannotWire(f"ip {' '.join(arguments)}: {error.stderr.strip()}") from None


class Machine:
    """A namespace with a wire."""

    def __init__(self, name: str, wire: str, host: str) -> None:
        self.name = name
        self.wire = wire
        self.host = host

    @property
    def entrance(self) -> str:
        """What a program does first to run on this machine."""
        return (
            "import ctypes, os\n"
            f"wires = os.open('/run/netns/{self.name}', os.O_RDONLY)\n"
            f"assert ctypes.CDLL(None).setns(wires, {CLONE_NEWNET}) == 0, 'cannot enter {self.name}'\n"
            "os.close(wires)\n"
        )


@contextmanager
def wires() -> Iterator[Wires]:
    """Raises CannotWire where it cannot be done."""
    built = Wires()
    try:
        built.build()
        yield built
    finally:
        built.take_down()
