"""One member of a group that others join and leave: prints what it handled and which queues it holds.

    python -m tests.chaos.churn_member NAME_SERVER GROUP TOPIC

It leaves in good order on SIGTERM. Every line is JSON: {"got": text}, {"holds": [[broker, number], …]}.
"""

from __future__ import annotations

import json
import signal
import sys
import threading

import kourou

_printing = threading.Lock()


def say(**what: object) -> None:
    with _printing:
        print(json.dumps(what), flush=True)


def main(name_server: str, group: str, topic: str) -> None:
    with kourou.PushConsumer(group, name_server, start="earliest", threads=2) as consumer:

        @consumer.on(topic)
        def handle(message: kourou.ReceivedMessage) -> None:
            say(got=message.body.decode())

        consumer.start()
        over = threading.Event()

        def tell_what_is_held() -> None:
            while not over.wait(0.25):
                held = [queue for queue in consumer.positions() if queue.topic == topic]
                say(holds=[[queue.broker_name, queue.queue_id] for queue in held])

        telling = threading.Thread(target=tell_what_is_held)
        telling.start()
        # Not `run_until_stopped`, which would close the consumer under the thread that asks it.
        signal.signal(signal.SIGTERM, lambda number, frame: over.set())
        over.wait()
        telling.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
