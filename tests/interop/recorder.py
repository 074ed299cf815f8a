"""Stand between a real client and a real server, and write down every frame.

    client  -->  recorder 127.0.0.1:proxy  -->  server 127.0.0.1:real
                     |
                     v
              list of Recorded(connection, sent_by_client, bytes), in the order of arrival

A recording holds the bytes exactly as the peers sent them. What the recorder *passes on* differs in one
point: the text of the real address is replaced by that of the proxy in what servers say, so that a client
that learns a broker's address from a route keeps talking through its recorder. Both ports have five digits,
which keeps every length in the frame true.

`python -m tests.interop.recorder [FOLDER]` makes the recordings anew, under tests/wire/recorded unless told
otherwise (needs Java, Maven, Go and Node).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop import apache, go_client, node_client
from tests.interop.stock_clients import cpp_client

ONE_WAY = 2
RECORDINGS = Path(__file__).resolve().parents[1] / "wire" / "recorded"


class Recorded(NamedTuple):
    """One frame, length prefix included."""

    peer: str  # "nameserver" or "broker": who the client talked to
    connection: int
    sent_by_client: bool
    data: bytes


@dataclass
class Session:
    """What one real client said to real servers, and what they answered."""

    client: str
    server: str
    story: str
    frames: list[Recorded] = field(default_factory=list)


class Recorder:
    """A recording proxy in front of `target`; it lives on a thread of its own until `close`."""

    def __init__(self, peer: str, target: str, session: Session, rewrite: Callable[[bytes], bytes]) -> None:
        self._peer = peer
        self._host, self._port = target.rsplit(":", 1)
        self._session = session
        self._rewrite = rewrite
        self._connections = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        port = apache.free_ports_in_a_row()
        self.address = f"127.0.0.1:{port}"
        asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", port), self._loop
        ).result(10)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self._connections += 1
        connection = self._connections
        server, to_server = await asyncio.open_connection(self._host, int(self._port))
        await asyncio.gather(
            self._pass_on(client, to_server, connection, sent_by_client=True),
            self._pass_on(server, to_client, connection, sent_by_client=False),
        )

    async def _pass_on(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        connection: int,
        *,
        sent_by_client: bool,
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                prefix = await source.readexactly(4)
                frame = prefix + await source.readexactly(struct.unpack(">I", prefix)[0])
                self._session.frames.append(Recorded(self._peer, connection, sent_by_client, frame))
                sink.write(frame if sent_by_client else self._rewrite(frame))
                await sink.drain()
        sink.close()


@contextlib.contextmanager
def recorded(session: Session, name_server: str, broker: str | None = None) -> Iterator[str]:
    """Yields the address of a name server whose every frame, and whose broker's, goes into `session`."""
    recorders: list[Recorder] = []
    addresses: dict[bytes, bytes] = {}

    def rewrite(frame: bytes) -> bytes:
        for real, proxy in addresses.items():
            frame = frame.replace(real, proxy)
        return frame

    try:
        if broker:
            recorders.append(Recorder("broker", broker, session, rewrite))
            addresses[broker.encode()] = recorders[-1].address.encode()
        recorders.append(Recorder("nameserver", name_server, session, rewrite))
        yield recorders[-1].address
    finally:
        for recorder in recorders:
            recorder.close()


# --- files ---------------------------------------------------------------------------------------------


def save(session: Session, path: Path) -> None:
    """One JSON object a line: what it is, then the frames."""
    lines = [json.dumps({"client": session.client, "server": session.server, "story": session.story})]
    for peer, connection, sent_by_client, data in session.frames:
        row = {
            "peer": peer,
            "connection": connection,
            "way": ">" if sent_by_client else "<",
            "frame": base64.b64encode(data).decode(),
        }
        lines.append(json.dumps(row, separators=(",", ":")))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def load(path: Path) -> Session:
    first, *rows = map(json.loads, path.read_text().splitlines())
    session = Session(first["client"], first["server"], first["story"])
    for row in rows:
        frame = base64.b64decode(row["frame"])
        session.frames.append(Recorded(row["peer"], row["connection"], row["way"] == ">", frame))
    return session


# --- making the recordings -----------------------------------------------------------------------------


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for version in apache.VERSIONS:
            for name, session in _record(version, Path(scratch) / version):
                path = target / f"{name}-{version}.jsonl"
                save(session, path)
                print(f"{path.name}: {len(session.frames)} frames, {path.stat().st_size} bytes")


def _record(version: str, folder: Path) -> Iterator[tuple[str, Session]]:
    folder.mkdir()
    with apache.name_server(version, folder) as names:
        registering = Session(
            f"Apache broker {version}", f"Apache name server {version}", "a broker starts and stops"
        )
        with (
            recorded(registering, names.address) as proxy,
            apache.broker(version, folder, proxy, registered_at=names.address) as broker,
        ):
            yield from _record_clients(version, folder, names.address, broker.address)
            broker.stop()
        yield "broker-registers", registering

        compressed = {"registered_at": "", "compressedRegister": "true"}
        yield "broker-registers-compressed", _record_broker(version, folder, names.address, compressed, {103})
        # Without forceRegister a broker asks for the data version first; with acting masters (5.x) it also
        # sends heartbeats.
        beating = {"forceRegister": "false"}
        codes = {103, 322}
        if version.startswith("5."):
            beating |= {"enableSlaveActingMaster": "true", "compatibleWithOldNameSrv": "false"}
            codes |= {901, 904}
        yield "broker-heartbeats", _record_broker(version, folder, names.address, beating, codes)


def _record_broker(
    version: str, folder: Path, names: str, settings: dict[str, str], until_answered: set[int]
) -> Session:
    """A broker with `settings`, until each of these requests was made and answered.

    Not until it is registered: a 5.3.3 name server answers its own broker's compressed body with a
    NullPointerException.
    """
    told = " ".join(f"{key}={value}" for key, value in settings.items() if value)
    session = Session(f"Apache broker {version}", f"Apache name server {version}", f"a broker with {told}")
    options: dict[str, Any] = {"registered_at": names, "name": "apache-b", **settings}
    with recorded(session, names) as proxy, apache.broker(version, folder, proxy, **options):
        while not until_answered <= _answered(session):
            time.sleep(0.1)
    return session


def _answered(session: Session) -> set[int]:
    """The request codes that have been answered so far, or want no answer (JSON headers only)."""
    codes: dict[int, int] = {}
    answered = set()
    for frame in list(session.frames):
        header_length = struct.unpack_from(">I", frame.data, 4)[0]
        header = json.loads(frame.data[8 : 8 + header_length])
        if frame.sent_by_client:
            codes[header["opaque"]] = header["code"]
            if header["flag"] & ONE_WAY:
                answered.add(header["code"])
        else:
            answered.add(codes.get(header["opaque"], -1))
    return answered


def _record_clients(version: str, folder: Path, names: str, broker: str) -> Iterator[tuple[str, Session]]:
    def session(story: str) -> Session:
        return Session(f"Java client {version}", f"Apache {version}", story)

    binary = ("-Drocketmq.serialize.type=ROCKETMQ",)
    long_header = ("-Dorg.apache.rocketmq.client.sendSmartMsg=false",)
    sends: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = [
        ("send-sync", "sync", (), ()),
        ("send-async", "async", (), ()),
        ("send-oneway", "oneway", (), ()),
        ("send-batch", "batch", (), ()),
        ("send-compressed", "sync", ("5000",), ()),
        ("send-long-header", "sync", (), long_header),
        ("send-binary-header", "sync", (), binary),
    ]
    for name, way, more, options in sends:
        told = session(f"send 4 messages {way}, options {' '.join(options) or 'none'}")
        topic = f"Topic-{name}"
        with recorded(told, names, broker) as proxy:
            apache.traffic(
                version, folder, "send", proxy, "senders", topic, way, "4", name, *more, options=options
            )
        yield name, told

    consumes: list[tuple[str, str, str, tuple[str, ...]]] = [
        ("consume", "Topic-send-sync", "*", ()),
        ("consume-by-tag", "Topic-send-sync", "even", ()),
        ("consume-binary-header", "Topic-send-compressed", "*", binary),
    ]
    for name, topic, expression, options in consumes:
        told = session(f"push consume {topic} with {expression!r}, options {' '.join(options) or 'none'}")
        count = "2" if expression == "even" else "4"
        with recorded(told, names, broker) as proxy:
            apache.traffic(
                version,
                folder,
                "consume",
                proxy,
                f"group-{name}",
                topic,
                expression,
                count,
                "30",
                options=options,
            )
        yield name, told

    yield from _record_stock_clients(version, folder, names, broker)

    told = Session(f"mqadmin {version}", f"Apache {version}", "admin verbs, one connection each")
    with recorded(told, names, broker) as proxy:
        apache.mqadmin(version, folder, *(f"{verb} -n {proxy}" for verb in ADMIN_VERBS))
    yield "mqadmin", told


def _record_stock_clients(
    version: str, folder: Path, names: str, broker: str
) -> Iterator[tuple[str, Session]]:
    """Clients in other languages than Java."""
    for name, arguments in (("cpp-produce", ["8"]), ("cpp-push", ["8", "20"])):
        told = Session("C++ client of the wheel rocketmq 0.4.4", f"Apache {version}", name)
        with recorded(told, names, broker) as proxy:
            cpp_client(folder, name.removeprefix("cpp-"), proxy, "cpp-group", "Topic-cpp", *arguments)
        yield name, told

    told = Session(f"Go client {go_client.CLIENT}", f"Apache {version}", "send in every way, push consume")
    with recorded(told, names, broker) as proxy:
        go_client.run(folder, "traffic", proxy, "Topic-go")
    yield "go-traffic", told

    told = Session("Node client ali-ons 3.12.0", f"Apache {version}", "send and push consume")
    with recorded(told, names, broker) as proxy:
        node_client.run(folder, "traffic", proxy, "Topic-node")
    yield "node-traffic", told


# All that a name server serves to the admin tool, and topic creation.
ADMIN_VERBS = (
    "updateTopic -c DefaultCluster -t AdminTopic -r 8 -w 8",
    "topicRoute -t AdminTopic",
    "topicRoute -t NoSuchTopic",
    "topicList",
    "topicClusterList -t AdminTopic",
    "clusterList",
    "updateKvConfig -s space -k key -v value",
    "deleteKvConfig -s space -k key",
    "updateOrderConf -t AdminTopic -v apache-a:4 -m put",
    "updateOrderConf -t AdminTopic -m get",
    "getNamesrvConfig",
    "wipeWritePerm -b apache-a",
    "addWritePerm -b apache-a",
)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDINGS)
