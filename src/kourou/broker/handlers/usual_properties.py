"""What a broker makes of a message's properties, remembered for the next message that has the same ones.

    came      UNIQ_KEY␁ <32 characters> ␂ WAIT␁true␂ TAGS␁paid␂
    stored    UNIQ_KEY␁ <32 characters> ␂ TAGS␁paid␂ MSG_REGION␁…␂ TRACE_ON␁…␂ CLUSTER␁…␂

A producer's messages mostly have the same properties but for the unique id, which every client writes as 32
characters. So what comes before and after it need be looked at once: 0.4 µs a message where the plain way
(`SendHandler.stored_properties`) takes 1.2. Messages with keys of their own are different every time; they
are not remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kourou.protocol.record import has_crc
from kourou.store.dispatch import entry_tag
from kourou.store.key_hashes import UNIQUE_ID_BYTES

UNIQUE_ID = "UNIQ_KEY\x01"
_REMEMBERED_MAX = 1024
_NOT_REMEMBERED = ("KEYS\x01", "WAIT\x01f", "TRAN_MSG")


class Stored(NamedTuple):
    """Properties as they are stored."""

    properties: bytes
    unique_id: bytes
    tag: int
    """The tag's code."""


Around = tuple[int, str, str, int, int, bytes, bytes, int, int]
"""What stands around a unique id. As it came: the length of it all, what is before, what is after, where the
id begins and ends. As it is stored: what is before, what is after, where the id begins. The tag's code."""

UNKNOWN: Around = (-1, "", "", 0, 0, b"", b"", 0, 0)
"""No properties are like this, and the unique id is empty."""


def rest_of(text: str) -> str:
    """All but the unique id; nothing where there is none, or one that ends too soon."""
    id_at = text.find(UNIQUE_ID) + len(UNIQUE_ID)
    if id_at < len(UNIQUE_ID) or len(text) < id_at + UNIQUE_ID_BYTES:
        return ""
    return text[:id_at] + text[id_at + UNIQUE_ID_BYTES :]


class UsualProperties:
    """Knows what the last so many kinds of properties are stored as."""

    def __init__(self, plain: Callable[[str, int], tuple[bytes, str]]) -> None:
        """`plain` makes what is stored, and finds the unique id; it may refuse."""
        self._plain = plain
        self.by_rest: dict[str, Around] = {}
        """By `rest_of` the properties. Good for unique ids of 32 letters and digits."""

    def of_each(self, topic: str, texts: Iterable[str]) -> Iterator[tuple[bytes, bytes, int, int]]:
        """What these are stored as, the unique id, where that begins if it is all a message is found by (else
        0), the tag's code: one after the other, up to the first that is too unusual. `plain` may refuse."""
        usual_of = self.by_rest.get
        # Most messages have the properties of the one before, but for the unique id.
        length, came_before, came_after, id_from, id_to, before, after, stored_at, usual_tag = UNKNOWN
        for text in texts:
            if len(text) != length or not (text.startswith(came_before) and text.endswith(came_after)):
                known = usual_of(rest_of(text), UNKNOWN)
                length, came_before, came_after, id_from, id_to, before, after, stored_at, usual_tag = known
            unique_id = text[id_from:id_to].encode()
            if unique_id.isalnum():
                yield before + unique_id + after, unique_id, stored_at, usual_tag
            else:
                stored = self.looked_at(topic, text, 0)
                if stored is None:
                    return
                yield stored.properties, stored.unique_id, 0, stored.tag

    def looked_at(self, topic: str, text: str, sys_flag: int) -> Stored | None:
        """What `text` is stored as, remembered if it is of the usual kind; None when it is too unusual."""
        properties, unique_id = self._plain(text, sys_flag)
        id_bytes = unique_id.encode()
        if not id_bytes.isalnum() or has_crc(properties):
            return None
        tag = entry_tag(topic, properties, 0, ())
        if len(id_bytes) == UNIQUE_ID_BYTES and properties.count(id_bytes) == 1:
            self._remember(text, unique_id, properties, id_bytes, tag)
        return Stored(properties, id_bytes, tag)

    def _remember(self, text: str, unique_id: str, properties: bytes, id_bytes: bytes, tag: int) -> None:
        before, found, after = text.partition(UNIQUE_ID + unique_id)
        rest = before + UNIQUE_ID + after
        if (
            found
            and (not before or before[-1] == "\x02")
            and (not after or after[0] == "\x02")
            and rest.count(UNIQUE_ID) == 1
            and not any(each in text for each in _NOT_REMEMBERED)
        ):
            if len(self.by_rest) >= _REMEMBERED_MAX:
                self.by_rest.clear()
            came_before = before + UNIQUE_ID
            id_at = len(came_before)
            stored_before, _, stored_after = properties.partition(id_bytes)
            self.by_rest[rest] = (
                *(len(text), came_before, after, id_at, id_at + UNIQUE_ID_BYTES),
                *(stored_before, stored_after, len(stored_before), tag),
            )
