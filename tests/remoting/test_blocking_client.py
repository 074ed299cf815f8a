from __future__ import annotations

import contextlib
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kourou.errors import ConfigError, ConnectionLost, TimedOut, Unreachable
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, request
from kourou.remoting.blocking import BlockingClient
from kourou.remoting.config import ServerConfig
from kourou.remoting.server import Answer
from tests.remoting.real_world import BIG, BIG_BYTES, ECHO, KEEP, replies, serving

POLL = select.poll


def test_the_blocking_client_imports_no_asyncio() -> None:
    code = "import sys, kourou.remoting.blocking; sys.exit('asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_calls_are_answered_over_one_connection() -> None:
    with serving() as running, BlockingClient() as client:
        for number in range(20):
            assert client.call(running.address, Command(ECHO, body=b"%d" % number)).body == b"%d" % number
        assert client.call(running.address, Command(999)).code == 3
        assert len(client.call(running.address, Command(BIG)).body) == BIG_BYTES
        client.send_one_way(running.address, Command(KEEP))
        client.call(running.address, Command(ECHO))
        assert running.kept[0][0].is_one_way
        assert running.server.counters.accepted == 1


def test_threads_share_the_connection_and_get_their_own_replies() -> None:
    with serving() as running, BlockingClient() as client, ThreadPoolExecutor(8) as threads:

        def call(number: int) -> bool:
            body = b"%d" % number * 50
            return client.call(running.address, Command(ECHO, body=body)).body == body

        assert all(threads.map(call, range(800)))
        assert running.server.counters.accepted == 1


def test_a_slow_answer_does_not_hold_up_other_threads() -> None:
    with serving() as running, BlockingClient() as client, ThreadPoolExecutor(2) as threads:
        slow = threads.submit(client.call, running.address, Command(KEEP), 10.0)
        while not running.kept:
            client.call(running.address, Command(ECHO))
        assert not slow.done()
        request, answer = running.kept[0]
        running.on_loop(lambda: answer(request.reply(body=b"at last")))
        assert slow.result(5).body == b"at last"


def test_time_is_up_when_it_is_up() -> None:
    with serving() as running, BlockingClient() as client:
        start = time.monotonic()
        with pytest.raises(TimedOut, match=r"did not answer 3 within 0\.2 s"):
            client.call(running.address, Command(KEEP), 0.2)
        assert 0.19 <= time.monotonic() - start < 2
        assert client.call(running.address, Command(ECHO, body=b"on")).body == b"on"
        assert running.server.counters.accepted == 2  # not a byte came back: that connection was given up


def test_a_late_reply_goes_to_nobody() -> None:
    with serving() as running, BlockingClient() as client, ThreadPoolExecutor(1) as threads:
        slow = threads.submit(client.call, running.address, Command(KEEP), 0.3)
        while not slow.done():
            client.call(running.address, Command(ECHO))
        assert isinstance(slow.exception(), TimedOut)
        request, answer = running.kept[0]
        running.on_loop(lambda: answer(request.reply(body=b"late")))
        assert client.call(running.address, Command(ECHO, body=b"mine")).body == b"mine"
        assert running.server.counters.accepted == 1


def test_nobody_there_is_unreachable_and_the_next_try_backs_off() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with BlockingClient() as client:
            for _ in range(4):
                with pytest.raises(Unreachable, match=f"cannot reach {address}: Connection refused"):
                    client.call(address, Command(ECHO))
            took = []
            for _ in range(3):
                start = time.monotonic()
                with pytest.raises(Unreachable, match="Connection refused"):
                    client.call(address, Command(ECHO), timeout=0.05)
                took.append(time.monotonic() - start)
            assert min(took) < 0.04  # the next try would be too late for such a call
    with BlockingClient() as client, pytest.raises(ConfigError, match="'nonsense'"):
        client.call("nonsense", Command(ECHO))


def test_a_connection_the_server_closed_meanwhile_is_made_anew_without_a_failure() -> None:
    with serving(ServerConfig(idle_seconds=0.1)) as running, BlockingClient() as client:
        client.call(running.address, Command(ECHO))
        deadline = time.monotonic() + 5
        while running.on_loop(lambda: len(running.server.connections)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert client.call(running.address, Command(ECHO, body=b"again")).body == b"again"
        assert running.server.counters.accepted == 2


def test_a_server_that_said_something_before_it_closed_is_called_anew_without_a_failure() -> None:
    heard: list[bytes] = []
    handlers = {307: lambda request, answer: heard.append(request.body)}
    with serving() as running, BlockingClient(handlers=handlers) as client:
        client.call(running.address, Command(ECHO))
        [connection] = running.server.connections
        running.on_loop(lambda: connection.send_one_way(Command(307, body=b"last words")))
        running.on_loop(lambda: connection.close("idle"))
        deadline = time.monotonic() + 5
        while running.on_loop(lambda: len(running.server.connections)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert client.call(running.address, Command(ECHO, body=b"again")).body == b"again"
        assert heard == [b"last words"]
        assert running.server.counters.accepted == 2


def test_losing_the_connection_fails_all_who_wait() -> None:
    with serving() as running, BlockingClient() as client, ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(client.call, running.address, Command(KEEP), 10.0) for _ in range(4)]
        while len(running.kept) < 4:
            client.call(running.address, Command(ECHO))
        running.on_loop(lambda: [each.abort("test") for each in list(running.server.connections)])
        for call in calls:
            assert isinstance(call.exception(5), ConnectionLost)
        assert client.call(running.address, Command(ECHO, body=b"x")).body == b"x"


def test_threads_get_their_replies_or_are_told_while_connections_break_again_and_again() -> None:
    sizes = (10, 1000, 60_000, 70_000, 1 << 20)
    ends_at = time.monotonic() + 2
    with serving() as running, BlockingClient() as client, ThreadPoolExecutor(16) as threads:

        def keep_calling(number: int) -> tuple[int, int]:
            answered = lost = 0
            while time.monotonic() < ends_at:
                body = bytes([number]) * sizes[(answered + lost + number) % len(sizes)]
                try:
                    assert client.call(running.address, Command(ECHO, body=body), 20.0).body == body
                    answered += 1
                except ConnectionLost:
                    lost += 1
            return answered, lost

        calling = [threads.submit(keep_calling, number) for number in range(16)]
        while time.monotonic() < ends_at:
            time.sleep(0.03)
            running.on_loop(lambda: [each.abort("test") for each in list(running.server.connections)])
        done = [each.result(30) for each in calling]
    assert sum(answered for answered, _ in done) > 16
    assert sum(lost for _, lost in done) > 16


def test_closing_ends_every_wait() -> None:
    with serving() as running, ThreadPoolExecutor(2) as threads:
        client = BlockingClient()
        calls = [threads.submit(client.call, running.address, Command(KEEP), 10.0) for _ in range(2)]
        while len(running.kept) < 2:
            client.call(running.address, Command(ECHO))
        client.close()
        for call in calls:
            assert isinstance(call.exception(5), ConnectionLost)
        with pytest.raises(ConnectionLost, match="closed"):
            client.call(running.address, Command(ECHO))


def test_what_the_server_asks_is_handled_while_a_call_waits_or_in_poll() -> None:
    asked: list[bytes] = []

    with serving() as running:

        def handle(request: Command, answer: Answer) -> None:
            asked.append(request.body)
            inner = client.call(running.address, Command(ECHO, body=b"inner"))  # a handler may call, too
            answer(request.reply(body=request.body + inner.body))

        def ask_back(code: int, body: bytes) -> list[Any]:
            got: list[Any] = []
            [connection] = running.server.connections
            running.on_loop(lambda: connection.call(Command(code, body=body), 5000, got.append))
            return got

        with BlockingClient(handlers={307: handle}) as client, ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(client.call, running.address, Command(KEEP), 10.0)
            while not running.kept:
                time.sleep(0.005)
            got = ask_back(307, b"one ")
            while not got:
                time.sleep(0.005)
            assert got[0].body == b"one inner"
            request, answer = running.kept[0]
            running.on_loop(lambda: answer(request.reply()))
            waiting.result(5)

            answers = [ask_back(307, b"two "), ask_back(308, b""), ask_back(307, b"three ")]
            deadline = time.monotonic() + 5
            while not all(answers) and time.monotonic() < deadline:
                client.poll(0.2)
            assert [(got.code, got.body) for [got] in answers] == [
                (0, b"two inner"),
                (3, b""),
                (0, b"three inner"),
            ]
            assert asked == [b"one ", b"two ", b"three "]
            assert time.monotonic() < deadline - 4


def test_what_a_server_said_meanwhile_is_heard_without_waiting() -> None:
    heard: list[bytes] = []
    handlers = {307: lambda request, answer: heard.append(request.body)}
    with serving() as running, BlockingClient(handlers=handlers) as client:
        client.hear(running.address)  # no connection yet: nothing to hear, and none is made
        assert not running.server.connections
        client.call(running.address, Command(ECHO))
        [connection] = running.server.connections
        running.on_loop(lambda: connection.send_one_way(Command(307, body=b"news")))
        deadline = time.monotonic() + 5
        while not heard and time.monotonic() < deadline:
            client.hear(running.address)
        assert heard == [b"news"]


def test_a_server_that_says_very_much_is_heard_a_part_at_a_time() -> None:
    heard: list[bytes] = []
    handlers = {307: lambda request, answer: heard.append(request.body)}
    with serving() as running, BlockingClient(handlers=handlers) as client:
        client.call(running.address, Command(ECHO))
        [connection] = running.server.connections

        def say_much() -> None:
            for _ in range(64):
                connection.send_one_way(Command(307, body=bytes(64 * 1024)))

        running.on_loop(say_much)
        deadline = time.monotonic() + 5
        most = 0
        while len(heard) < 64 and time.monotonic() < deadline:
            before = len(heard)
            client.hear(running.address)
            most = max(most, len(heard) - before)
        assert len(heard) == 64
        assert most <= 24, "1 MiB, and what was read with it"


def test_replies_to_call_soon_are_told_by_poll_with_no_lock_held() -> None:
    with serving() as running, BlockingClient() as client:
        got: list[Any] = []

        def again(result: Command | Exception) -> None:
            got.append(result)
            if sum(isinstance(each, Command) for each in got) < 4:
                client.call_soon(running.address, Command(ECHO), 5.0, again)

        client.call_soon(running.address, Command(ECHO), 5.0, again)
        client.call_soon(running.address, Command(KEEP), 0.2, got.append)
        deadline = time.monotonic() + 30
        while len(got) < 5 and time.monotonic() < deadline:
            client.poll(30.0)  # returns by itself when a request is overdue
        assert sorted(type(each).__name__ for each in got) == ["Command"] * 4 + ["TimedOut"]
        assert time.monotonic() < deadline


def test_a_large_reply_is_told_where_it_was_received_to_who_asks_for_that() -> None:
    body = bytes(range(256)) * 4096
    with serving() as running, BlockingClient() as client:
        got: list[Any] = []
        client.call_soon(running.address, Command(ECHO, body=body), 5.0, got.append, in_place=True)
        client.call_soon(running.address, Command(ECHO, body=body), 5.0, got.append)
        client.call_soon(running.address, Command(ECHO, body=b"small"), 5.0, got.append, in_place=True)
        deadline = time.monotonic() + 5
        while len(got) < 3 and time.monotonic() < deadline:
            client.poll(5.0)
        assert [type(each.body) for each in got] == [memoryview, bytes, bytes]
        assert [bytes(each.body) for each in got] == [body, body, b"small"]
        assert client.call(running.address, Command(ECHO, body=body), 5.0).body == body


def test_call_soon_tells_of_a_lost_connection() -> None:
    with serving() as running, BlockingClient() as client:
        got: list[Any] = []
        client.call_soon(running.address, Command(KEEP), 5.0, got.append)
        while not running.kept:
            client.poll(0.01)
        running.on_loop(lambda: [each.abort("test") for each in list(running.server.connections)])
        client.poll(5.0)
        assert [type(each) for each in got] == [ConnectionLost]


def test_a_server_that_does_not_take_the_request_times_out() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with BlockingClient() as client:
            address = f"127.0.0.1:{listening.getsockname()[1]}"
            with pytest.raises(TimedOut, match="did not take the request in time"):
                client.call(address, Command(ECHO, body=bytes(15 << 20)), 0.3)


def test_who_waits_behind_a_large_request_gives_up_in_time_and_is_not_sent() -> None:
    with socket.socket() as listening, ThreadPoolExecutor(4) as threads, BlockingClient() as client:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        large = threads.submit(client.call, address, Command(ECHO, body=bytes(15 << 20)), 30.0)
        accepted, _ = listening.accept()
        with accepted:
            accepted.recv(1, socket.MSG_PEEK)
            patient = threads.submit(client.call, address, Command(ECHO, body=b"patient"), 30.0)
            with pytest.raises(TimedOut, match="did not take the request in time"):
                client.call(address, Command(ECHO, body=b"gives up"), 0.2)
            requests = replies(accepted, 2)
            for each in requests:
                accepted.sendall(each.reply().encode())
            assert large.result(10).code == patient.result(10).code == 0
        assert [each.body[:10] for each in requests] == [bytes(10), b"patient"]


class Interrupted(BaseException):
    """What Ctrl-C does, as often as one likes."""


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("how", ["call", "send_one_way", "call_soon"])
def test_nothing_follows_half_a_request_that_was_interrupted(how: str) -> None:
    with socket.socket() as listening, BlockingClient() as client:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        arguments = {"call": (30.0,), "send_one_way": (), "call_soon": (30.0, print)}[how]
        with pytest.raises(Interrupted), interrupted_after(0.3):
            getattr(client, how)(address, Command(ECHO, body=bytes(15 << 20)), *arguments)
        client.send_one_way(address, Command(ECHO, body=b"next"))
        first, _ = listening.accept()
        second, _ = listening.accept()
        with first, second:
            received = 0
            while data := first.recv(1 << 20):
                received += len(data)
            assert 0 < received < 15 << 20
            assert replies(second, 1)[0].body == b"next"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # while it dials, too
def test_a_client_that_is_interrupted_at_any_moment_goes_on() -> None:
    with serving(ServerConfig(accepts_per_second_max=100_000)) as running, BlockingClient() as client:
        ends_at = time.monotonic() + 2
        answered = interrupted = 0
        while time.monotonic() < ends_at:
            try:
                with interrupted_after(0.0002 + answered % 97 * 0.00001):
                    client.call(running.address, Command(ECHO, body=bytes(100)), 5.0)
                    client.send_one_way(running.address, Command(ECHO))
                    answered += 1
            except Interrupted:
                interrupted += 1
        assert interrupted > 10
        assert client.call(running.address, Command(ECHO, body=b"on"), 5.0).body == b"on"


def test_a_request_whose_connection_was_lost_before_its_turn_goes_to_no_other() -> None:
    with socket.socket() as listening, ThreadPoolExecutor(2) as threads, BlockingClient() as client:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        calls = [
            threads.submit(client.call, address, Command(ECHO, body=bytes([n]) * (15 << 20)), 30.0)
            for n in range(2)
        ]
        first, _ = listening.accept()
        with first:
            first.recv(1, socket.MSG_PEEK)
            [line] = client._lines.values()
            while len(line._pending) < 2:
                time.sleep(0.01)
        for each in calls:
            assert isinstance(each.exception(10), ConnectionLost)
        client.send_one_way(address, Command(ECHO, body=b"next"))
        second, _ = listening.accept()
        with second:
            assert replies(second, 1)[0].body == b"next"


def test_who_sends_for_others_keeps_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listening, ThreadPoolExecutor(20) as threads, BlockingClient() as client:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        quiet = threads.submit(client.call, address, Command(ECHO), 8.0)
        accepted, _ = listening.accept()
        with accepted:
            [line] = client._lines.values()
            send = line._send
            others: list[tuple[float, bytes]] = []

            def send_and_then_others_come(*arguments: Any) -> None:
                send(*arguments)
                if not others:
                    others.extend((time.monotonic() + 8.0, bytes(60_000)) for _ in range(300))
                    line._outgoing.extend(others)

            monkeypatch.setattr(line, "_send", send_and_then_others_come)
            began = time.monotonic()
            with pytest.raises(Unreachable):
                client.call(address, Command(ECHO), 0.5)
            assert time.monotonic() - began < 4
            assert others
        assert isinstance(quiet.exception(10), ConnectionLost)


def test_who_begins_to_wait_while_the_connection_is_lost_waits_for_no_other_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strangers: list[socket.socket] = []
    waits = 0

    class Poll:
        """Between a thread's last look at its socket and its wait, another thread loses that socket, and
        files are opened."""

        def __init__(self) -> None:
            self._poll = POLL()

        def register(self, what: Any, event: int) -> None:
            self._poll.register(what, event)

        def poll(self, milliseconds: float) -> Any:
            nonlocal waits
            waits += milliseconds > 0
            if waits == 1 and not strangers:
                [line] = client._lines.values()
                other = threading.Thread(target=line._lose, args=(line._socket, ConnectionLost("test")))
                other.start()
                other.join()
                strangers.extend(socket.socketpair())
            return self._poll.poll(milliseconds)

    with serving() as running, BlockingClient() as client:
        client.call(running.address, Command(ECHO))
        monkeypatch.setattr(select, "poll", Poll)
        begin = time.monotonic()
        with pytest.raises(ConnectionLost):
            client.call(running.address, Command(KEEP), 30.0)
        assert time.monotonic() - begin < 15
        assert strangers
        assert client.call(running.address, Command(ECHO, body=b"on")).body == b"on"
    for stranger in strangers:
        stranger.close()


def test_garbage_from_a_server_is_a_lost_connection() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def serve() -> None:
            accepted, _ = listening.accept()
            accepted.recv(1000)
            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            accepted.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with BlockingClient() as client, pytest.raises(ConnectionLost, match="frame of"):
            client.call(f"127.0.0.1:{listening.getsockname()[1]}", Command(ECHO))
        thread.join()


def test_a_connection_that_is_made_while_the_client_closes_is_closed_as_well() -> None:
    ours, theirs = socket.socketpair()

    def dial_and_close(host: str, port: int, timeout: float) -> socket.socket:
        client.close()
        return ours

    client = BlockingClient(dial=dial_and_close)
    with theirs:
        with pytest.raises(ConnectionLost, match="this client is closed"):
            client.call("127.0.0.1:9876", request(RequestCode.HEART_BEAT), timeout=3.0)
        assert ours.fileno() == -1
