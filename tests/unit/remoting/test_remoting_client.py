from __future__ import annotations

import asyncio

import pytest

from kourou.errors import Busy, ConfigError, ConnectionLost, TimedOut, Unreachable
from kourou.protocol.command import Command
from kourou.remoting.client import LINES_MAX
from kourou.remoting.config import ServerConfig
from kourou.remoting.server import Answer
from tests.unit.remoting.simulated_world import ECHO, KEEP, World, ask, on_a_loop, turns


@on_a_loop
async def test_calls_share_one_connection_and_find_their_replies_in_any_order() -> None:
    world = World()
    await world.serve()
    client = world.client()
    calls = [asyncio.ensure_future(client.call(world.address, ask(KEEP, body=b"%d" % n))) for n in range(50)]
    await turns()
    assert len(world.accepted) == 1
    assert len(world.network.transports[0].written) == 1  # all of a tick's requests in one write
    for request, answer in reversed(world.kept):
        answer(request.reply(body=request.body))
    assert [reply.body for reply in await asyncio.gather(*calls)] == [b"%d" % n for n in range(50)]
    await client.close()
    assert not world.server.connections


@on_a_loop
async def test_a_failed_attempt_fails_all_who_waited_for_it() -> None:
    world = World()
    client = world.client()
    calls = [client.call("127.0.0.1:9876", ask(ECHO)) for _ in range(3)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in results] == [Unreachable] * 3
    assert str(results[0]) == "cannot reach 127.0.0.1:9876: Connection refused"


@on_a_loop
async def test_addresses_nobody_talks_to_are_forgotten_and_those_in_use_are_not() -> None:
    world = World()
    await world.serve()
    client = world.client()
    await client.call(world.address, ask(ECHO))
    for number in range(2 * LINES_MAX + 10):
        with pytest.raises(Unreachable):
            await client.call(f"10.0.{number // 256}.{number % 256}:1", ask(ECHO))
    assert len(client._lines) <= LINES_MAX
    assert client.is_connected(world.address)
    assert len(world.accepted) == 1


@on_a_loop
async def test_after_failures_the_next_try_waits_longer_and_longer_but_not_for_ever() -> None:
    world = World()
    client = world.client()
    waits: list[float] = []
    for _ in range(12):
        start = world.clock.monotonic()
        call = asyncio.ensure_future(client.call("127.0.0.1:9876", ask(ECHO), timeout=60))
        await turns()
        while not call.done():
            await world.pass_time(0.01, 0.01)
        assert isinstance(call.exception(), Unreachable)
        waits.append(world.clock.monotonic() - start)
    assert waits[0] == 0
    for number, wait in enumerate(waits[1:]):
        full = min(5.0, 0.1 * 2**number)
        assert full / 2 - 0.02 <= wait <= full + 0.02
    assert len(set(waits[7:])) > 1  # jitter: not all clients at the same moment


@on_a_loop
async def test_a_call_whose_time_ends_before_the_next_try_fails_at_once_with_the_last_reason() -> None:
    world = World()
    client = world.client()
    for _ in range(8):
        call = asyncio.ensure_future(client.call("127.0.0.1:9876", ask(ECHO), timeout=60))
        await turns()
        if not call.done():
            await world.pass_time(6)
        assert isinstance(call.exception(), Unreachable)
    with pytest.raises(Unreachable, match="Connection refused"):
        await client.call("127.0.0.1:9876", ask(ECHO), timeout=0.5)


@on_a_loop
async def test_a_server_that_comes_up_is_reached_by_the_next_try() -> None:
    world = World()
    client = world.client()
    with pytest.raises(Unreachable):
        await client.call("127.0.0.1:9876", ask(ECHO))
    await world.serve(config=ServerConfig(port=9876))
    call = asyncio.ensure_future(client.call("127.0.0.1:9876", ask(ECHO, body=b"up")))
    await world.pass_time(0.2, 0.01)
    assert (await call).body == b"up"
    await client.close()


@on_a_loop
async def test_a_connection_attempt_takes_no_longer_than_allowed() -> None:
    world = World()
    await world.serve()
    world.network.partition("127.0.0.1", world.server.port)
    client = world.client(connect_timeout=2.0)
    patient = asyncio.ensure_future(client.call(world.address, ask(ECHO), timeout=10))
    hasty = asyncio.ensure_future(client.call(world.address, ask(ECHO), timeout=1))
    await turns()
    await world.pass_time(1.1, 0.1)
    assert isinstance(hasty.exception(), Unreachable)
    assert not patient.done()
    await world.pass_time(1, 0.1)
    assert "no answer within 2 s" in str(patient.exception())


@on_a_loop
async def test_a_call_without_an_answer_times_out_and_says_what_was_asked() -> None:
    world = World()
    await world.serve()
    client = world.client()
    await client.call(world.address, ask(ECHO))
    call = asyncio.ensure_future(client.call(world.address, ask(105), timeout=1.5))
    world.server._board.handlers[105] = world.handlers[KEEP]
    await turns()
    await world.pass_time(2, 0.1)
    with pytest.raises(TimedOut, match=r"did not answer GET_ROUTEINFO_BY_TOPIC \(105\) within 1\.5 s"):
        await call
    await client.close()


@on_a_loop
async def test_a_silent_connection_is_given_up_and_a_slow_answer_on_a_lively_one_is_not() -> None:
    world = World()
    await world.serve()
    client = world.client()
    await client.call(world.address, ask(ECHO))
    slow = asyncio.ensure_future(client.call(world.address, ask(KEEP), timeout=1))
    await turns()
    await world.pass_time(0.5)
    await client.call(world.address, ask(ECHO))
    await world.pass_time(1)
    assert isinstance(slow.exception(), TimedOut)
    assert len(world.accepted) == 1
    world.network.partition("127.0.0.1", world.server.port)
    lost = asyncio.ensure_future(client.call(world.address, ask(ECHO), timeout=1))
    longer = asyncio.ensure_future(client.call(world.address, ask(ECHO), timeout=30))
    await turns()
    await world.pass_time(2)
    assert isinstance(lost.exception(), TimedOut)
    assert isinstance(longer.exception(), ConnectionLost)
    world.network.heal("127.0.0.1", world.server.port)
    assert (await client.call(world.address, ask(ECHO, body=b"again"))).body == b"again"
    await client.close()


@on_a_loop
async def test_losing_the_connection_fails_all_that_wait_and_the_next_call_connects_anew() -> None:
    world = World()
    await world.serve()
    client = world.client()
    calls = [asyncio.ensure_future(client.call(world.address, ask(KEEP))) for _ in range(5)]
    await turns()
    world.network.reset("127.0.0.1", world.server.port)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in results] == [ConnectionLost] * 5
    assert "reset by the peer" in str(results[0])
    assert (await client.call(world.address, ask(ECHO, body=b"again"))).body == b"again"
    await client.close()


@on_a_loop
async def test_what_the_server_asks_goes_to_the_handlers_and_their_answers_back() -> None:
    world = World()
    await world.serve()

    def running_info(request: Command, answer: Answer) -> None:
        answer(request.reply(body=b"busy with " + request.body))

    client = world.client({307: running_info})
    await client.call(world.address, ask(ECHO))
    got: list[Command | Exception] = []
    world.accepted[0].call(Command(307, body=b"x"), 1000, got.append)
    world.accepted[0].call(Command(999), 1000, got.append)
    await turns()
    assert [(r.code, r.body) for r in got if isinstance(r, Command)] == [(0, b"busy with x"), (3, b"")]
    await client.close()


@on_a_loop
async def test_one_way_is_sent_and_not_waited_for() -> None:
    world = World()
    await world.serve()
    client = world.client()
    await client.send_one_way(world.address, ask(KEEP, body=b"note"))
    await turns()
    [(request, _)] = world.kept
    assert request.is_one_way
    with pytest.raises(Unreachable):
        await client.send_one_way("127.0.0.1:1", ask(KEEP))
    await client.close()


@on_a_loop
async def test_a_server_that_takes_nothing_makes_the_client_busy_instead_of_full() -> None:
    world = World()
    await world.serve()
    client = world.client()
    await client.call(world.address, ask(ECHO))
    world.network.transports[1].pause_reading()
    for _ in range(8):
        await client.send_one_way(world.address, ask(KEEP, body=bytes(1 << 20)))
        await turns()
    with pytest.raises(Busy, match="does not take what is sent"):
        await client.send_one_way(world.address, ask(KEEP))
    with pytest.raises(Busy):
        await client.call(world.address, ask(ECHO))
    world.network.transports[1].resume_reading()
    await turns()
    assert (await client.call(world.address, ask(ECHO, body=b"ok"))).body == b"ok"
    await client.close()


@on_a_loop
async def test_closing_fails_whoever_waits_and_nothing_can_be_called_after() -> None:
    world = World()
    await world.serve()
    world.network.partition("127.0.0.1", 1)
    client = world.client()
    waiting = asyncio.ensure_future(client.call(world.address, ask(KEEP)))
    connecting = asyncio.ensure_future(client.call("127.0.0.1:1", ask(KEEP)))
    await turns()
    await client.close()
    assert isinstance(waiting.exception(), ConnectionLost)
    await turns()
    assert isinstance(connecting.exception(), ConnectionLost)
    with pytest.raises(ConnectionLost, match="closed"):
        await client.call(world.address, ask(ECHO))


@on_a_loop
async def test_an_address_that_is_none_is_named() -> None:
    world = World()
    client = world.client()
    with pytest.raises(ConfigError, match="'broker-a'"):
        await client.call("broker-a", ask(ECHO))


@on_a_loop
async def test_a_cancelled_call_leaves_nothing_behind() -> None:
    world = World()
    await world.serve()
    client = world.client()
    call = asyncio.ensure_future(client.call(world.address, ask(KEEP)))
    await turns()
    call.cancel()
    await turns()
    request, answer = world.kept[0]
    answer(request.reply())
    await turns()
    assert (await client.call(world.address, ask(ECHO, body=b"ok"))).body == b"ok"
    await client.close()
