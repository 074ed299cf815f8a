"""Transactions under everything at once: producers that commit late, twice and wrongly, rounds of checks,
clean stops, crashes and power cuts. Whatever happens, a half message is never seen, a commit that was
acknowledged is seen once, and what was rolled back never.
"""

from __future__ import annotations

import random

import pytest

from kourou.doors.chance import Chance
from kourou.protocol import message_id
from kourou.protocol.bodies import HeartbeatData, ProducerData
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import request as make_request
from kourou.protocol.headers import EndTransaction
from kourou.protocol.record import decode_all
from tests.unit.broker.broker_world import BrokerWorld, Peer, send

COMMIT, ROLLBACK = 8, 12
STEPS = 120


class Model:
    """A broker, two producers, and what must be true of them."""

    def __init__(self, seed: int, flush: str) -> None:
        self.random = random.Random(seed)
        self.flush = flush
        self.world = BrokerWorld()
        self.world.start(flush_disk_type=flush, transaction_checks_max=1_000)
        self.world.make_topic("orders", 1)
        self.producers: list[Peer] = []
        self.reconnect()
        self.places: dict[bytes, list[tuple[int, int]]] = {}  # of a message: all it ever had
        self.ended: dict[bytes, int] = {}
        self.ids: dict[bytes, str] = {}

    def reconnect(self) -> None:
        self.producers = [self.world.connect() for _ in range(2)]
        self.heartbeat()

    def heartbeat(self) -> None:
        for number, peer in enumerate(self.producers):
            body = HeartbeatData(
                client_id=f"p{number}", producer_data_set=[ProducerData(group_name="payers")]
            )
            assert peer.ask(RequestCode.HEART_BEAT, body=body.encode()).code == 0

    def step(self) -> None:
        move = self.random.choices(
            [self.prepare, self.end, self.pass_time, self.stop, self.crash], [40, 40, 15, 3, 4]
        )[0]
        move()
        self.hear()
        self.look()

    def prepare(self) -> None:
        body = b"%d" % len(self.places)
        properties = {"TRAN_MSG": "true", "PGROUP": "payers"}
        if self.random.random() < 0.2:
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = "90"
        reply = (
            self.producers[0]
            .begin(
                send(
                    "orders",
                    body,
                    properties=properties,
                    sys_flag=4,
                    born_timestamp=self.world.clock.now_ms(),
                )
            )
            .reply
        )
        assert reply.code == 0
        physical_offset = message_id.parse_offset_id(reply.fields["msgId"]).physical_offset
        self.ids[body] = reply.fields["transactionId"]
        self.places[body] = [(int(reply.fields["queueOffset"]), physical_offset)]

    def end(self) -> None:
        if not self.places:
            return
        body = self.random.choice(list(self.places))
        outcome = self.random.choice([COMMIT, ROLLBACK])
        self.end_at(body, self.random.choice(self.places[body]), outcome, self.random.random() < 0.5)

    def end_at(self, body: bytes, place: tuple[int, int], outcome: int, from_check: bool) -> bool:
        header = EndTransaction("payers", *place, outcome, from_check, transaction_id=self.ids[body])
        reply = self.random.choice(self.producers).ask(RequestCode.END_TRANSACTION, header)
        if reply.code == 0:
            assert body not in self.ended, f"{body!r} ended twice"
            self.ended[body] = outcome
        return reply.code == 0

    def pass_time(self) -> None:
        self.heartbeat()
        self.world.pass_time(self.random.choice([1, 10, 35, 70]))

    def stop(self) -> None:
        self.world.stop()
        self.start()

    def crash(self) -> None:
        """kill -9, or a power cut: that may take what is not flushed, which is younger than 11 seconds."""
        is_power_cut = self.random.random() < 0.5
        if is_power_cut and self.flush == "ASYNC_FLUSH":
            self.world.pass_time(11)
        self.hear()
        under_way = self.begin_end() if is_power_cut else None
        files = self.world.files
        self.world.crash()
        if is_power_cut:
            self.world.files = files.power_cut(Chance(self.random.randrange(1 << 30)))
        self.world.disk.release()
        self.start()
        if under_way is not None and under_way in self.seen():
            self.ended[under_way] = COMMIT

    def begin_end(self) -> bytes | None:
        """A commit that is written, not synced and not acknowledged: it may come to pass, or not."""
        still_open = [body for body in self.places if body not in self.ended]
        if self.flush == "ASYNC_FLUSH" or not still_open:
            return None
        body = self.random.choice(still_open)
        self.world.disk.hold()
        header = EndTransaction("payers", *self.places[body][-1], COMMIT, True, transaction_id=self.ids[body])
        waiting = self.producers[0].begin(make_request(RequestCode.END_TRANSACTION, header))
        assert not waiting.is_answered or waiting.reply.code == 1
        return body

    def start(self) -> None:
        self.world.start(flush_disk_type=self.flush, transaction_checks_max=1_000)
        self.reconnect()

    def hear(self) -> None:
        for peer in self.producers:
            told, peer.told = peer.told, []
            for check in told:
                [message] = decode_all(check.body)
                assert message.body not in self.ended, f"asked about {message.body!r}, which ended"
                self.places[message.body].append((message.queue_offset, message.physical_offset))

    def look(self) -> None:
        committed = [body for body, outcome in self.ended.items() if outcome == COMMIT]
        assert sorted(self.seen()) == sorted(committed)

    def seen(self) -> list[bytes]:
        seen: list[bytes] = []
        while True:
            bodies = self.producers[0].bodies("orders", 0, len(seen))
            if not bodies:
                return seen
            seen += bodies

    def settle_all(self) -> None:
        """Everything still open is asked about, and the answer counts."""
        for _ in range(12):
            self.pass_time()
            self.world.pass_time(31)
            self.hear()
            for body in [body for body in self.places if body not in self.ended]:
                self.end_at(body, self.places[body][-1], COMMIT, True)
            self.look()
        assert set(self.ended) == set(self.places)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("seed", range(6))
def test_a_transaction_ends_once_whatever_happens(seed: int, flush: str) -> None:
    model = Model(seed, flush)
    try:
        for _ in range(STEPS):
            model.step()
        model.settle_all()
    finally:
        model.world.close()
