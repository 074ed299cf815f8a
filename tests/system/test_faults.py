"""What goes wrong is said in one line that names the value and the way out; nothing is lost.

Exit codes: 1 failure, 2 usage or configuration, 3 not found, 4 denied, 5 unreachable, 74 disk fault.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, request
from kourou.protocol.frame import join
from kourou.protocol.headers import QueueNamed
from kourou.remoting.address import parse_address
from kourou.remoting.blocking import BlockingClient
from tests.kourou_process import (
    PROGRAM,
    Serving,
    kourou,
    serving_all,
    serving_broker,
)
from tests.unit.store.folder import mark_of_format

NOBODY = "127.0.0.1:1"
SEGMENT = "0" * 20


def assert_one_clear_line(said: str, *words: str) -> None:
    """One line of ours, without the insides of the program."""
    assert "Traceback" not in said
    assert said.startswith("kourou: ")
    assert said.count("\n") == 1, said
    for word in words:
        assert word in said


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every path below `folder` and what is in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


# ------------------------------------------------------------------------ what keeps a server from starting


class Fault(NamedTuple):
    """How to bring it about, what is typed, and what is said."""

    name: str
    prepare: Callable[[Path], object]
    arguments: tuple[str, ...]
    exit_code: int
    words: tuple[str, ...]


def nothing(folder: Path) -> None:
    pass


def config(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "some.conf").write_text(text)


def config_bytes(data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "some.conf").write_bytes(data)


def store_with(path: str, data: bytes = b"") -> Callable[[Path], object]:
    def prepare(folder: Path) -> None:
        file = folder / "store" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    return prepare


def newer_checkpoint(folder: Path) -> None:
    """A checkpoint whose mark says version 9."""
    store_with("checkpoint", bytes(64) + mark_of_format(9) + bytes(4000))(folder)


def a_plain_file(folder: Path) -> None:
    (folder / "file").write_text("not a folder")


BROKER = ("broker", "--port", "0", "--data", "store")
WITH_CONFIG = (*BROKER, "-c", "some.conf")

FAULTS = [
    Fault("no such config", nothing, WITH_CONFIG, 2, ("cannot read the configuration file some.conf",)),
    Fault(
        "config is a folder",
        lambda folder: (folder / "some.conf").mkdir(),
        WITH_CONFIG,
        2,
        ("some.conf: Is a directory", "check the path"),
    ),
    Fault("config is no text", config_bytes(b"a=\0\1\2"), WITH_CONFIG, 2, ("some.conf:1", "not a text file")),
    Fault(
        "unknown key",
        config("# mine\nbrokerNmae=x\n"),
        WITH_CONFIG,
        2,
        ("some.conf:2", "'brokerNmae'", "did you mean brokerName?"),
    ),
    Fault(
        "bad number",
        config("listenPort=70000"),
        WITH_CONFIG,
        2,
        ("some.conf:1: listenPort is '70000'", "0 to 65535"),
    ),
    Fault("bad word", config("flushDiskType=SOMETIMES"), WITH_CONFIG, 2, ("'SOMETIMES'", "SYNC_FLUSH")),
    Fault(
        "a slave with its master's id",
        config("brokerRole=SLAVE"),
        WITH_CONFIG,
        2,
        ("brokerRole=SLAVE needs a brokerId of its own", "set brokerId to 1"),
    ),
    Fault(
        "open to all", config("bindAddress=0.0.0.0"), WITH_CONFIG, 2, ("bindAddress 0.0.0.0", "insecure=true")
    ),
    Fault(
        "no address to tell",
        config("bindAddress=0.0.0.0\ninsecure=true"),
        WITH_CONFIG,
        2,
        ("bindAddress 0.0.0.0", "set brokerIP1"),
    ),
    Fault("bad address", config("namesrvAddr=here"), WITH_CONFIG, 2, ("'here'", "host:port")),
    Fault(
        "bad key of the name server",
        config("kvConfigPth=x"),
        ("nameserver", "-c", "some.conf"),
        2,
        ("'kvConfigPth'", "did you mean kvConfigPath?"),
    ),
    Fault(
        "bad key of start",
        config("brokerNam=x"),
        ("start", "-c", "some.conf"),
        2,
        ("did you mean brokerName?",),
    ),
    Fault(
        "RocksDB queues",
        store_with("consumequeue/CURRENT", b"MANIFEST-000004\n"),
        BROKER,
        2,
        ("store/consumequeue is a RocksDB folder", "moving this folder away"),
    ),
    Fault(
        "batch queues",
        store_with(f"batchconsumequeue/orders/0/{SEGMENT}"),
        BROKER,
        2,
        ("batchconsumequeue", "not supported"),
    ),
    Fault(
        "wrong segment length",
        store_with(f"commitlog/{SEGMENT}", bytes(5000)),
        BROKER,
        2,
        ("has 5000 bytes", "mappedFileSizeCommitLog"),
    ),
    Fault(
        "stray file", store_with("commitlog/notes.txt"), BROKER, 2, ("commitlog/notes.txt", "move it away")
    ),
    Fault("newer format", newer_checkpoint, BROKER, 2, ("store/checkpoint has format 9", "newer Kourou")),
    Fault(
        "spoilt topics",
        store_with("config/topics.json", b'{"topicConfigTable":{'),
        BROKER,
        74,
        ("config/topics.json is unreadable", "restore one of them from a backup"),
    ),
    Fault(
        "folder below a file",
        a_plain_file,
        ("broker", "--port", "0", "--data", "file/store"),
        2,
        ("data folder file/store cannot be used", "--data"),
    ),
    Fault(
        "start in a file",
        a_plain_file,
        ("start", "--name-server-port", "0", "--port", "0", "--data", "file"),
        2,
        ("the data folder 'file' is a file", "--data"),
    ),
    Fault(
        "key values below a file",
        lambda folder: (a_plain_file(folder), config("kvConfigPath=file/kv.json")(folder)),
        ("nameserver", "--port", "0", "-c", "some.conf"),
        2,
        ("file/kv.json: Not a directory", "kvConfigPath"),
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_server_that_cannot_start_says_why_and_touches_nothing(tmp_path: Path, fault: Fault) -> None:
    fault.prepare(tmp_path)
    before = tree(tmp_path)
    ended = kourou(*fault.arguments, folder=tmp_path)
    assert ended.returncode == fault.exit_code, ended.stderr
    assert ended.stdout == ""
    assert_one_clear_line(ended.stderr, *fault.words)
    after = tree(tmp_path)
    assert {path: after.get(path) for path in before} == before


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "read-only"
    folder.mkdir()
    folder.chmod(0o555)
    if os.geteuid() == 0:  # may write anywhere, but not make folders in sysfs
        folder = Path("/sys/kernel")
    ended = kourou("broker", "--port", "0", "--data", folder / "store", folder=tmp_path)
    assert ended.returncode == 2
    assert_one_clear_line(ended.stderr, f"{folder}/store", "make it writable, or choose another one")


@pytest.mark.parametrize("what", ["broker", "fast port", "name server", "start"])
def test_a_port_in_use_is_named(tmp_path: Path, what: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = kourou(
            *{
                "broker": ("broker", "--data", "store", "--port", str(port)),
                "fast port": ("broker", "--data", "store", "--port", str(port + 2)),
                "name server": ("nameserver", "--port", str(port)),
                "start": ("start", "--name-server-port", str(port), "--port", "0"),
            }[what],
            folder=tmp_path,
        )
    assert ended.returncode == 1, "as for a folder in use: it may be free again soon"
    assert_one_clear_line(ended.stderr, f"127.0.0.1:{port}", "already in use", "choose another one")
    assert not list(tmp_path.rglob("abort"))  # what was opened is closed again, in order


def test_a_store_that_another_process_has_is_left_to_it(tmp_path: Path) -> None:
    with serving_all(tmp_path) as first:
        store = tmp_path / "kourou-data" / "store"
        ended = kourou("broker", "--port", "0", "--data", store, folder=tmp_path)
        assert ended.returncode == 1
        assert_one_clear_line(ended.stderr, str(store), "in use by another broker", "choose another folder")
        sent = kourou("message", "send", "orders", "x", "-n", first.name_server, folder=tmp_path)
        assert sent.returncode == 0
        assert first.stop() == 0


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_the_command_says_how_to_install_it(tmp_path: Path, missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; {PROGRAM}"
    ended = kourou("start", folder=tmp_path, program=program)
    assert ended.returncode == 2
    assert_one_clear_line(ended.stderr, "pip install 'kourou[server]'")


def test_a_failed_disk_ends_the_server_with_74_and_loses_nothing_acknowledged(tmp_path: Path) -> None:
    failing = (
        "import errno, os\n"
        "real_sync = os.fdatasync\n"
        "def sync(descriptor):\n"
        "    if os.path.exists('disk-fails'):\n"
        "        raise OSError(errno.EIO, os.strerror(errno.EIO))\n"
        "    real_sync(descriptor)\n"
        "os.fdatasync = sync\n"
    )
    with serving_all(tmp_path, "--sync-flush", program=failing + PROGRAM) as server:
        name_server = server.name_server
        good = kourou("message", "send", "orders", "safe", "-n", name_server, folder=tmp_path)
        assert good.returncode == 0, good.stderr
        (tmp_path / "disk-fails").touch()
        bad = kourou("message", "send", "orders", "lost", "-n", name_server, folder=tmp_path)
        assert bad.returncode in (1, 5)
        assert_one_clear_line(bad.stderr)
        assert server.wait() == 74
    assert "Traceback" not in server.log
    last = server.log.splitlines()[-1]
    assert re.match(r"kourou: the disk under \S+ failed \(errno 5, .*see to the disk and restart", last)
    with serving_all(tmp_path, "--sync-flush") as server:
        arguments = ("message", "tail", "orders", "--from", "earliest", "--timeout", "0.5", "-n")
        seen = kourou(*arguments, server.name_server, folder=tmp_path)
        assert "safe" in seen.stdout


# ------------------------------------------------------------------------------------ without a name server


def test_a_broker_that_reaches_no_name_server_serves_and_says_so(tmp_path: Path) -> None:
    with serving_broker(tmp_path, settings=f"namesrvAddr={NOBODY}\n") as running, BlockingClient() as client:
        address = running.address("listens on")
        reply = client.call(address, max_offset("SELF_TEST_TOPIC"))
        assert reply.code == 0
        waited_until = time.monotonic() + 5
        while "not registered" not in running.log and time.monotonic() < waited_until:
            time.sleep(0.05)
        assert running.log.count(f"not registered at name server {NOBODY}: cannot reach {NOBODY}") == 1
        assert running.stop() == 0


# ------------------------------------------------------------------------ what a client's command ends with


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "broker.conf").write_text("autoCreateTopicEnable=false\nbrokerPermission=4\n")
    with serving_all(folder, "-c", "broker.conf") as running:
        where = ("-n", running.name_server)
        for topic, perm in (("frozen", "6"), ("sealed", "4"), ("secret", "2")):
            created = kourou("topic", "create", topic, "--perm", perm, *where, folder=folder)
            assert created.returncode == 0, created.stderr
        yield running


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("message", "send", "orders", "x", "-n", NOBODY), 5, (NOBODY, "is one running there?")),
        (("topic", "ls", "-n", NOBODY), 5, (NOBODY, "is one running there?")),
        (("topic", "route", "nowhere"), 3, ("'nowhere'",)),
        (("message", "send", "nowhere", "x"), 3, ("'nowhere'", "kourou topic create nowhere")),
        (("message", "tail", "nowhere"), 3, ("'nowhere'",)),
        (("message", "send", "frozen", "x"), 4, ("broker kourou is not writable", "brokerPermission is 4")),
        (("message", "send", "sealed", "x"), 4, ("'sealed' may not be written to: its permission is 4",)),
        (("message", "tail", "secret"), 4, ("'secret' may not be read: its permission is 2",)),
        (
            ("message", "send", "SCHEDULE_TOPIC_XXXX", "x"),
            2,
            ("'SCHEDULE_TOPIC_XXXX' belongs to the brokers",),
        ),
        (("topic", "create", "a/b"), 2, ("'a/b'",)),
        (("topic", "ls", "-n", "nonsense"), 2, ("'nonsense'", "host:port")),
    ],
)
def test_a_clients_command_ends_with_the_code_for_what_happened(
    server: Serving, tmp_path: Path, arguments: tuple[str, ...], exit_code: int, words: tuple[str, ...]
) -> None:
    environment = {"NAMESRV_ADDR": server.name_server}
    ended = kourou(*arguments, folder=tmp_path, environment=environment)
    assert ended.returncode == exit_code, ended.stderr
    assert ended.stdout == ""
    assert_one_clear_line(ended.stderr, *words)


# ---------------------------------------------------------------------- bytes that make no sense, in flight


def frame(header: bytes, body: bytes = b"") -> bytes:
    return join(0, header, body)


DEEP = b'{"code":34,"opaque":1,"extFields":' + b"[" * 50_000 + b"]" * 50_000 + b"}"

BROKEN = {
    "not a frame at all": b"GET / HTTP/1.1\r\n\r\n",
    "a huge length": struct.pack(">II", 0x7FFF_FFFF, 10) + b"x" * 64,
    "a negative length": struct.pack(">iI", -1, 10) + b"x" * 64,
    "a header longer than the frame": struct.pack(">II", 20, 1000) + b"{" * 16,
    "no JSON": frame(b"{this is not JSON}"),
    "no code": frame(b'{"opaque":1,"flag":0}'),
    "an unknown serialization": struct.pack(">II", 24, (9 << 24) | 20) + b"x" * 20,
    "deep JSON": frame(DEEP),
    "a binary header that breaks off": struct.pack(">II", 16, (1 << 24) | 12) + b"\0" * 12,
}


@pytest.mark.parametrize("port", ["main", "fast", "name server"])
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_frame_costs_its_sender_the_connection_and_nobody_else(
    server: Serving, broken: bytes, port: str
) -> None:
    broker_host, broker_port = parse_address(server.address("broker"))
    address = {
        "main": (broker_host, broker_port),
        "fast": (broker_host, broker_port - 2),
        "name server": parse_address(server.name_server),
    }[port]
    with ExitStack() as stack:
        other = stack.enter_context(BlockingClient())
        assert other.call(server.address("broker"), max_offset("SELF_TEST_TOPIC")).code == 0
        vandal = stack.enter_context(socket.create_connection(address, 5))
        vandal.settimeout(5)
        vandal.sendall(broken)
        assert is_closed_or_refused(vandal)
        assert other.call(server.address("broker"), max_offset("SELF_TEST_TOPIC")).code == 0
    assert "Traceback" not in server.log


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (RequestCode.HEART_BEAT, b"[" * 100_000),
        (RequestCode.HEART_BEAT, b'{"clientID":' + b'{"a":' * 50_000),
        (RequestCode.HEART_BEAT, b"\xff\xfe\x00"),
        (RequestCode.SEND_BATCH_MESSAGE, b"\x7f\xff\xff\xff" * 100),
        (31_999, b""),
    ],
    ids=["deep list", "deep object", "no text", "no batch", "unknown code"],
)
def test_a_body_that_makes_no_sense_is_refused_on_an_open_connection(
    server: Serving, code: int, body: bytes
) -> None:
    with BlockingClient() as client:
        address = server.address("broker")
        reply = client.call(address, request(code, QueueNamed(topic="t", queue_id=0), body))
        assert reply.code != 0
        assert reply.remark
        assert "Traceback" not in reply.remark
        assert client.call(address, max_offset("SELF_TEST_TOPIC")).code == 0
    assert "Traceback" not in server.log


def max_offset(topic: str) -> Command:
    return request(RequestCode.GET_MAX_OFFSET, QueueNamed(topic=topic, queue_id=0))


def is_closed_or_refused(vandal: socket.socket) -> bool:
    """Whether the other side hangs up, or answers with an error instead."""
    try:
        answer = vandal.recv(4096)
    except ConnectionResetError:
        return True
    return answer == b"" or b'"code":0' not in answer
