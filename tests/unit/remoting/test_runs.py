"""What is handed over together: by one read, and by all reads of a tick."""

from __future__ import annotations

from collections.abc import Mapping

from kourou.protocol.command import Command, decode
from kourou.protocol.frame import Frame
from kourou.remoting.answer import Answer, RunAnswers, RunHandler
from kourou.remoting.config import ServerConfig
from kourou.remoting.server import Server
from kourou.remoting.switchboard import TICK_REQUEST_BYTES_MAX
from tests.unit.remoting.simulated_world import ECHO, Peer, World, ask, on_a_loop, turns

SEND, OTHER = 310, 311
UNUSUAL = b"unusual"


class Runs:
    """A run handler that takes all but the unusual, and answers in the same tick unless told to keep."""

    def __init__(self, world: Working, spans_connections: bool) -> None:
        self.spans_connections = spans_connections
        self.keeps = False
        self.runs: list[list[bytes]] = []
        self.shown = 0
        self.kept: list[tuple[RunAnswers, list[bytes]]] = []
        self._world = world

    def __call__(self, frames: list[Frame], answers: RunAnswers) -> int:
        bodies = [frame.body for frame in frames]
        self.shown += len(bodies)
        taken = bodies.index(UNUSUAL) if UNUSUAL in bodies else len(bodies)
        self.runs.append(bodies[:taken])
        if taken:
            assert len(answers.packed_peers) == len(frames)
            answers.expect(taken)
            self._world.handled += bodies[:taken]
            replies = [
                decode(frame).reply(body=frame.body + b" from %d" % _port(peer)).encode()
                for frame, peer in zip(frames[:taken], answers.packed_peers, strict=False)
            ]
            self.kept.append((answers, replies))
            if not self.keeps:
                self._world.tick.at_end(self.answer_all)
        return taken

    def answer_all(self) -> None:
        kept, self.kept = self.kept, []
        for answers, replies in kept:
            answers(replies)


def _port(packed_peer: bytes) -> int:
    return int.from_bytes(packed_peer[-4:], "big")


class Working(World):
    """A server with run handlers, and what was handled in which order."""

    def __init__(self) -> None:
        super().__init__()
        self.handled: list[bytes] = []
        self.sends = Runs(self, spans_connections=True)

    async def serve_runs(
        self, config: ServerConfig | None = None, run_handlers: Mapping[bytes, RunHandler] | None = None
    ) -> None:
        self.server = Server(
            {SEND: self._plainly, OTHER: self._plainly, ECHO: self._plainly},
            config or ServerConfig(),
            network=self.network,
            clock=self.clock,
            tick=self.tick,
            name="the test server",
            run_handlers={b'{"code":310,': self.sends} if run_handlers is None else run_handlers,
        )
        await self.server.start()

    async def peers(self, count: int) -> list[Peer]:
        return [await self.peer() for _ in range(count)]

    def _plainly(self, request: Command, answer: Answer) -> None:
        self.handled.append(request.body + b" plainly")
        answer(request.reply(body=request.body + b" plainly"))


def write(peer: Peer, *bodies: bytes, code: int = SEND) -> None:
    peer.transport.write(b"".join(ask(code, n, body).encode() for n, body in enumerate(bodies)))


def got(peer: Peer) -> list[bytes]:
    return [each.body for each in peer.replies]


def port(peer: Peer) -> int:
    return int(peer.transport.local[1])


@on_a_loop
async def test_what_many_send_in_a_tick_is_one_run_and_each_gets_its_own_answers() -> None:
    world = Working()
    await world.serve_runs()
    peers = await world.peers(3)
    write(peers[0], b"a")
    write(peers[1], b"b", b"c")
    write(peers[2], b"d")
    await turns()
    assert world.sends.runs == [[b"a", b"b", b"c", b"d"]]
    expected = [[b"a"], [b"b", b"c"], [b"d"]]
    for peer, bodies in zip(peers, expected, strict=True):
        assert got(peer) == [body + b" from %d" % port(peer) for body in bodies]
        assert len(peer.chunks) == 1
        assert [each.opaque for each in peer.replies] == list(range(len(bodies)))
    assert world.server.counters.requests == 4
    assert world.server.counters.in_flight_bytes == 0


@on_a_loop
async def test_a_handler_that_does_not_span_connections_gets_each_read_for_itself() -> None:
    world = Working()
    world.sends = Runs(world, spans_connections=False)
    await world.serve_runs()
    peers = await world.peers(2)
    write(peers[0], b"a", b"b")
    write(peers[1], b"c")
    await turns()
    assert world.sends.runs == [[b"a", b"b"], [b"c"]]
    assert [len(got(peer)) for peer in peers] == [2, 1]


@on_a_loop
async def test_the_unusual_takes_the_plain_way_and_each_connections_order_holds() -> None:
    world = Working()
    await world.serve_runs()
    peers = await world.peers(4)
    write(peers[0], b"a1", b"a2")
    write(peers[1], b"b1", UNUSUAL, b"b2", UNUSUAL, b"b3")
    write(peers[2], UNUSUAL)
    write(peers[3], b"d1")
    await turns()
    plainly = UNUSUAL + b" plainly"
    assert world.handled == [b"a1", b"a2", b"b1", plainly, b"b2", plainly, b"b3", plainly, b"d1"]
    assert [len(got(peer)) for peer in peers] == [2, 5, 1, 1]
    assert sorted(each.opaque for each in peers[1].replies) == list(range(5))
    assert world.server.counters.in_flight_bytes == 0


@on_a_loop
async def test_no_frame_is_shown_more_than_a_few_times_however_much_is_unusual() -> None:
    world = Working()
    await world.serve_runs()
    peers = await world.peers(20)
    for number, peer in enumerate(peers):
        write(peer, *[b"usual", *[UNUSUAL] * number, b"usual"] * 10)
    await turns()
    requests = [10 * (number + 2) for number in range(20)]
    assert [len(got(peer)) for peer in peers] == requests
    for peer in peers:
        assert sorted(each.opaque for each in peer.replies) == list(range(len(peer.replies)))
    assert world.sends.shown <= 6 * sum(requests)  # with all reads, and with the one it was in


@on_a_loop
async def test_a_read_with_other_requests_in_it_is_handled_in_its_own_order_after_what_came_before() -> None:
    world = Working()
    await world.serve_runs()
    first, second = await world.peers(2)
    connection = next(each for each in world.accepted if each.peer_port == port(first))
    connection.received(ask(SEND, 1, b"1").encode())
    next(each for each in world.accepted if each is not connection).received(ask(SEND, 1, b"x").encode())
    assert world.handled == []
    assert connection.is_working
    connection.received(ask(OTHER, 2, b"2").encode() + ask(SEND, 3, b"3").encode())
    assert world.handled == [b"1", b"x", b"2 plainly", b"3"]
    connection.received(ask(SEND, 4, b"4").encode())
    await turns()
    assert world.handled[4:] == [b"4"]
    assert sorted(each.opaque for each in first.replies) == [1, 2, 3, 4]
    assert len(second.replies) == 1


@on_a_loop
async def test_what_is_put_off_because_the_tick_is_spent_comes_after_what_was_gathered_before() -> None:
    world = Working()
    await world.serve_runs(ServerConfig(total_in_flight_bytes_max=160_000))
    sender, reader = await world.peers(2)
    connection = next(each for each in world.accepted if each.peer_port == port(sender))
    other = next(each for each in world.accepted if each is not connection)
    connection.received(sends(1, UNUSUAL, b"2", UNUSUAL, b"4"))
    other.received(ask(ECHO, 1, bytes(40_000)).encode())
    assert world.server._board.is_spent
    world.handled.clear()
    connection.received(sends(5, b"5", b"6"))
    assert connection.is_held_back
    connection.received(sends(7, UNUSUAL, b"8"))
    await turns()
    plainly = UNUSUAL + b" plainly"
    assert world.handled == [plainly, b"2", plainly, b"4", b"5", b"6", plainly, b"8"]
    assert sorted(each.opaque for each in sender.replies) == list(range(1, 9))
    assert len(reader.replies) == 1
    assert_nothing_is_held(world)


@on_a_loop
async def test_what_is_put_off_for_lack_of_room_is_not_overtaken_by_what_was_received_after_it() -> None:
    world = Working()
    await world.serve_runs(ServerConfig(write_buffer_pause_bytes=1000))
    sender = await world.peer()
    (connection,) = world.accepted
    connection.received(ask(ECHO, 1, bytes(2000)).encode())
    world.handled.clear()
    connection.received(sends(2, b"2", UNUSUAL, b"4"))
    connection.received(sends(5, b"5"))
    connection.received(sends(6, UNUSUAL, b"7"))
    await turns()
    plainly = UNUSUAL + b" plainly"
    assert world.handled == [b"2", plainly, b"4", b"5", plainly, b"7"]
    assert sorted(each.opaque for each in sender.replies) == list(range(1, 8))
    assert_nothing_is_held(world)


@on_a_loop
async def test_nothing_is_handled_of_what_follows_a_frame_that_is_too_large() -> None:
    world = Working()
    world.sends = TooLargeIsUnusual(world, spans_connections=True)
    await world.serve_runs(ServerConfig(frame_bytes_max=1000))
    await world.peers(1)
    (connection,) = world.accepted
    connection.received(sends(1, bytes(1001), b"2"))
    connection.received(sends(3, b"3"))
    connection.received(sends(4, b"4"))
    await turns()
    assert world.handled == []
    assert world.server.counters.closed == {"protocol error": 1}


def sends(opaque: int, *bodies: bytes) -> bytes:
    return b"".join(ask(SEND, number, body).encode() for number, body in enumerate(bodies, opaque))


def assert_nothing_is_held(world: Working) -> None:
    board = world.server._board
    for connection in world.accepted:
        connection.weigh()
        assert not connection.is_held_back
        assert not connection.is_working
        assert connection.backlog_bytes == connection.in_flight_bytes == connection.unread_bytes == 0
    assert board.in_flight_bytes == board.unread_bytes == board.gathered_bytes == 0


@on_a_loop
async def test_what_a_run_has_not_answered_yet_counts_for_its_own_connection() -> None:
    world = Working()
    world.sends.keeps = True
    await world.serve_runs(ServerConfig(in_flight_requests_max=4))
    busy, idle = await world.peers(2)
    write(busy, *[b"x"] * 5)
    write(idle, b"y")
    await turns()
    held = {each.peer_port: each for each in world.accepted}
    assert held[port(busy)].in_flight_requests == 5
    assert held[port(busy)].is_held_back
    assert held[port(idle)].in_flight_requests == 1
    assert not held[port(idle)].is_held_back
    assert world.server.counters.in_flight_bytes == sum(each.in_flight_bytes for each in world.accepted) > 0
    world.sends.answer_all()
    await turns()
    assert not held[port(busy)].is_held_back
    assert (len(got(busy)), len(got(idle))) == (5, 1)
    assert world.server.counters.in_flight_bytes == 0


@on_a_loop
async def test_too_much_of_all_together_holds_everybody_back_until_it_is_answered() -> None:
    world = Working()
    world.sends.keeps = True
    await world.serve_runs(ServerConfig(total_in_flight_bytes_max=10_000))
    peers = await world.peers(3)
    for peer in peers:
        write(peer, bytes(4000))
    await turns()
    assert all(each.is_held_back for each in world.accepted)
    world.sends.answer_all()
    await turns()
    assert not any(each.is_held_back for each in world.accepted)
    assert [len(got(peer)) for peer in peers] == [1, 1, 1]


@on_a_loop
async def test_whoever_is_gone_before_the_answer_is_left_out() -> None:
    world = Working()
    world.sends.keeps = True
    await world.serve_runs()
    peers = await world.peers(3)
    for number, peer in enumerate(peers):
        write(peer, b"%d" % number)
    await turns()
    peers[1].transport.abort()
    await turns()
    world.sends.answer_all()
    await turns()
    assert [len(got(peer)) for peer in peers] == [1, 0, 1]
    assert world.server.counters.in_flight_bytes == 0


@on_a_loop
async def test_what_was_received_whole_is_handled_though_its_sender_is_hung_up_on_in_the_same_tick() -> None:
    world = Working()
    await world.serve_runs()
    first, second = await world.peers(2)
    for connection in world.accepted:
        connection.received(ask(SEND, 1, b"x").encode())
    world.accepted[0].abort("by us")
    await turns()
    assert world.handled == [b"x", b"x"]
    assert len(first.replies + second.replies) == 1
    assert world.server.counters.in_flight_bytes == 0


@on_a_loop
async def test_what_was_received_whole_is_handled_though_its_sender_is_gone_already() -> None:
    world = Working()
    await world.serve_runs()
    await world.peers(1)
    connection = world.accepted[0]
    connection.received(ask(SEND, 1, b"x").encode())
    connection.connection_lost(None)
    await turns()
    assert world.handled == [b"x"]
    assert world.server.counters.in_flight_bytes == 0


@on_a_loop
async def test_a_tick_gathers_so_much_and_the_rest_waits_its_turn() -> None:
    world = Working()
    await world.serve_runs()
    await world.peers(8)
    for connection in world.accepted:
        connection.received(ask(SEND, 1, bytes(TICK_REQUEST_BYTES_MAX // 4)).encode())
    assert [each.is_held_back for each in world.accepted] == [False] * 3 + [True] * 5
    await turns()
    assert [len(run) for run in world.sends.runs] == [3, 2, 2, 1]
    assert_nothing_is_held(world)


@on_a_loop
async def test_an_unusual_frame_that_is_too_large_closes_only_its_own_connection() -> None:
    world = Working()
    world.sends = TooLargeIsUnusual(world, spans_connections=True)
    await world.serve_runs(ServerConfig(frame_bytes_max=1000))
    evil, honest = await world.peers(2)
    evil_one = next(each for each in world.accepted if each.peer_port == port(evil))
    evil_one.received(ask(SEND, 1, bytes(1001)).encode())
    write(honest, b"x")
    await turns()
    assert evil.is_lost
    assert world.server.counters.closed == {"protocol error": 1}
    assert got(honest) == [b"x from %d" % port(honest)]


class TooLargeIsUnusual(Runs):
    def __call__(self, frames: list[Frame], answers: RunAnswers) -> int:
        return 0 if len(frames[0].body) > 1000 else super().__call__(frames, answers)
