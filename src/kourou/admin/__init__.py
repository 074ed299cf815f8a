"""What an operator asks of a cluster, and changes in it: plain functions over one `Connection`.

    connection.py                the way there: name servers, brokers, several at once
    cluster.py brokers.py        which brokers there are, how they fare, how they are set
    nameservers.py               their settings and key-value store, who may be written to
    topics.py                    topics: settings, routes, figures; made, changed, deleted
    groups.py producers.py       groups: settings, members, subscriptions, lag; who sends
    offsets.py                   where a group goes on reading: looked at first, then moved
    messages.py                  messages by id, key, time and place; test messages; traces
    dlq.py                       dead letters: seen, sent again, let go, written to a file
    transactions.py timers.py    what waits: for the end of a transaction, for its time
    accounts.py access.py        who may do what: at one server, in a whole cluster
    draining.py switching.py     brokers taken out of service, and put in another's place

    with Connection("localhost:9876") as connection:
        for queue in groups.lag(connection, "billing"):
            print(queue.topic, queue.broker, queue.queue_id, queue.lag)

Results are frozen dataclasses whose field names are stable: the command line prints them with `-o json`, the
web console shows them, and so do Spark's system tables. Nothing here prints, asks back or decides.
"""

from __future__ import annotations

from kourou.admin.connection import Connection, Outcome

__all__ = ["Connection", "Outcome"]
