from __future__ import annotations

import pytest

from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import FLAG_ONE_WAY, Command
from kourou.remoting.answer import Answer
from kourou.remoting.config import ServerConfig
from kourou.remoting.server import Connection
from kourou.remoting.switchboard import TICK_REQUEST_BYTES_MAX, TICK_SHARE
from tests.unit.remoting.simulated_world import ECHO, PARK, Peer, World, ask, on_a_loop, turns

BOUND = 1_000_000
TICK_BYTES = BOUND // TICK_SHARE
REPLY_BYTES = 50_000
CODES = {"echo": ECHO, "park": PARK}


class Pulled(World):
    """A server that gives much for little, and notes how much was unread at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.handled: list[Connection] = []
        self.most_unread = 0

    async def serve_much(self, write_buffer_pause_bytes: int = BOUND, **patience: float) -> None:
        config = ServerConfig(
            total_in_flight_bytes_max=BOUND,
            write_buffer_pause_bytes=write_buffer_pause_bytes,
            patience_seconds={CODES[name]: seconds for name, seconds in patience.items()},
        )
        await self.serve({ECHO: self._give_much, PARK: self.handlers[PARK]}, config)

    async def peers(self, count: int, *, reading: bool) -> list[Peer]:
        peers = [await self.peer() for _ in range(count)]
        for peer in peers if not reading else []:
            peer.transport.pause_reading()
        return peers

    def _give_much(self, request: Command, answer: Answer) -> None:
        self.handled.append(answer.connection)
        answer(request.reply(body=bytes(REPLY_BYTES)))
        self.note_unread()

    def note_unread(self) -> None:
        """Counted here, not where the server counts: what is gathered and what is written."""
        unread = sum(each.write_buffer_bytes + sum(map(len, each._out)) for each in self.accepted)
        self.most_unread = max(self.most_unread, unread)


@on_a_loop
async def test_the_bound_on_unread_bytes_holds_however_many_ask_and_do_not_read() -> None:
    world = Pulled()
    await world.serve_much()
    peers = await world.peers(100, reading=False)
    for peer in peers:
        peer.transport.write(ask(ECHO).encode())
    for _ in range(200):
        await turns(1)
        world.note_unread()
    assert len(world.handled) == 100
    assert world.most_unread <= BOUND + REPLY_BYTES + 1000
    dropped = world.server.counters.closed["crowded out"]
    assert 100 - BOUND // REPLY_BYTES <= dropped <= 100 - (BOUND - TICK_BYTES) // REPLY_BYTES + 3
    assert 0 < world.server.counters.unread_bytes <= BOUND


@on_a_loop
async def test_the_bound_holds_when_all_parked_requests_are_answered_at_once() -> None:
    world = Pulled()
    await world.serve_much()
    for peer in await world.peers(100, reading=False):
        await peer.send(ask(PARK))
    assert len(world.kept) == 100
    for request, answer in world.kept:
        answer(request.reply(body=bytes(REPLY_BYTES)))
        world.note_unread()
    await turns()
    assert world.most_unread <= BOUND + REPLY_BYTES + 1000
    assert world.server.counters.closed["crowded out"] >= 100 - BOUND // REPLY_BYTES
    assert world.server.counters.parked_bytes == 0


@on_a_loop
async def test_whoever_reads_is_served_while_others_do_not() -> None:
    world = Pulled()
    await world.serve_much()
    [honest] = await world.peers(1, reading=True)
    for number, stuck in enumerate(await world.peers(100, reading=False)):
        stuck.transport.write(ask(ECHO).encode())
        await honest.send(ask(ECHO, number))
    assert [r.opaque for r in honest.replies] == list(range(100))


@on_a_loop
async def test_what_was_only_just_answered_is_held_less_against_a_peer_than_what_it_left_unread() -> None:
    world = Pulled()
    await world.serve_much()
    [honest] = await world.peers(1, reading=True)
    stuck_peers = await world.peers(BOUND // REPLY_BYTES - 1, reading=False)
    for stuck in stuck_peers:
        await stuck.send(ask(ECHO))
    await honest.send(ask(ECHO, 1_000_000))  # a little larger than what any other holds, and too much
    assert len(honest.replies) == 1
    assert any(stuck.is_lost for stuck in stuck_peers)


@on_a_loop
async def test_one_tick_answers_its_share_and_the_others_get_theirs_in_the_order_they_came() -> None:
    world = Pulled()
    await world.serve_much()
    peers = await world.peers(20, reading=True)
    in_order = sorted(world.accepted, key=lambda each: each.peer_port)
    for peer in peers:
        peer.transport.write(ask(ECHO, 1).encode() + ask(ECHO, 2).encode())
    while not world.handled:
        await turns(1)
    assert 1 <= len(world.handled) * REPLY_BYTES - TICK_BYTES <= 2 * REPLY_BYTES
    await turns(100)
    assert [[r.opaque for r in peer.replies] for peer in peers] == [[1, 2]] * 20
    assert world.handled == [each for each in in_order for _ in range(2)]
    assert_nothing_waits(world)


@on_a_loop
async def test_who_asks_for_little_does_not_wait_for_those_who_ask_for_much() -> None:
    world = Pulled()
    await world.serve_much()
    greedy = await world.peers(20, reading=True)
    [modest] = await world.peers(1, reading=True)
    for peer in greedy:
        peer.transport.write(b"".join(ask(ECHO, number).encode() for number in range(5)))
    modest.transport.write(ask(ECHO).encode())
    while not modest.replies:
        await turns(1)
    before = len(world.handled)
    assert before * REPLY_BYTES <= 5 * (TICK_BYTES + 5 * REPLY_BYTES), "five turns at most: it was heard late"
    await turns(200)
    assert [len(peer.replies) for peer in greedy] == [5] * 20
    assert_nothing_waits(world)


@on_a_loop
async def test_who_asks_for_much_is_served_however_many_ask_for_little() -> None:
    world = Pulled()
    await world.serve_much()
    modest = await world.peers(20, reading=True)
    [greedy] = await world.peers(1, reading=True)
    asked = dict.fromkeys(modest, 0)
    is_greedy_waiting = False
    while len(greedy.replies) < 3:
        for peer in modest:  # each of them asks again as soon as it is answered
            if asked[peer] == len(peer.replies):
                peer.transport.write(ask(ECHO).encode())
                asked[peer] += 1
        if world.handled and not is_greedy_waiting:
            is_greedy_waiting = True
            greedy.transport.write(b"".join(ask(ECHO, number).encode() for number in range(3)))
        await turns(1)
        assert len(world.handled) < 100, "the others go first for ever"
    await turns(100)
    assert_nothing_waits(world)


@on_a_loop
async def test_a_tick_takes_up_so_many_requests_and_goes_on_with_the_rest_afterwards() -> None:
    world = World()
    await world.serve()
    peers = [await world.peer() for _ in range(6)]
    body = bytes(TICK_REQUEST_BYTES_MAX // 40)
    for connection in world.accepted:
        connection.received(b"".join(ask(ECHO, number, body).encode() for number in range(10)))
    assert [each.is_held_back for each in world.accepted] == [False] * 3 + [True] * 3
    await turns(100)
    for peer in peers:
        assert [r.opaque for r in peer.replies] == list(range(10)), "in the order they came"
    assert_nothing_waits(world)


@on_a_loop
async def test_what_is_written_is_gathered_no_more_and_what_is_read_counts_no_more() -> None:
    world = Pulled()
    await world.serve_much()
    for peer in await world.peers(100, reading=True):
        await peer.send(ask(ECHO))
        assert world.server._board.gathered_bytes == 0
        assert len(peer.replies) == 1
    assert world.server.counters.closed == {}
    await world.pass_time(1)
    assert world.server.counters.unread_bytes == 0


@on_a_loop
async def test_the_requests_put_off_count_until_they_are_taken_up() -> None:
    world = Pulled()
    await world.serve_much(write_buffer_pause_bytes=60_000)
    [peer] = await world.peers(1, reading=False)
    await peer.send(*(ask(ECHO, number, bytes(10_000)) for number in range(10)))
    [accepted] = world.accepted
    waiting = 10 - len(world.handled)
    assert waiting >= 7
    assert world.server.counters.unread_bytes - accepted.write_buffer_bytes > waiting * 10_000
    peer.transport.resume_reading()
    await turns(200)
    assert len(peer.replies) == 10
    await world.pass_time(1)
    assert world.server.counters.unread_bytes == 0


@on_a_loop
async def test_what_was_put_off_for_too_long_is_refused_and_the_rest_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = Pulled()
    await world.serve_much(write_buffer_pause_bytes=60_000, park=0.2)
    [peer] = await world.peers(1, reading=False)
    one_way = ask(PARK, 12)
    one_way.flag = FLAG_ONE_WAY
    await peer.send(*(ask(ECHO, number) for number in range(6)), ask(PARK, 10), ask(PARK, 11), one_way)
    await world.pass_time(0.5)
    peer.transport.resume_reading()
    await turns(300)
    assert [reply.opaque for reply in peer.replies if reply.code == 0] == list(range(6))
    refused = {reply.opaque: reply for reply in peer.replies if reply.code}
    assert refused.keys() == {10, 11}
    assert refused[10].code == ResponseCode.SYSTEM_BUSY
    assert refused[10].remark == (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 500ms, "
        "size of queue: 7; 200ms are allowed; try another broker, or this one with less at once"
    )
    assert "refused 3 requests" in caplog.text
    assert "wait 500 ms" in caplog.text
    assert not world.kept
    await peer.send(ask(PARK, 13))
    assert len(world.kept) == 1  # its turn came at once
    [accepted] = world.accepted
    assert not accepted.is_held_back


@on_a_loop
async def test_what_is_left_of_a_backlog_has_waited_since_it_was_put_off() -> None:
    world = Pulled()
    await world.serve_much(write_buffer_pause_bytes=60_000, echo=0.2)
    [peer] = await world.peers(1, reading=False)
    await peer.send(*(ask(ECHO, number) for number in range(10)))
    for _ in range(3):
        await world.pass_time(0.15)
        peer.transport.resume_reading()
        await turns(2)
        peer.transport.pause_reading()
    peer.transport.resume_reading()
    await turns(300)
    codes = [reply.code for reply in sorted(peer.replies, key=lambda reply: reply.opaque)]
    assert len(codes) == 10
    assert codes == sorted(codes)
    assert codes[0] == 0
    assert codes[-1] == ResponseCode.SYSTEM_BUSY


@on_a_loop
async def test_nothing_more_is_done_for_a_peer_that_was_hung_up_on() -> None:
    world = Pulled()
    await world.serve_much(write_buffer_pause_bytes=BOUND * 2)
    [peer] = await world.peers(1, reading=False)
    await peer.send(*(ask(ECHO, number) for number in range(500)))
    assert peer.is_lost
    assert len(world.handled) <= BOUND // REPLY_BYTES + 1
    assert world.server.counters.unread_bytes == 0


@on_a_loop
async def test_half_received_frames_are_bounded_also_when_all_arrive_in_one_tick() -> None:
    world = Pulled()
    await world.serve_much()
    for peer in await world.peers(100, reading=True):
        peer.transport.write(ask(ECHO, 1, bytes(200_000)).encode()[:50_000])
    await turns()
    assert world.server._board.partial_bytes <= BOUND
    assert BOUND // 2 < sum(each.partial_bytes for each in world.accepted) <= BOUND


@on_a_loop
async def test_when_all_together_have_parked_too_much_whoever_has_most_is_closed() -> None:
    world = Pulled()
    await world.serve_much()
    modest, greedy, last = await world.peers(3, reading=True)
    await modest.send(ask(PARK, 1, bytes(200_000)))
    for number in range(4):
        await greedy.send(ask(PARK, number, bytes(150_000)))
    await last.send(ask(PARK, 1, bytes(250_000)))
    assert [peer.is_lost for peer in (modest, greedy, last)] == [False, True, False]
    for request, answer in world.kept:
        answer(request.reply())
    await turns()
    assert [len(peer.replies) for peer in (modest, greedy, last)] == [1, 0, 1]
    assert world.server.counters.parked_bytes == 0


@pytest.mark.parametrize(("requests", "body_bytes"), [(10, 0), (1000, 10_000)])
@on_a_loop
async def test_a_peer_that_parks_too_much_is_not_read_from_until_half_is_answered(
    requests: int, body_bytes: int
) -> None:
    world = World()
    await world.serve(config=ServerConfig(parked_requests_max=requests, in_flight_bytes_max=110_000))
    peer = await world.peer()
    for number in range(15):
        await peer.send(ask(PARK, number, bytes(body_bytes)))
    assert len(world.kept) == 11
    [accepted] = world.accepted
    assert accepted.is_held_back
    for request, answer in world.kept[:5]:
        answer(request.reply())
    await turns()
    assert len(world.kept) == 11  # six still wait
    world.kept[5][1](world.kept[5][0].reply())
    await turns()
    assert len(world.kept) == 15
    assert not accepted.is_held_back
    assert accepted.parked_requests == 9


@on_a_loop
async def test_a_connection_that_fails_in_the_line_does_not_keep_the_others_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    await world.serve()
    peers = [await world.peer() for _ in range(6)]
    body = bytes(TICK_REQUEST_BYTES_MAX // 4)
    for connection in world.accepted:
        connection.received(ask(ECHO, 1, body).encode())
    failing = next(each for each in world.accepted if each.is_held_back)

    def fail() -> None:
        raise RuntimeError("a fault of ours")

    took = Connection.take_up_backlog
    monkeypatch.setattr(Connection, "take_up_backlog", lambda self: fail() if self is failing else took(self))
    await turns(100)
    answered = [peer for peer in peers if peer.replies]
    assert len(answered) == 5


def assert_nothing_waits(world: World) -> None:
    assert not any(each.is_held_back or each.is_working for each in world.accepted)
    assert world.server.counters.closed == {}
