"""The server and the asyncio client on loopback sockets, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import uvloop

from kourou.doors.clock import RealClock
from kourou.doors.network import RealNetwork
from kourou.errors import Busy, ConfigError, Unreachable
from kourou.protocol.command import Command
from kourou.remoting.client import Client
from kourou.remoting.config import ServerConfig
from kourou.remoting.http import HttpServer, Page, fetch_text
from kourou.remoting.server import Answer
from tests.remoting.real_world import BIG, BIG_BYTES, ECHO, KEEP, Running, ask, is_closed, replies, serving

LATER = 9
WORK_ON = 7
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return LOOPS[request.param]


@pytest.fixture
def running(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> Iterator[Running]:
    with serving(new_loop=new_loop) as running:
        yield running


def with_client(
    new_loop: Callable[[], asyncio.AbstractEventLoop], do: Callable[[Client], Awaitable[Any]], **options: Any
) -> Any:
    async def run() -> Any:
        client = Client(network=RealNetwork(), clock=RealClock(), **options)
        try:
            return await do(client)
        finally:
            await client.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run())


def test_two_thousand_pipelined_requests_are_all_answered(running: Running) -> None:
    with running.connect() as connected:
        connected.sendall(b"".join(ask(ECHO, number, b"x" * (number % 300)) for number in range(2000)))
        got = replies(connected, 2000)
    assert [(each.opaque, len(each.body)) for each in got] == [(n, n % 300) for n in range(2000)]


def test_large_answers_of_one_tick_arrive_whole_and_in_order_at_a_slow_reader(running: Running) -> None:
    with running.connect() as connected:
        sizes = [20_000 + 7_001 * (number % 9) for number in range(60)]
        bodies = [bytes([65 + number % 26]) * size for number, size in enumerate(sizes)]
        sender = threading.Thread(
            target=connected.sendall,
            args=(b"".join(ask(ECHO, number, body) for number, body in enumerate(bodies)),),
        )
        sender.start()
        time.sleep(0.05)  # let what is answered fill all buffers
        got = replies(connected, len(bodies))
        sender.join()
    assert [(each.opaque, each.body) for each in got] == list(enumerate(bodies))


def test_an_answer_is_there_before_what_no_answer_waits_for_is_done(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    has_answer = threading.Event()
    came_first: list[bool] = []

    def work_on(request: Command, answer: Answer) -> None:
        tick = answer.connection._board.tick
        tick.after_writes(lambda: came_first.append(has_answer.wait(5)))
        answer(request.reply())

    with serving(handlers={WORK_ON: work_on}, new_loop=new_loop) as running, running.connect() as connected:
        for _ in range(3):
            connected.sendall(ask(WORK_ON))
            replies(connected, 1)
            has_answer.set()
            running.on_loop(has_answer.clear)
    assert came_first == [True] * 3


def test_the_asyncio_client_keeps_thousands_in_flight_on_one_connection(
    running: Running, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def many(client: Client) -> list[Command]:
        return await asyncio.gather(
            *(client.call(running.address, Command(ECHO, body=b"%d" % n)) for n in range(2000))
        )

    got = with_client(new_loop, many)
    assert [each.body for each in got] == [b"%d" % n for n in range(2000)]
    assert running.server.counters.accepted == 1


def test_large_bodies_go_both_ways(
    running: Running, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    body = os.urandom(8 << 20)

    async def large(client: Client) -> Command:
        return await client.call(running.address, Command(ECHO, body=body), 20.0)

    assert with_client(new_loop, large).body == body


def test_two_sides_that_both_have_much_to_say_do_not_wait_for_each_other(
    running: Running, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    body = bytes(128 * 1024)

    async def again_and_again(client: Client) -> int:
        answers = 0
        while answers < 3:
            try:
                await client.call(running.address, Command(ECHO, body=body), 20.0)
                answers += 1
            except Busy:  # so much is on its way that no more is taken
                await asyncio.sleep(0.01)
        return answers

    async def many(client: Client) -> list[int]:
        await client.call(running.address, Command(ECHO))
        return await asyncio.gather(*(again_and_again(client) for _ in range(200)))

    assert with_client(new_loop, many) == [3] * 200


def test_nobody_listening_is_unreachable(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"

        async def call(client: Client) -> Command:
            return await client.call(address, Command(ECHO))

        with pytest.raises(Unreachable, match=f"cannot reach {address}: Connection refused"):
            with_client(new_loop, call)


def test_a_port_in_use_is_named_with_the_way_out(running: Running) -> None:
    expected = (
        rf"the test server cannot listen on 127\.0\.0\.1:{running.port}: Address already in use; stop what"
    )
    with pytest.raises(ConfigError, match=expected), serving(ServerConfig(port=running.port)):
        pass


def test_a_host_that_is_not_ours_cannot_be_listened_on() -> None:
    with (
        pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:0: Cannot assign requested address"),
        serving(ServerConfig(host="192.0.2.1")),
    ):
        pass


def test_ipv6_peers_are_served_and_known_by_their_address(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with serving(ServerConfig(host="::1"), new_loop=new_loop) as running:

        async def call(client: Client) -> Command:
            await client.send_one_way(f"[::1]:{running.port}", Command(KEEP))
            return await client.call(f"[::1]:{running.port}", Command(ECHO, body=b"six"))

        assert with_client(new_loop, call).body == b"six"
        peer = running.kept[0][1].connection
        assert peer.peer == f"[::1]:{peer.peer_port}"
        assert len(peer.packed_peer) == 20


def test_all_of_ipv6_includes_ipv4_and_localhost_is_both_on_one_port() -> None:
    with serving(ServerConfig(host="::")) as running:
        with running.connect() as connected:
            connected.sendall(ask(KEEP, 1) + ask(ECHO, 2))
            replies(connected, 1)
        assert running.kept[0][1].connection.peer_host == "127.0.0.1"
    with serving(ServerConfig(host="localhost")) as running:
        assert len({port for _, port in running.server.addresses}) == 1
        for host, port in running.server.addresses:
            socket.create_connection((host, port), 5).close()


def test_a_slow_reader_is_disconnected_and_others_are_unaffected(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    config = ServerConfig(write_stall_seconds=0.4, write_buffer_pause_bytes=64 * 1024)
    with (
        serving(config, new_loop=new_loop) as running,
        running.connect() as slow,
        running.connect() as honest,
    ):
        slow.sendall(b"".join(ask(BIG, number) for number in range(40)))
        deadline = time.monotonic() + 5
        while not running.server.counters.closed and time.monotonic() < deadline:
            honest.sendall(ask(ECHO))
            replies(honest, 1)
        assert running.server.counters.closed == {"stalled": 1}
        # It stopped being read long before all forty replies were made.
        assert running.server.counters.bytes_out < 20 * BIG_BYTES
        honest.sendall(ask(ECHO))
        assert len(replies(honest, 1)) == 1


def test_a_reader_that_takes_its_time_gets_everything(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    config = ServerConfig(write_buffer_pause_bytes=64 * 1024)
    with serving(config, new_loop=new_loop) as running, running.connect() as slow:
        slow.sendall(b"".join(ask(BIG, number) for number in range(20)))
        time.sleep(0.2)
        assert [each.opaque for each in replies(slow, 20)] == list(range(20))


def test_a_half_closed_peer_gets_the_answers_of_its_last_tick(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Also those that are given at the end of it, as for a send, when all reads are through."""

    def at_the_end(request: Command, answer: Answer) -> None:
        answer.connection._board.tick.at_end(lambda: answer(request.reply()))

    with serving(handlers={LATER: at_the_end}, new_loop=new_loop) as running:
        for _ in range(20):
            with running.connect() as connected:
                connected.sendall(b"".join(ask(LATER, number) for number in range(100)))
                connected.shutdown(socket.SHUT_WR)
                assert [each.opaque for each in replies(connected, 100)] == list(range(100))
                assert is_closed(connected)
        assert running.server.counters.closed == {"peer": 20}


def test_stopping_answers_what_is_in_flight_and_flushes_it(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with serving(new_loop=new_loop) as running, running.connect() as connected:
        connected.sendall(ask(KEEP, 1) + ask(BIG, 2))
        while not running.kept:
            time.sleep(0.005)
        request, answer = running.kept[0]

        async def stop() -> None:
            asyncio.get_running_loop().call_later(0.1, lambda: answer(request.reply(body=b"in time")))
            await running.server.stop(5.0)

        stopping = threading.Thread(target=lambda: running.await_on_loop(stop))
        stopping.start()
        got = replies(connected, 2)
        assert sorted(each.opaque for each in got) == [1, 2]
        assert is_closed(connected)
        stopping.join()
        with pytest.raises(ConnectionRefusedError):
            running.connect()


def test_stopping_wastes_no_time_when_nothing_is_in_flight() -> None:
    with serving() as running, running.connect() as connected:
        connected.sendall(ask(ECHO))
        replies(connected, 1)
        start = time.monotonic()
        running.await_on_loop(lambda: running.server.stop(5.0))
        assert time.monotonic() - start < 4


def test_running_out_of_files_turns_peers_away_and_is_survived() -> None:
    """In a process of its own, with few files: beyond them peers are hung up on, and later served again."""
    code = textwrap.dedent("""
        import resource, socket
        from tests.remoting.real_world import ask, replies, is_closed, serving
        with serving() as running:
            resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
            peers = []
            import os
            spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(12)]
            try:
                while True:
                    spare.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                pass
            for _ in range(4):
                os.close(spare.pop())  # four files: two ends of one connection, and a client waiting
            peers.append(running.connect())
            peers[0].sendall(ask(1)); replies(peers[0], 1)
            peers.append(running.connect())
            peers[1].sendall(ask(1)); replies(peers[1], 1)
            os.close(spare.pop())
            peers.append(running.connect())
            assert is_closed(peers[2]), "nobody was turned away"
            assert running.server.counters.refused["files"] >= 1, running.server.counters
            peers[0].sendall(ask(1, 5)); assert replies(peers[0], 1)[0].opaque == 5
            for _ in range(6):
                os.close(spare.pop())
            again = running.connect()
            again.sendall(ask(1, 7)); assert replies(again, 1)[0].opaque == 7
            for each in (*peers, again):
                each.close()
            print("survived", running.server.counters.refused)
    """)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 100
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([".", os.environ.get("PYTHONPATH", "")])},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("survived")
    assert "no file descriptor is left" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_page_is_served_and_fetched_over_real_sockets(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def run() -> str:
        network, clock = RealNetwork(), RealClock()
        server = HttpServer(lambda path: Page(path.encode()), network=network, clock=clock)
        await server.start()
        try:
            return await fetch_text(f"http://127.0.0.1:{server.port}/a?b", network=network, clock=clock)
        finally:
            await server.stop()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(run()) == "/a"


# ---------------------------------------------------------------- attacks, by their number in the list

HUGE = 16 * 1024 * 1024


def raw(length: int, tagged: int = 0, rest: bytes = b"") -> bytes:
    return (length & 0xFFFFFFFF).to_bytes(4, "big") + (tagged & 0xFFFFFFFF).to_bytes(4, "big") + rest


ATTACKS = {
    "A1 length 0xFFFFFFFF": raw(0xFFFFFFFF),
    "A1 length negative": raw(-5),
    "A1 length 0": raw(0),
    "A1 length 3": raw(3),
    "A2 length 16 MiB + 1": raw(HUGE + 1),
    "A4 header longer than the frame": raw(100, 97, bytes(96)),
    "A4 serialization 2": raw(104, 2 << 24 | 100, bytes(100)),
    "A4 serialization 255": raw(104, 255 << 24 | 100, bytes(100)),
    "A5 no header": raw(4),
    "A5 null": raw(8, 4, b"null"),
    "A5 an array": raw(7, 3, b"[1]"),
    "A5 a number": raw(6, 2, b"17"),
    "A5 deep": raw(4 + 200_000, 200_000, b'{"a":' * 40_000),
    "A5 deep fields": raw(4 + 200_023, 200_023, b'{"code":1,"extFields":' + b'{"a":' * 40_000 + b" "),
    "A14 HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "A14 SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "A14 TLS ClientHello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
    "A14 random bytes": bytes(range(255, 0, -1)),
}


@pytest.fixture(scope="module")
def attacked() -> Iterator[Running]:
    config = ServerConfig(first_frame_seconds=0.6, frame_seconds=0.6, write_stall_seconds=0.6)
    with serving(config) as running:
        yield running


@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_no_frame_closes_that_connection_at_once_and_no_other(name: str, attacked: Running) -> None:
    with attacked.connect() as honest, attacked.connect(1.0) as evil:
        honest.sendall(ask(ECHO, 1))
        replies(honest, 1)
        evil.sendall(ATTACKS[name])
        assert is_closed(evil)
        honest.sendall(ask(ECHO, 2))
        assert replies(honest, 1)[0].opaque == 2


def test_a3_a_large_length_reserves_nothing_and_silence_ends_the_connection(attacked: Running) -> None:
    before = _rss()
    evils = [attacked.connect(3.0) for _ in range(20)]
    for evil in evils:
        evil.sendall(ask(ECHO) + raw(HUGE - 4, 100, b"{"))
        replies(evil, 1)
    assert _rss() - before < 20 << 20
    assert all(is_closed(evil) for evil in evils)
    for evil in evils:
        evil.close()
    assert attacked.server.counters.closed["frame"] == 20


def test_a10_odd_codes_and_flags_are_answered_or_ignored(attacked: Running) -> None:
    with attacked.connect() as connected:
        connected.sendall(
            ask(-1, 1)
            + ask(2**31 - 1, 2)
            + ask(ECHO, 3, flag=1)
            + ask(ECHO, 4, flag=2)
            + ask(ECHO, 5, flag=-4)
        )
        got = replies(connected, 3)
        assert [(each.opaque, each.code) for each in got] == [(1, 3), (2, 3), (5, 0)]


def test_a11_a_thousand_requests_under_one_number_are_each_answered(attacked: Running) -> None:
    with attacked.connect() as connected:
        connected.sendall(ask(0, 77, flag=1) + b"".join(ask(ECHO, 7, b"%d" % n) for n in range(1000)))
        assert [each.body for each in replies(connected, 1000)] == [b"%d" % n for n in range(1000)]


def test_a12_dripping_bytes_end_by_the_frame_timer_and_an_honest_client_notices_nothing(
    attacked: Running,
) -> None:
    drips = [attacked.connect(3.0) for _ in range(50)]
    with attacked.connect() as honest:
        slowest = 0.0
        for byte in ask(ECHO, 1, bytes(100))[:10]:
            for drip in drips:
                with contextlib.suppress(ConnectionError):
                    drip.send(bytes([byte]))
            start = time.monotonic()
            honest.sendall(ask(ECHO))
            replies(honest, 1)
            slowest = max(slowest, time.monotonic() - start)
            time.sleep(0.08)
        assert slowest < 0.5
    assert all(is_closed(drip) for drip in drips)
    for drip in drips:
        drip.close()


def test_a15_connecting_and_resetting_leaves_nothing_behind() -> None:
    with serving(ServerConfig(accepts_per_second_max=100_000)) as running:
        for _ in range(1000):
            connected = socket.create_connection(("127.0.0.1", running.port))
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            connected.close()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and (running.server.connections or running.server._admission._open):
            time.sleep(0.02)
        assert not running.server.connections
        assert running.server._admission._open == 0
        with running.connect() as connected:
            connected.sendall(ask(ECHO))
            assert len(replies(connected, 1)) == 1


def test_a16_whoever_asks_without_reading_is_no_longer_read_and_then_closed(attacked: Running) -> None:
    with attacked.connect(0.5) as evil, attacked.connect() as honest:
        honest.sendall(ask(ECHO))
        replies(honest, 1)
        request = ask(ECHO, 1, bytes(1000)) * 100
        sent = 0
        with contextlib.suppress(TimeoutError, ConnectionError):
            for _ in range(1000):  # 100 MB, if it were taken
                evil.sendall(request)
                sent += len(request)
        assert sent < 60 << 20
        honest.sendall(ask(ECHO))
        assert len(replies(honest, 1)) == 1
        deadline = time.monotonic() + 5
        while "stalled" not in attacked.server.counters.closed and time.monotonic() < deadline:
            time.sleep(0.02)
        assert attacked.server.counters.closed["stalled"] == 1
        assert attacked.server.counters.in_flight_bytes == 0


def test_a_thousand_broken_frames_are_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as running, caplog.at_level(logging.WARNING):
        for _ in range(100):
            with running.connect() as evil:
                evil.sendall(raw(0xFFFFFFFF))
                assert is_closed(evil)
    assert len([record for record in caplog.records if record.name.startswith("kourou.remoting")]) == 1


def _rss() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def test_peers_that_do_not_read_hold_no_more_than_the_bound_together(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    reply_bytes = 8 << 20  # more than the system takes off our hands
    config = ServerConfig(total_in_flight_bytes_max=4 * reply_bytes)
    handlers = {BIG: lambda request, answer: answer(request.reply(body=bytes(reply_bytes)))}
    with contextlib.ExitStack() as stack, serving(config, handlers, new_loop) as running:
        for _ in range(30):
            stuck = stack.enter_context(socket.socket())
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.connect(("127.0.0.1", running.port))
            stuck.sendall(ask(BIG))
        with running.connect() as honest:
            honest.sendall(ask(ECHO, 2, b"still here"))
            assert [r.body for r in replies(honest, 1)] == [b"still here"]
            stuck_ones = running.on_loop(lambda: len(running.server.connections)) - 1
        counters = running.on_loop(lambda: running.server.counters)
        assert counters.requests == 31
        assert 1 <= stuck_ones <= 3  # uvloop keeps a write whole until it is through: four are too many
        assert counters.unread_bytes <= config.total_in_flight_bytes_max
        assert counters.closed["crowded out"] == 30 - stuck_ones
