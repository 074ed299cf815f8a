from __future__ import annotations

import logging

import pytest

from kourou.doors.chance import Chance
from kourou.doors.simulated_network import SimulatedTransport
from kourou.errors import Busy, ConfigError, ConnectionLost, TimedOut
from kourou.protocol.command import FLAG_ONE_WAY, FLAG_REPLY, Command, reply_frame, reply_template
from kourou.protocol.frame import join
from kourou.remoting.config import ServerConfig
from kourou.remoting.server import Answer, Connection
from tests.unit.remoting.simulated_world import ECHO, KEEP, PARK, RAISE, World, ask, on_a_loop, turns


@on_a_loop
async def test_a_reply_carries_the_number_and_the_encoding_of_its_request() -> None:
    world = World()
    await world.serve()
    peer = await world.peer()
    binary = Command(ECHO, {"a": "b"}, b"two", opaque=-5, serialization=1)
    await peer.send(ask(ECHO, 7, b"one"), binary)
    assert [(r.opaque, r.serialization, r.body, r.is_reply) for r in peer.replies] == [
        (7, 0, b"one", True),
        (-5, 1, b"two", True),
    ]


@pytest.mark.parametrize(
    ("parts", "written"),
    [
        ((bytes(30_000),), [30_000, 30_000]),
        ((bytes(3), bytes(30_000)), [60_006]),
        ((memoryview(bytes(30_000)),), [60_000]),  # not to be kept until the peer reads
    ],
)
@on_a_loop
async def test_large_answers_are_written_as_they_are_and_others_joined(
    parts: tuple[bytes | memoryview, ...], written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer_twice(request: Command, answer: Answer) -> None:
        for _ in range(2):
            answer.connection.send_parts(parts, sum(map(len, parts)))

    world = World()
    await world.serve({ECHO: answer_twice})
    peer = await world.peer()
    monkeypatch.setattr(SimulatedTransport, "writelines", lambda self, many: [*map(self.write, many)])
    peer.transport.write(ask(ECHO, 1).encode())
    await turns()
    accepted = peer.transport.peer
    assert accepted is not None
    assert [len(each) for each in accepted.written] == written


@on_a_loop
async def test_an_unknown_code_is_answered_in_the_words_of_the_original() -> None:
    world = World()
    await world.serve()
    peer = await world.peer()
    await peer.send(ask(2**31 - 1, 1), ask(-3, 2), ask(ECHO, 3))
    assert [(r.code, r.remark) for r in peer.replies] == [
        (3, " request type 2147483647 not supported"),
        (3, " request type -3 not supported"),
        (0, None),
    ]


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (Busy(2, "[OVERLOAD]too much"), 2, "[OVERLOAD]too much"),
        (ConfigError("topic '' has no name"), 1, "topic '' has no name"),
        (ValueError("a secret of ours"), 1, "4 failed inside the server (ValueError); its log says more"),
        (RecursionError(), 1, "4 failed inside the server (RecursionError); its log says more"),
    ],
)
@on_a_loop
async def test_a_handler_that_raises_is_answered_and_the_connection_lives(
    error: Exception, code: int, remark: str
) -> None:
    world = World()
    world.raises = error
    await world.serve()
    peer = await world.peer()
    await peer.send(ask(RAISE, 1), ask(ECHO, 2))
    assert [(r.opaque, r.code, r.remark) for r in peer.replies] == [(1, code, remark), (2, 0, None)]
    assert world.server.counters.in_flight_bytes == 0


@on_a_loop
async def test_a_fault_of_ours_is_logged_once_a_minute_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    await world.serve()
    peer = await world.peer()
    with caplog.at_level(logging.WARNING):
        await peer.send(*(ask(RAISE, n) for n in range(5)))
        assert [record.exc_info is not None for record in caplog.records] == [True]
        world.clock.advance(61)
        await turns()
        await peer.send(ask(RAISE, 9))
    assert "4 more like this" in caplog.records[-1].getMessage()


@on_a_loop
async def test_one_way_requests_are_handled_and_never_answered() -> None:
    world = World()
    await world.serve()
    peer = await world.peer()
    await peer.send(
        ask(ECHO, 1, flag=FLAG_ONE_WAY), ask(RAISE, 2, flag=FLAG_ONE_WAY), ask(999, 3, flag=FLAG_ONE_WAY)
    )
    assert peer.replies == []
    assert world.server.counters.requests == 3
    assert world.server.counters.in_flight_bytes == 0


@on_a_loop
async def test_only_the_first_answer_counts() -> None:
    world = World()
    await world.serve()
    peer = await world.peer()
    await peer.send(ask(KEEP, 1))
    [(request, answer)] = world.kept
    assert answer.is_open
    answer(request.reply(remark="first"))
    answer(request.reply(remark="second"))
    await turns()
    assert [r.remark for r in peer.replies] == ["first"]
    assert not answer.is_open


@on_a_loop
async def test_a_whole_frame_may_be_the_answer() -> None:
    world = World()
    header = reply_template(b'{"a":"1"}')
    await world.serve({ECHO: lambda request, answer: answer(reply_frame(header % request.opaque, b"x"))})
    peer = await world.peer()
    await peer.send(ask(ECHO, 3))
    assert [(r.opaque, dict(r.fields), r.body) for r in peer.replies] == [(3, {"a": "1"}, b"x")]


@on_a_loop
async def test_a_reply_too_big_for_a_frame_becomes_an_error_the_peer_can_read() -> None:
    world = World()
    await world.serve({ECHO: lambda request, answer: answer(request.reply(body=bytes(17 << 20)))})
    peer = await world.peer()
    await peer.send(ask(ECHO, 3))
    assert [(r.opaque, r.code) for r in peer.replies] == [(3, 1)]
    assert "frame of 17825" in str(peer.replies[0].remark)


@on_a_loop
async def test_all_answers_of_a_read_go_out_with_one_write() -> None:
    world = World()
    await world.serve()
    peer = await world.peer()
    await peer.send(*(ask(ECHO, number) for number in range(500)))
    [accepted] = [t for t in world.network.transports if t is not peer.transport]
    assert len(accepted.written) == 1
    assert [r.opaque for r in peer.replies] == list(range(500))


@on_a_loop
async def test_work_for_the_end_of_the_tick_runs_once_for_all_connections_before_they_are_written() -> None:
    world = World()
    batches: list[list[Answer]] = []
    waiting: list[tuple[Command, Answer]] = []

    def append_together() -> None:
        batches.append([answer for _, answer in waiting])
        for request, answer in waiting:
            answer(request.reply())
        waiting.clear()

    def handle(request: Command, answer: Answer) -> None:
        if not waiting:
            world.tick.at_end(append_together)
        waiting.append((request, answer))

    await world.serve({ECHO: handle})
    peers = [await world.peer() for _ in range(4)]
    for peer in peers:
        peer.transport.write(b"".join(ask(ECHO, number).encode() for number in range(8)))
    await turns()
    assert [len(batch) for batch in batches] == [32]
    assert [len(t.written) for t in world.network.transports[1::2]] == [1, 1, 1, 1]
    assert all(len(peer.replies) == 8 for peer in peers)


@on_a_loop
async def test_requests_do_not_depend_on_how_their_bytes_arrive() -> None:
    for seed in range(20):
        world = World(Chance(seed))
        await world.serve()
        peer = await world.peer()
        await peer.send(*(ask(ECHO, number, b"x" * number) for number in range(20)))
        await turns(2000)
        assert [(r.opaque, len(r.body)) for r in peer.replies] == [(n, n) for n in range(20)], f"seed {seed}"
        assert world.server.counters.in_flight_bytes == 0


@on_a_loop
async def test_a_broken_frame_closes_only_its_own_connection(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    await world.serve()
    honest, broken = await world.peer(), await world.peer()
    for _ in range(3):
        broken.transport.write(ask(ECHO, 1).encode() + join(0, b"{\x1b[31mno json"))
        await turns()
        assert broken.is_lost
        broken = await world.peer()
    await honest.send(ask(ECHO, 5))
    assert [r.opaque for r in honest.replies] == [5]
    assert world.server.counters.closed == {"protocol error": 3}
    assert len(caplog.records) == 1
    assert "\x1b" not in caplog.text


@on_a_loop
async def test_what_was_answered_before_a_broken_frame_still_goes_out() -> None:
    world = World()
    await world.serve()
    peer = await world.peer()
    peer.transport.write(ask(ECHO, 1).encode() + join(0, b"null      ") + ask(ECHO, 2).encode())
    await turns()
    assert [r.opaque for r in peer.replies] == [1]
    assert peer.is_lost


@on_a_loop
async def test_a_frame_above_the_configured_size_is_refused_whole_or_in_pieces() -> None:
    world = World()
    await world.serve(config=ServerConfig(frame_bytes_max=1000))
    peer = await world.peer()
    await peer.send(ask(ECHO, 1, bytes(800)))
    assert [len(r.body) for r in peer.replies] == [800]
    await peer.send(ask(ECHO, 2, bytes(1000)))
    assert peer.is_lost
    peer = await world.peer()
    peer.transport.write(ask(ECHO, 2, bytes(9000)).encode()[:2000])
    await turns()
    assert peer.is_lost


@on_a_loop
async def test_replies_to_nobody_are_dropped() -> None:
    world = World()
    await world.serve()
    peer = await world.peer()
    await peer.send(ask(0, 12345, flag=FLAG_REPLY), ask(ECHO, 2))
    assert [r.opaque for r in peer.replies] == [2]
    assert world.server.counters.requests == 1


# ------------------------------------------------------------------------------------- the server asks


@on_a_loop
async def test_a_request_of_the_server_gets_its_reply() -> None:
    world = World()
    await world.serve()
    peer = await world.peer()
    got: list[Command | Exception] = []
    world.accepted[0].call(Command(220), 1000, got.append)
    world.accepted[0].send_one_way(Command(40))
    await turns()
    asked, told = peer.replies
    assert (asked.code, asked.opaque, asked.is_reply) == (220, 1, False)  # never 0: Node takes it for nothing
    assert told.is_one_way
    await peer.send(Command(0, body=b"state", opaque=asked.opaque, flag=FLAG_REPLY))
    assert [type(each) for each in got] == [Command]
    assert world.accepted[0].pending_calls == 0


@on_a_loop
async def test_a_request_of_the_server_times_out_once_and_a_late_reply_is_dropped() -> None:
    world = World()
    await world.serve()
    peer = await world.peer()
    await peer.send(ask(ECHO))
    got: list[Command | Exception] = []
    world.accepted[0].call(Command(220), 3000, got.append)
    world.accepted[0].call(Command(221), 1000, got.append)
    await world.pass_time(2)
    assert [type(each) for each in got] == [TimedOut]
    await world.pass_time(2)
    assert [type(each) for each in got] == [TimedOut, TimedOut]
    await peer.send(Command(0, opaque=1, flag=FLAG_REPLY))
    assert len(got) == 2
    assert world.accepted[0].is_open  # slow to answer is not gone


@on_a_loop
async def test_a_lost_connection_settles_everything_once() -> None:
    world = World()
    await world.serve()
    peer = await world.peer()
    await peer.send(ask(KEEP, 1), ask(PARK, 2))
    [accepted] = world.accepted
    got: list[Command | Exception] = []
    gone: list[Connection] = []
    accepted.call(Command(220), 3000, got.append)
    accepted.on_close(gone.append)
    accepted.on_close(lambda connection: 1 / 0)  # type: ignore[arg-type]
    accepted.on_close(gone.append)
    peer.transport.abort()
    await turns()
    assert [type(each) for each in got] == [ConnectionLost]
    assert gone == [accepted, accepted]
    assert not accepted.is_open
    assert world.server.counters.in_flight_bytes == 0
    for request, answer in world.kept:
        answer(request.reply())  # too late, and harmless
    assert world.server.counters.in_flight_bytes == 0
    accepted.on_close(gone.append)
    assert len(gone) == 3
    accepted.call(Command(220), 3000, got.append)
    assert [type(each) for each in got] == [ConnectionLost, ConnectionLost]


@on_a_loop
async def test_handlers_see_who_asks() -> None:
    world = World()
    await world.serve()
    peer = await world.peer()
    await peer.send(ask(KEEP))
    connection = world.kept[0][1].connection
    host, port = peer.transport.local
    assert (connection.peer_host, connection.peer_port, connection.peer) == (host, port, f"{host}:{port}")
    assert (connection.local_host, connection.local_port) == ("127.0.0.1", world.server.port)
    assert connection.packed_peer == b"\x7f\x00\x00\x01" + port.to_bytes(4, "big")


# --------------------------------------------------------------------------------------- back-pressure


@on_a_loop
async def test_too_many_unanswered_requests_stop_the_reading_until_half_are_answered() -> None:
    world = World()
    await world.serve(config=ServerConfig(in_flight_requests_max=10))
    peer = await world.peer()
    for number in range(15):
        await peer.send(ask(KEEP, number))
    assert len(world.kept) == 11
    assert world.accepted[0].is_held_back
    for request, answer in world.kept[:5]:
        answer(request.reply())
    await turns()
    assert len(world.kept) == 11  # six are still open
    world.kept[5][1](world.kept[5][0].reply())
    await turns()
    assert len(world.kept) == 15
    assert len(peer.replies) == 6


@on_a_loop
async def test_too_many_unanswered_bytes_stop_the_reading() -> None:
    world = World()
    await world.serve(config=ServerConfig(in_flight_bytes_max=100_000))
    peer = await world.peer()
    for number in range(5):
        await peer.send(ask(KEEP, number, bytes(40_000)))
    assert len(world.kept) == 3
    for request, answer in world.kept[:2]:
        answer(request.reply())
    await turns()
    assert len(world.kept) == 5


@on_a_loop
async def test_parked_requests_do_not_count_as_being_worked_on() -> None:
    world = World()
    await world.serve(config=ServerConfig(in_flight_requests_max=10))
    peer = await world.peer()
    for number in range(50):
        await peer.send(ask(PARK, number, bytes(1000)))
    assert len(world.kept) == 50
    assert world.server.counters.in_flight_bytes == 0
    for request, answer in world.kept:
        answer(request.reply())
    await turns()
    assert len(peer.replies) == 50
    assert world.accepted[0].in_flight_requests == 0


@on_a_loop
async def test_when_all_together_ask_too_much_all_wait_until_half_is_done() -> None:
    world = World()
    await world.serve(config=ServerConfig(total_in_flight_bytes_max=100_000))
    peers = [await world.peer() for _ in range(4)]
    for peer in peers:
        await peer.send(ask(KEEP, 1, bytes(60_000)))
    peers.append(await world.peer())
    await peers[4].send(ask(KEEP, 1))
    assert len(world.kept) == 2
    assert all(each.is_held_back for each in world.accepted)
    for peer in peers:
        await peer.send(ask(ECHO, 2))
    for _ in range(3):
        for request, answer in world.kept:
            answer(request.reply())
        await turns()
    assert not any(each.is_held_back for each in world.accepted)
    assert [sorted(r.opaque for r in peer.replies) for peer in peers] == [[1, 2]] * 5
    assert world.server.counters.in_flight_bytes == 0


@on_a_loop
async def test_a_peer_that_leaves_much_unread_is_not_read_from_until_half_is_gone() -> None:
    world = World()
    await world.serve(
        {ECHO: lambda request, answer: answer(request.reply(body=bytes(60_000)))},
        ServerConfig(write_buffer_pause_bytes=100_000),
    )
    peer, other = await world.peer(), await world.peer()
    peer.transport.pause_reading()
    for number in range(4):
        await peer.send(ask(ECHO, number))
    stuck = next(each for each in world.accepted if each.peer_port == peer.transport.local[1])
    assert stuck.is_held_back
    assert not stuck.is_writable
    assert world.server.counters.requests == 2
    await other.send(ask(ECHO, 9))
    assert [r.opaque for r in other.replies] == [9]
    peer.transport.resume_reading()
    await turns()
    assert [r.opaque for r in peer.replies] == [0, 1, 2, 3]
    assert stuck.is_writable


@on_a_loop
async def test_whoever_holds_most_of_too_many_half_received_frames_is_closed() -> None:
    world = World()
    await world.serve(config=ServerConfig(total_in_flight_bytes_max=100_000))
    greedy, modest = await world.peer(), await world.peer()
    frame = ask(ECHO, 1, bytes(200_000)).encode()
    small = ask(ECHO, 1, bytes(50_000)).encode()
    greedy.transport.write(frame[:70_000])
    await turns()
    modest.transport.write(small[:40_000])
    await turns()
    assert greedy.is_lost
    assert not modest.is_lost
    modest.transport.write(small[40_000:])
    await turns()
    assert [len(r.body) for r in modest.replies] == [50_000]
    assert world.server.counters.closed == {"crowded out": 1}


@on_a_loop
async def test_small_requests_for_large_answers_are_answered_a_write_buffer_at_a_time() -> None:
    world = World()
    await world.serve(
        {ECHO: lambda request, answer: answer(request.reply(body=bytes(60_000)))},
        ServerConfig(write_buffer_pause_bytes=100_000),
    )
    peer = await world.peer()
    peer.transport.pause_reading()
    await peer.send(*(ask(ECHO, number) for number in range(50)))
    [accepted] = world.accepted
    assert world.server.counters.requests == 2
    assert accepted.write_buffer_bytes < 150_000
    assert accepted.is_working
    await peer.send(ask(ECHO, 50))
    peer.transport.resume_reading()
    await turns(300)
    assert [r.opaque for r in peer.replies] == list(range(51))
    assert not accepted.is_working
    assert not accepted.is_held_back


@on_a_loop
async def test_a_broken_frame_among_those_put_off_closes_the_connection() -> None:
    world = World()
    await world.serve(
        {ECHO: lambda request, answer: answer(request.reply(body=bytes(60_000)))},
        ServerConfig(write_buffer_pause_bytes=100_000),
    )
    peer = await world.peer()
    peer.transport.write(b"".join(ask(ECHO, n).encode() for n in range(5)) + join(0, b'"no command"'))
    await turns(100)
    assert [r.opaque for r in peer.replies] == list(range(5))
    assert peer.is_lost


@on_a_loop
async def test_nothing_is_written_to_a_connection_that_is_being_closed() -> None:
    world = World()
    await world.serve()
    peer = await world.peer()
    await peer.send(ask(KEEP, 1), ask(KEEP, 2))
    [accepted] = world.accepted
    world.kept[0][1](world.kept[0][0].reply())
    accepted.close("test")
    world.kept[1][1](world.kept[1][0].reply())
    accepted.send_one_way(Command(40))
    await turns()
    assert [r.opaque for r in peer.replies] == [1]
    assert world.server.counters.closed == {"test": 1}


@on_a_loop
async def test_a_failing_callback_harms_neither_the_connection_nor_the_others() -> None:
    world = World()
    await world.serve()
    peer = await world.peer()
    await peer.send(ask(ECHO))
    [accepted] = world.accepted
    got: list[Command | Exception] = []

    def fail(result: Command | Exception) -> None:
        got.append(result)
        raise RuntimeError("in a callback")

    for _ in range(4):
        accepted.call(Command(220), 1000, fail)
    await peer.send(
        Command(0, opaque=1, flag=FLAG_REPLY), Command(0, opaque=2, flag=FLAG_REPLY), ask(ECHO, 9)
    )
    assert len(got) == 2
    assert peer.replies[-1].opaque == 9
    await world.pass_time(2)
    assert [type(each) for each in got] == [Command, Command, TimedOut, TimedOut]
    assert accepted.is_open
