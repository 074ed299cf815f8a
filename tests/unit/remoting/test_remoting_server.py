from __future__ import annotations

import asyncio
import logging

import pytest

from kourou.errors import ConfigError
from kourou.remoting.config import ServerConfig
from kourou.remoting.server import Server
from tests.unit.remoting.simulated_world import ECHO, KEEP, PARK, World, ask, on_a_loop, turns


@on_a_loop
async def test_an_address_in_use_is_named_with_the_way_out() -> None:
    world = World()
    await world.serve(config=ServerConfig(port=10911))
    with pytest.raises(
        ConfigError, match=r"the test server cannot listen on 127\.0\.0\.1:10911: .* choose another"
    ):
        await world.serve(config=ServerConfig(port=10911))


@on_a_loop
async def test_a_peer_that_sends_no_complete_frame_is_closed_after_ten_seconds() -> None:
    world = World()
    await world.serve()
    silent, dripping = await world.peer(), await world.peer()
    for byte in ask(ECHO).encode()[:9]:
        dripping.transport.write(bytes([byte]))
        await world.pass_time(1)
    assert not silent.is_lost
    assert not dripping.is_lost
    await world.pass_time(2)
    assert silent.is_lost
    assert dripping.is_lost
    assert world.server.counters.closed == {"first frame": 2}


@on_a_loop
async def test_a_frame_that_drips_is_closed_after_thirty_seconds_and_others_do_not_notice() -> None:
    world = World()
    await world.serve()
    slow, honest = await world.peer(), await world.peer()
    await slow.send(ask(ECHO, 1))
    frame = ask(ECHO, 2, bytes(1000)).encode()
    for second in range(29):
        slow.transport.write(frame[second : second + 1])
        await honest.send(ask(ECHO, second))
        await world.pass_time(1)
    assert not slow.is_lost
    for second in range(29, 33):
        slow.transport.write(frame[second : second + 1])
        await world.pass_time(1)
    assert slow.is_lost
    assert len(honest.replies) == 29
    assert world.server.counters.closed == {"frame": 1}


@on_a_loop
async def test_many_frames_one_after_the_other_are_not_one_slow_frame() -> None:
    world = World()
    await world.serve(config=ServerConfig(frame_seconds=3))
    peer = await world.peer()
    frame = ask(ECHO, 1).encode()
    peer.transport.write(frame[:10])
    for _ in range(12):
        await world.pass_time(1)
        peer.transport.write(frame[10:] + frame[:10])
    assert not peer.is_lost


@on_a_loop
async def test_an_idle_peer_is_closed_after_two_minutes_and_a_busy_one_is_not() -> None:
    world = World()
    await world.serve()
    idle, busy = await world.peer(), await world.peer()
    await idle.send(ask(ECHO, 1))
    for _ in range(4):
        await busy.send(ask(ECHO, 1))
        await world.pass_time(29.5)
    assert not idle.is_lost
    await world.pass_time(4)
    assert idle.is_lost
    assert not busy.is_lost
    assert world.server.counters.closed == {"idle": 1}


@on_a_loop
async def test_a_peer_that_does_not_read_is_closed_after_thirty_seconds_and_others_do_not_notice() -> None:
    world = World()
    await world.serve({ECHO: lambda request, answer: answer(request.reply(body=bytes(100_000)))})
    stuck, honest = await world.peer(), await world.peer()
    stuck.transport.pause_reading()
    await stuck.send(ask(ECHO, 1))
    await honest.send(ask(ECHO, 1))
    await world.pass_time(29)
    assert not stuck.is_lost
    await world.pass_time(3)
    assert stuck.is_lost
    await honest.send(ask(ECHO, 2))
    assert len(honest.replies) == 2
    assert world.server.counters.closed == {"stalled": 1}


@on_a_loop
async def test_a_peer_that_reads_too_slowly_to_get_below_the_bound_is_closed() -> None:
    world = World()
    await world.serve(
        {ECHO: lambda request, answer: answer(request.reply(body=bytes(9 << 20)))},
        ServerConfig(frame_seconds=5),
    )
    peer = await world.peer()
    [accepted] = world.accepted
    peer.transport.pause_reading()
    await peer.send(ask(ECHO, 1))
    theirs = world.network.transports[1]
    for _ in range(29):  # progress, but not enough of it
        theirs._was_read(32_768)
        await world.pass_time(1)
        assert accepted.is_open
    await world.pass_time(3)
    assert not accepted.is_open
    assert world.server.counters.closed == {"overfull": 1}


@on_a_loop
async def test_when_all_leave_too_much_unread_the_one_with_most_is_closed() -> None:
    world = World()
    sizes = iter([40_000, 90_000])
    await world.serve(
        {ECHO: lambda request, answer: answer(request.reply(body=bytes(next(sizes))))},
        ServerConfig(total_in_flight_bytes_max=100_000),
    )
    modest, greedy = await world.peer(), await world.peer()
    for peer in (modest, greedy):
        peer.transport.pause_reading()
        await peer.send(ask(ECHO))
    assert greedy.is_lost  # at once, not at the next sweep
    assert not modest.is_lost


# ---------------------------------------------------------------------------------------------- bounds


@on_a_loop
async def test_connections_are_bounded_and_a_place_becomes_free_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    await world.serve(config=ServerConfig(connections_max=2))
    first, second, third = await world.peer(), await world.peer(), await world.peer()
    fourth = await world.peer()
    assert [p.is_lost for p in (first, second, third, fourth)] == [False, False, True, True]
    assert world.server.counters.refused == {"connections_max": 2}
    assert [r.getMessage() for r in caplog.records if "connections_max is 2" in r.getMessage()] != []
    assert len(caplog.records) == 1
    first.transport.close()
    await turns()
    fifth = await world.peer()
    assert not fifth.is_lost


@on_a_loop
async def test_connections_from_one_host_are_bounded_by_number_and_by_rate() -> None:
    world = World()
    await world.serve(config=ServerConfig(connections_per_peer_max=5))
    assert [(await world.peer()).is_lost for _ in range(7)] == [False] * 5 + [True] * 2
    assert world.server.counters.refused == {"connections_per_peer_max": 2}

    world = World()
    await world.serve(config=ServerConfig(accepts_per_second_max=3))
    assert [(await world.peer()).is_lost for _ in range(5)] == [False] * 3 + [True] * 2
    world.clock.advance(0.4)
    assert [(await world.peer()).is_lost for _ in range(2)] == [False, True]


# -------------------------------------------------------------------------------------------- stopping


@on_a_loop
async def test_stopping_answers_what_is_being_worked_on_and_takes_nothing_new() -> None:
    world = World()
    server = await world.serve()
    peer = await world.peer()
    await peer.send(ask(KEEP, 1), ask(PARK, 2))
    stopping = asyncio.ensure_future(server.stop(3.0))
    await turns()
    await peer.send(ask(ECHO, 3))
    await world.pass_time(1, 0.1)
    assert not stopping.done()
    request, answer = world.kept[0]
    answer(request.reply(body=b"done"))
    await world.pass_time(0.1, 0.02)
    await stopping
    assert [r.opaque for r in peer.replies] == [1]
    assert peer.is_lost
    assert not server.connections
    with pytest.raises(ConnectionRefusedError):
        await world.peer()


@on_a_loop
async def test_stopping_does_not_wait_longer_than_it_was_told() -> None:
    world = World()
    server = await world.serve()
    peer = await world.peer()
    peer.transport.pause_reading()
    await peer.send(ask(KEEP, 1), ask(ECHO, 2, bytes(100)))
    stopping = asyncio.ensure_future(server.stop(0.5))
    await world.pass_time(0.4, 0.05)
    assert not stopping.done()
    await world.pass_time(0.3, 0.05)
    await stopping
    assert not server.connections


@on_a_loop
async def test_two_servers_share_handlers_and_a_tick() -> None:
    world = World()
    main = await world.serve()
    fast = Server(
        world.handlers, ServerConfig(), network=world.network, clock=world.clock, tick=world.tick, name="fast"
    )
    await fast.start()
    assert main.port != fast.port
    assert fast.addresses == [("127.0.0.1", fast.port)]
    client = world.client()
    reply = await client.call(f"127.0.0.1:{fast.port}", ask(ECHO, body=b"x"))
    assert reply.body == b"x"
    await client.close()


@on_a_loop
async def test_running_out_of_files_is_counted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    server = await world.serve()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            server._on_exhausted()
    assert server.counters.refused == {"files": 3}
    assert [record.getMessage() for record in caplog.records] == [
        "connection refused: no file descriptor is left; raise the limit (ulimit -n)"
    ]
