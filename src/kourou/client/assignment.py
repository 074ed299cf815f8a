"""Which queues are mine: pure functions, the same for every member of a group.

Nobody hands queues out. Each member knows all queues of a topic and all members of its group, sorts both,
and works out its own share; the shares fit together because everybody computes the same. So these functions
agree with those of the Java client to the last queue, and the two may be mixed in one group as long as all
its members use the same one.

    assign_evenly       in one piece each: 0 1 2 | 3 4 5 | 6 7      AllocateMessageQueueAveragely, the default
    assign_in_turn      like cards: 0 3 6 | 1 4 7 | 2 5             AllocateMessageQueueAveragelyByCircle
    assign_by_hash      few change hands when members come and go   AllocateMessageQueueConsistentHash
    assign_fixed        as configured                               AllocateMessageQueueByConfig
    assign_by_room      brokers named `room@name`, rooms I may use  AllocateMessageQueueByMachineRoom
    assign_near         first among those in the same room          AllocateMachineRoomNearby
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

from kourou.errors import ConfigError
from kourou.protocol.bodies import MessageQueue

Assign: TypeAlias = Callable[[Sequence[MessageQueue], Sequence[str], str], list[MessageQueue]]
"""(queues, members, my own id) -> my queues. Queues and members are sorted; I may be missing among them."""

HASH_POINTS = 10
"""How often each member stands on the ring of `assign_by_hash`."""


def in_order(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Queues in the order everybody counts them in: by topic, broker and number."""
    return sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))


def assign_evenly(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
    """Consecutive queues, as many for each as for the others, the first members one more if need be."""
    if me not in members:
        return []
    index = members.index(me)
    whole, rest = divmod(len(queues), len(members))
    start = index * whole + min(index, rest)
    return list(queues[start : start + whole + (index < rest)])


def assign_in_turn(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
    """One queue for each member in turn, until none is left."""
    return list(queues[members.index(me) :: len(members)]) if me in members else []


def assign_by_hash(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
    """Queues and members on one ring; a queue belongs to the next member clockwise."""
    if me not in members:
        return []
    owners = {_place(f"{member}-{point}"): member for member in members for point in range(HASH_POINTS)}
    ring = sorted(owners)
    return [
        queue for queue in queues if owners[ring[bisect_left(ring, _place(str(queue))) % len(ring)]] == me
    ]


def _place(key: str) -> int:
    import hashlib  # OpenSSL, for this strategy alone

    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


def assign_fixed(mine: Iterable[MessageQueue]) -> Assign:
    """These queues and no others, whoever else there is. Nobody checks that the members' lists fit."""
    wanted = frozenset(mine)

    def assign(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
        return [queue for queue in queues if queue in wanted]

    return assign


def assign_by_room(rooms: Collection[str]) -> Assign:
    """Queues of brokers in these rooms only, told by a broker's name, `room@name`; evenly among all."""
    allowed = frozenset(rooms)
    if not allowed:
        raise ConfigError("assign_by_room needs at least one room: the part of a broker's name before '@'")

    def assign(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
        if me not in members:
            return []
        index = members.index(me)
        near = [queue for queue in queues if _room_in_name(queue.broker_name) in allowed]
        whole, rest = divmod(len(near), len(members))
        share = near[index * whole : (index + 1) * whole]
        return [*share, near[whole * len(members) + index]] if index < rest else share

    return assign


def _room_in_name(broker_name: str) -> str | None:
    parts = broker_name.split("@")
    return parts[0] if len(parts) == 2 and parts[1] else None  # as Java splits: an empty end is no part


def assign_near(
    room_of_broker: Callable[[str], str],
    room_of_member: Callable[[str], str],
    inner: Assign = assign_evenly,
) -> Assign:
    """By `inner`, among the members of a queue's own room; queues of a room without members, among all."""

    def assign(queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> list[MessageQueue]:
        if me not in members:
            return []
        by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_room.setdefault(_named(room_of_broker(queue.broker_name), queue.broker_name), []).append(queue)
        neighbours: dict[str, list[str]] = {}
        for member in members:
            neighbours.setdefault(_named(room_of_member(member), member), []).append(member)
        my_room = room_of_member(me)
        share = inner(by_room.pop(my_room, []), neighbours[my_room], me)
        for room in sorted(by_room.keys() - neighbours.keys()):
            share += inner(by_room[room], members, me)
        return share

    return assign


def _named(room: str, what: str) -> str:
    if not room:
        raise ConfigError(f"assign_near was told no room for {what!r}; every broker and member needs one")
    return room
