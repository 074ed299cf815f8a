"""Messages sent until the broker is gone, and all that is found in a topic afterwards."""

from __future__ import annotations

import threading

import kourou

Place = tuple[int, int]
"""Queue, and queue offset."""


class Sender(threading.Thread):
    """Sends numbered messages until the broker is gone; keeps what was acknowledged, and where it lies."""

    def __init__(self, name: str, name_server: str, topic: str) -> None:
        super().__init__(name=name, daemon=True)
        self._name_server = name_server
        self._topic = topic
        self.acknowledged: dict[Place, bytes] = {}

    def run(self) -> None:
        with kourou.Producer("senders", self._name_server, retries=0) as producer:
            for number in range(1_000_000):
                body = f"{self.name}/{number}/".encode() + b"." * (number % 3000)
                try:
                    sent = producer.send(kourou.Message(self._topic, body))
                except kourou.MQError:
                    return
                self.acknowledged[sent.queue.queue_id, sent.queue_offset] = body


def everything_stored(name_server: str, topic: str) -> dict[Place, bytes]:
    """Every message of the topic, by its place."""
    stored: dict[Place, bytes] = {}
    with kourou.PullConsumer("readers", topic, name_server, announce=False) as consumer:
        consumer.seek("earliest")
        while received := consumer.receive(1000, timeout=1.0):
            for message in received:
                place = (message.queue_id, message.queue_offset)
                assert place not in stored, f"{place} was handed out twice"
                stored[place] = message.body
    return stored
