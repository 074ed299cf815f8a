"""Real Apache RocketMQ parts on loopback: jars from Maven, one child process per part.

    jars(version)          the classpath of one release, collected once by Maven under .cache/apache/
    name_server(version)   a running Apache name server
    broker(version, ...)   a running Apache broker, registered with the name servers it was given
    mqadmin(version, ...)  one run of the admin tool
    traffic(version, ...)  one run of our small Java programme on the official client (java/src/interop)
    run(version, main)     one run of any other programme there

Every part gets free ports, a small heap and a folder of its own. Parts are context managers: leaving the
block ends the process, whether the test passed or not, and the kernel ends it if the test runner itself dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kourou.doors.processes import free_port

VERSIONS = ("4.9.7", "5.3.3")  # 4.9.8 and 5.3.2 were published without server jars
JAVA_SOURCES = Path(__file__).parent / "java"
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "apache"

# 4.9 frees mapped files by calling the JDK's own cleaners; since Java 16 that must be allowed by name.
OPENED_PACKAGES = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)
# Tests start many short-lived JVMs on few cores: a serial collector and the quick compiler start fastest.
QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

Happened = Callable[[], bool]

STARTUP_SECONDS_MAX = 180.0
STOP_SECONDS_MAX = 30.0


class ApacheUnavailable(Exception):
    """Java, Maven or the jars are missing; the message says which and what to do."""


class PartFailed(Exception):
    """An Apache process did not come up or died; the message ends with its output."""


def missing_tools() -> str | None:
    """What this machine lacks to run Apache's parts, or None when it has all."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if not missing:
        return None
    return f"{', '.join(missing)} not found on PATH: Apache's parts need a JDK (11 or later) and Maven"


# --- jars ----------------------------------------------------------------------------------------------


def jars(version: str) -> str:
    """The classpath of release `version`; fetched on first use, then kept."""
    lib = CACHE / version / "lib"
    with _locked(version):
        if not (CACHE / version / "complete").exists():
            _collect_jars(version, lib)
    return f"{lib}/*"


def _collect_jars(version: str, lib: Path) -> None:
    reason = missing_tools()
    if reason:
        raise ApacheUnavailable(reason)
    command = ["mvn", "-q", "-B", "-f", str(JAVA_SOURCES / "pom.xml"), "dependency:copy-dependencies"]
    options = [f"-Drocketmq.version={version}", f"-DoutputDirectory={lib}", "-DincludeScope=runtime"]
    done = subprocess.run(command + options, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ApacheUnavailable(
            f"Maven could not collect the jars of {version}:\n{_tail(done.stdout + done.stderr)}"
        )
    (CACHE / version / "complete").touch()


def programme(version: str, main: str) -> str:
    """The classpath of one of our Java programmes, compiled against the client of `version`.

    Each is compiled apart, with what it uses: the scenarios need calls that the client of 4.9 does not have.
    """
    classpath = jars(version)
    classes = CACHE / version / "classes" / main
    sources = JAVA_SOURCES / "src"
    with _locked(version):
        newest = max(source.stat().st_mtime for source in sources.glob("**/*.java"))
        stamp = classes / "compiled"
        if not stamp.exists() or stamp.stat().st_mtime < newest:
            classes.mkdir(parents=True, exist_ok=True)
            command = ["javac", "-nowarn", "-proc:none", "-cp", classpath, "-sourcepath", str(sources)]
            command += ["-d", str(classes), str(sources / "interop" / f"{main}.java")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise PartFailed(f"javac refused our {main} for {version}:\n{_tail(done.stderr)}")
            stamp.touch()
    return f"{classes}:{classpath}"


@contextlib.contextmanager
def _locked(version: str) -> Iterator[None]:
    """One process at a time may fill the folder of a release."""
    folder = CACHE / version
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- parts ---------------------------------------------------------------------------------------------


@dataclass
class Part:
    """A running Apache process."""

    version: str
    address: str
    folder: Path
    process: subprocess.Popen[bytes]
    output: Path

    def stop(self) -> None:
        """End it the way an operator would (SIGTERM); its shutdown hooks leave a clean store."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(STOP_SECONDS_MAX)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(STOP_SECONDS_MAX)

    def said(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""


@dataclass
class BrokerPart(Part):
    name: str
    cluster: str
    store: Path


@contextlib.contextmanager
def name_server(
    version: str, folder: Path, *, quick: bool = True, heap: str = "256m", **settings: object
) -> Iterator[Part]:
    """An Apache name server; `settings` go into its namesrv.conf."""
    port = free_port()
    home = _home(folder, "nameserver")
    config = _properties(
        home / "namesrv.conf", {"listenPort": port, "kvConfigPath": home / "kvConfig.json", **settings}
    )
    main = "org.apache.rocketmq.namesrv.NamesrvStartup"
    process, output = _start_java(version, home, main, ["-c", str(config)], heap=heap, quick=quick)
    part = Part(version, f"127.0.0.1:{port}", home, process, output)
    try:
        _wait_for_port(part)
        yield part
    finally:
        part.kill()


@contextlib.contextmanager
def broker(
    version: str,
    folder: Path,
    name_servers: str,
    *,
    name: str = "apache-a",
    cluster: str = "DefaultCluster",
    port: int | None = None,
    store: Path | None = None,
    registered_at: str | None = None,
    quick: bool = True,
    heap: str = "512m",
    **settings: object,
) -> Iterator[BrokerPart]:
    """An Apache master broker, ready once it is registered.

    `settings` go into its broker.conf over the small defaults below. `registered_at` names whom to ask
    whether it is registered, when that is not `name_servers` itself (a recorder should not record our
    question); "" asks nobody.
    """
    port = port or free_ports_in_a_row()
    home = _home(folder, name)
    store = store or home / "store"
    values: dict[str, object] = {
        "brokerClusterName": cluster,
        "brokerName": name,
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": port,
        "haListenPort": port + 1,
        "namesrvAddr": name_servers,
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
        "mappedFileSizeCommitLog": 64 * 1024 * 1024,
        "flushDiskType": "ASYNC_FLUSH",
        "autoCreateTopicEnable": "true",
        "diskMaxUsedSpaceRatio": 95,
        **settings,
    }
    config = _properties(home / "broker.conf", values)
    main = "org.apache.rocketmq.broker.BrokerStartup"
    process, output = _start_java(version, home, main, ["-c", str(config)], heap=heap, quick=quick)
    part = BrokerPart(version, f"127.0.0.1:{port}", home, process, output, name, cluster, store)
    try:
        _wait_for_port(part)
        asked = name_servers if registered_at is None else registered_at
        _wait_until(part, lambda: is_registered(part.address, asked) or _hurry(part), "registered")
        yield part
    finally:
        part.kill()


def is_registered(broker_address: str, name_servers: str) -> bool:
    """Does every one of these name servers know a broker at this address?"""
    known = f'"{broker_address}"'.encode()
    asked = [address for address in name_servers.split(";") if address]
    return all(known in ask(address, GET_BROKER_CLUSTER_INFO) for address in asked)


GET_BROKER_CLUSTER_INFO = 106
UPDATE_BROKER_CONFIG = 25


def _hurry(part: Part) -> bool:
    """5.x skips its first registration (it has not yet found a name server alive) and comes again after 10 s.

    Setting the broker's permission to what it is makes it register at once. Returns False: not registered.
    """
    if part.version.startswith("5."):
        time.sleep(0.5)
        ask(part.address, UPDATE_BROKER_CONFIG, b"brokerPermission=6")
    return False


def ask(address: str, code: int, body: bytes = b"", fields: dict[str, str] | None = None) -> bytes:
    """One request on a connection of its own; the bytes of the answer, header and body."""
    request = {
        "code": code,
        "language": "JAVA",
        "version": 409,
        "opaque": 1,
        "flag": 0,
        "extFields": fields or {},
    }
    header = json.dumps(request).encode()
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)
        with connection.makefile("rb") as stream:
            (length,) = struct.unpack(">I", stream.read(4))
            return stream.read(length)


def _home(folder: Path, name: str) -> Path:
    """A ROCKETMQ_HOME of its own, with logging to the console (4.9 refuses to start without these files)."""
    home = folder / f"{name}-home"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for file in ("logback_namesrv.xml", "logback_broker.xml", "logback_tools.xml"):
        (home / "conf" / file).write_text(LOGBACK)
    return home


LOGBACK = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5p %t %c - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


def _properties(path: Path, values: dict[str, object]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path


def _start_java(
    version: str, home: Path, main: str, arguments: list[str], *, heap: str, quick: bool
) -> tuple[subprocess.Popen[bytes], Path]:
    output = home / "output.log"
    command = [*_java_command(version, jars(version), home, heap=heap, quick=quick), main, *arguments]
    with open(output, "wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, "ROCKETMQ_HOME": str(home)},
            cwd=home,
            preexec_fn=die_with_parent,  # a killed test run must not leave JVMs behind
        )
    return process, output


def _java_command(version: str, classpath: str, home: Path, *, heap: str, quick: bool) -> list[str]:
    # user.home: clients and 5.x servers write their logs and broadcast offsets below it.
    command = ["java", f"-Xms{heap}", f"-Xmx{heap}", "-XX:MaxDirectMemorySize=512m", f"-Duser.home={home}"]
    if quick:
        command += QUICK_START
    if version.startswith("4."):
        command += OPENED_PACKAGES
    return [*command, "-cp", classpath]


def die_with_parent() -> None:
    """For `preexec_fn`: the kernel kills this child when the process that started it is gone."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _wait_for_port(part: Part) -> None:
    _wait_until(part, lambda: listens(part.address), f"listened on {part.address}")


def listens(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def _wait_until(part: Part, happened: Happened, what: str) -> None:
    deadline = time.monotonic() + STARTUP_SECONDS_MAX
    while not happened():
        if part.process.poll() is not None:
            raise PartFailed(
                f"{part.folder.name} {part.version} ended before it {what}:\n{_tail(part.said())}"
            )
        if time.monotonic() > deadline:
            raise PartFailed(f"{part.folder.name} {part.version} never {what}:\n{_tail(part.said())}")
        time.sleep(0.05)


def _tail(text: str, lines: int = 30) -> str:
    return "\n".join([line for line in text.splitlines() if not _is_noise(line)][-lines:])


def _is_noise(line: str) -> bool:
    return "|-INFO" in line or "|-WARN" in line or line.startswith(("RocketMQLog", "SLF4J", "WARNING: "))


# --- single runs ---------------------------------------------------------------------------------------


def mqadmin(version: str, folder: Path, *verbs: str, timeout: float = 120.0) -> list[str]:
    """What each `mqadmin verb` prints. The tool reports success even on errors, so callers read the texts."""
    home = _home(folder, "tools")
    command = _java_command(version, programme(version, "Admin"), home, heap="128m", quick=True)
    done = subprocess.run(
        [*command, "interop.Admin", *verbs],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # the tool prints its errors there, and they belong to one verb
        text=True,
        check=False,
        timeout=timeout,
        cwd=home,
        env={**os.environ, "ROCKETMQ_HOME": str(home)},
        preexec_fn=die_with_parent,
    )
    said = "\n".join(line for line in done.stdout.splitlines() if not _is_noise(line))
    texts = [text.partition("\n")[2] for text in f"\n{said}".split("\n### ")[1:]]
    if len(texts) != len(verbs):
        raise PartFailed(
            f"mqadmin {version} gave up after {len(texts)} of {len(verbs)} verbs:\n{_tail(said)}"
        )
    return texts


def traffic(
    version: str, folder: Path, *arguments: str, options: tuple[str, ...] = (), timeout: float = 120.0
) -> list[dict[str, Any]]:
    """Send or consume with the official client of `version`; returns the JSON lines it printed."""
    said = run(version, folder, "Traffic", *arguments, options=options, timeout=timeout)
    return [json.loads(line) for line in said.splitlines() if line.startswith('{"event"')]


def run(
    version: str,
    folder: Path,
    main: str,
    *arguments: str,
    options: tuple[str, ...] = (),
    heap: str = "128m",
    timeout: float = 120.0,
) -> str:
    """Run one of our Java programmes to its end; returns what it printed."""
    home = _home(folder, "client")
    done = subprocess.run(
        java_command(version, main, home, *arguments, options=options, heap=heap),
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        cwd=home,
        preexec_fn=die_with_parent,
    )
    if done.returncode != 0:
        raise PartFailed(f"{main} {version} {' '.join(arguments)}:\n{_tail(done.stdout + done.stderr)}")
    return done.stdout


def java_command(
    version: str, main: str, home: Path, *arguments: str, options: tuple[str, ...] = (), heap: str = "128m"
) -> list[str]:
    """What runs one of our Java programmes; its logs go below `home`."""
    command = _java_command(version, programme(version, main), home, heap=heap, quick=True)
    return [*command, *options, "-Drocketmq.client.logUseSlf4j=false", f"interop.{main}", *arguments]


# --- ports ---------------------------------------------------------------------------------------------


def free_ports_in_a_row() -> int:
    """A port whose neighbours a broker also takes are free: -2 (fast port) and +1 (replication)."""
    return free_port((-2, 1))
