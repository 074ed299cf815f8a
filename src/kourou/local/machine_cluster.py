"""A cluster of processes on this machine, and the folder that remembers it.

    FOLDER/cluster.json                 which servers there are, and their processes
    FOLDER/NAME/broker.conf             (or namesrv.conf) as written once; edit it, and start NAME again
    FOLDER/NAME/server.log
    FOLDER/NAME/store/…

The processes go on when the command that started them has ended. Whoever comes next finds them by the folder.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from kourou.doors import processes
from kourou.doors.files import Files
from kourou.doors.processes import Process
from kourou.errors import ConfigError, MQError
from kourou.local.layouts import Place, Server, planned

FILE: Final = "cluster.json"
FILES_OF_KIND: Final = {"nameserver": "namesrv.conf", "broker": "broker.conf"}
HOST: Final = "127.0.0.1"
BROKER_PORTS_APART: Final = 10
FAST_PORT, HA_PORT = -2, 1
STOP_SECONDS_MAX: Final = 20.0
LOG_LINES_SHOWN: Final = 5
PROGRAM: Final = "import sys; from kourou.cli.main import main; sys.argv[0] = 'kourou'; main()"
SMALL: Final = {"mappedFileSizeCommitLog": str(64 * 1024 * 1024)}
"""A gigabyte at a time is for servers; here several brokers share one disk."""


class _Kept(msgspec.Struct):
    number: int
    began: str
    name: str
    kind: str
    host: str
    port: int
    broker: str = ""


class _File(msgspec.Struct):
    layout: str
    servers: list[_Kept]


class Running(msgspec.Struct, frozen=True):
    """A server of the cluster, and how it is."""

    name: str
    kind: str
    address: str
    state: str
    """`running`, `paused` or `stopped`."""
    process: int
    broker: str = ""


class MachineCluster:
    """The servers of one folder."""

    def __init__(self, folder: str, files: Files) -> None:
        self.folder = os.path.abspath(folder)
        self._files = files
        self._path = f"{self.folder}/{FILE}"

    # ---------------------------------------------------------------------------------------------- up, down

    def up(
        self,
        layout: str | None = None,
        *,
        name_servers: int = 1,
        name_server_port: int = 0,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
    ) -> list[Running]:
        """Write the files and start everything; without a layout, the one the folder has. Ports of 0: any
        free ones. Raises ConfigError, with nothing started, when a cluster of this folder is running, or has
        another layout: its messages would be left behind."""
        if self._files.exists(self._path):
            if any(each.state != "stopped" for each in self.servers()):
                raise ConfigError(
                    f"the cluster in {self.folder} is running; see `kourou cluster status`, end it with "
                    "`kourou cluster down`, or choose another folder (--data)"
                )
            if layout not in (None, self.layout):
                raise ConfigError(
                    f"{self.folder} has the messages of a cluster of layout {self.layout}, not {layout}; "
                    "choose another folder (--data), or let them go with `kourou cluster down --wipe`"
                )
            layout = self.layout
        layout = layout or "1m"
        places = _Ports(self.folder, name_server_port, port)
        servers = planned(layout, places, name_servers=name_servers, more={**SMALL, **(settings or {})})
        kept = []
        for server in servers:
            self._write(server)
            kept.append(
                _Kept(
                    *(0, "", server.name, server.kind, server.host, server.port),
                    broker=server.settings.get("brokerName", ""),
                )
            )
        self._save(_File(layout, kept))
        for server in servers:
            self.start(server.name)
        return self.servers()

    def _write(self, server: Server) -> None:
        folder = f"{self.folder}/{server.name}"
        self._files.make_folders(folder)
        text = server.configuration().encode()
        self._files.write_atomically(f"{folder}/{FILES_OF_KIND[server.kind]}", text)

    def down(self, *, wipe: bool = False) -> list[str]:
        """Stop everything in order, brokers first; the names of those that had to be killed."""
        kept = self._load().servers
        killed = []
        for kind in ("broker", "nameserver"):
            told = {_process(each): each.name for each in kept if each.kind == kind}
            for process in told:
                processes.tell(process, signal.SIGCONT)  # a paused one does not hear SIGTERM
                processes.tell(process, signal.SIGTERM)
            for process in processes.wait_for_end(told, STOP_SECONDS_MAX):
                processes.tell(process, signal.SIGKILL)
                killed.append(told[process])
            processes.wait_for_end(told, 2.0)
        if wipe:
            for each in kept:
                remove_tree(self._files, f"{self.folder}/{each.name}")
            self._files.remove(self._path)
            if self._files.exists(f"{self._path}.bak"):
                self._files.remove(f"{self._path}.bak")
        return killed

    # ------------------------------------------------------------------------------------------ one of them

    def start(self, name: str) -> None:
        """Start a server that is not running."""
        file = self._load()
        kept = self._named(file, name)
        if processes.is_running(_process(kept)):
            raise ConfigError(f"{name} is running, as process {kept.number}")
        folder = f"{self.folder}/{name}"
        command = [sys.executable, "-c", PROGRAM, kept.kind, "-c", f"{folder}/{FILES_OF_KIND[kept.kind]}"]
        ours = ("KOUROU_BROKER_", "KOUROU_NAMESERVER_", "NAMESRV")  # said to us, not to them
        clean = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        process = processes.start(command, f"{folder}/server.log", clean)
        kept.number, kept.began = process
        self._save(file)

    def tell(self, name: str, number: signal.Signals) -> None:
        """Send a signal. Raises ConfigError when there is no such server, or it is not running."""
        kept = self._named(self._load(), name)
        if not processes.tell(_process(kept), number):
            raise ConfigError(f"{name} is not running; start it with `kourou cluster start {name}`")
        if number in (signal.SIGKILL, signal.SIGTERM):
            processes.wait_for_end([_process(kept)], STOP_SECONDS_MAX)

    def servers(self) -> list[Running]:
        """All of them as they are now."""
        return [
            Running(
                name=each.name,
                kind=each.kind,
                address=f"{each.host}:{each.port}",
                state=_state(_process(each)),
                process=each.number,
                broker=each.broker,
            )
            for each in self._load().servers
        ]

    @property
    def name_servers(self) -> str:
        """As `-n` takes them."""
        return ";".join(each.address for each in self.servers() if each.kind == "nameserver")

    @property
    def layout(self) -> str:
        return self._load().layout

    def last_words(self, name: str) -> str:
        """The end of a server's log."""
        path = f"{self.folder}/{name}/server.log"
        try:
            lines = self._files.read(path).decode(errors="replace").splitlines()
        except OSError:
            return f"no {path}"
        return "\n".join(lines[-LOG_LINES_SHOWN:])

    def _named(self, file: _File, name: str) -> _Kept:
        for each in file.servers:
            if each.name == name:
                return each
        known = ", ".join(each.name for each in file.servers)
        raise ConfigError(f"no server '{name}' in {self.folder}; there are {known}")

    def _load(self) -> _File:
        try:
            return msgspec.json.decode(self._files.read(self._path), type=_File)
        except FileNotFoundError:
            raise ConfigError(
                f"no cluster in {self.folder}: start one with `kourou cluster up`, or name its folder"
            ) from None
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise MQError(f"{self._path} makes no sense ({error}); was it edited?") from None

    def _save(self, file: _File) -> None:
        self._files.write_atomically(self._path, msgspec.json.format(msgspec.json.encode(file), indent=1))


class _Ports:
    """Gives every server a port, the first time it is asked for."""

    def __init__(self, folder: str, name_server_port: int, port: int) -> None:
        self._folder = folder
        self._next = {"nameserver": name_server_port, "broker": port}
        self._places: dict[str, Place] = {}

    def __call__(self, kind: str, name: str) -> Place:
        if name not in self._places:
            self._places[name] = Place(HOST, self._port(kind), f"{self._folder}/{name}")
        return self._places[name]

    def _port(self, kind: str) -> int:
        given = self._next[kind]
        if given:
            self._next[kind] += BROKER_PORTS_APART if kind == "broker" else 1
            return given
        taken = {place.port for place in self._places.values()}
        while True:
            port = processes.free_port((FAST_PORT, HA_PORT) if kind == "broker" else ())
            if not taken & {port - 3, port - 2, port - 1, port, port + 1, port + 2, port + 3}:
                return port


def remove_tree(files: Files, folder: str) -> None:
    """A folder and everything in it."""
    if not files.exists(folder):
        return
    for name in files.list(folder):
        path = f"{folder}/{name}"
        if files.is_folder(path):
            remove_tree(files, path)
        else:
            files.remove(path)
    files.remove_folder(folder)


def _process(kept: _Kept) -> Process:
    return Process(kept.number, kept.began)


def _state(process: Process) -> str:
    if not process.number or not processes.is_running(process):
        return "stopped"
    return "paused" if processes.is_paused(process) else "running"
