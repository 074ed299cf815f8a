"""The properties of many messages at once: `name U+0001 value U+0002 …` of each, taken apart by NumPy.

    bytes       N A M E 1 v a l u e 2 N A M E 1 v 2      of all messages, side by side
    entries     [begin,     middle,         end)          one for each U+0002; the middle is its first U+0001

Rules are those of `protocol/properties.py`: an entry without a name or a value does not count, of two with
one name the later wins, and the last U+0002 may be missing. `kourou.native` finds entries and copies texts
where it is there; what is unusual (a name twice, or not UTF-8) is left to NumPy.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from kourou.native import native

Numbers = Any
"""A NumPy array of numbers."""

_NAME_END, _VALUE_END = 1, 2
_NO_TEXT = "\ufffd"  # so shows what is not UTF-8, whatever it is
_BITS = 62


class Properties:
    """Of each of many messages; `packed` has one encoded text for each."""

    def __init__(self, packed: pa.BinaryArray) -> None:
        self._packed = packed
        _, offsets, data = packed.buffers()
        count = len(packed)
        self._bounds = (
            np.frombuffer(offsets, dtype=np.int32)[packed.offset : packed.offset + count + 1].astype(np.int64)
            if count
            else np.zeros(1, dtype=np.int64)
        )
        self._data = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)

    def raw(self) -> pa.StringArray:
        """As they travel, but for what is not UTF-8."""
        return texts(self._packed)

    def values(self, name: str) -> pa.StringArray:
        """The value of one property for each message; null where there is none."""
        if self._found is not None and _NO_TEXT not in name:
            return self._found.values(name)
        entries = self._entries
        code = self._codes.get(name)
        count = len(self._packed)
        if code is None:
            return pa.nulls(count, pa.string())
        rows = np.full(count, -1, dtype=np.int64)
        of_name = np.flatnonzero(self._name_codes == code)
        rows[entries.message[of_name]] = of_name  # in their order: the last one stays
        return entries.values.take(pa.array(rows, mask=rows < 0))

    def maps(self) -> pa.MapArray:
        """All of them, as a map for each message."""
        if self._found is not None and (maps := self._found.maps()) is not None:
            return maps
        entries = self._entries
        keep = self._that_count()
        message = entries.message if keep is None else entries.message[keep]
        names, values = entries.names, entries.values
        if keep is not None:
            chosen = pa.array(keep)
            names, values = names.take(chosen), values.take(chosen)
        offsets = np.zeros(len(self._packed) + 1, dtype=np.int32)
        np.cumsum(np.bincount(message, minlength=len(self._packed)), out=offsets[1:])
        return pa.MapArray.from_arrays(pa.array(offsets), names, values)

    @cached_property
    def _found(self) -> _NativeEntries | None:
        return None if native is None else _NativeEntries(self._data, self._bounds)

    @cached_property
    def _entries(self) -> _Entries:
        return _Entries(self._data, self._bounds)

    @cached_property
    def _coded(self) -> pa.DictionaryArray:
        return self._entries.names.dictionary_encode()

    @cached_property
    def _name_codes(self) -> Numbers:
        return np.asarray(self._coded.indices)

    @cached_property
    def _codes(self) -> dict[str, int]:
        """A number for each name there is."""
        return {name: code for code, name in enumerate(self._coded.dictionary.to_pylist())}

    def _that_count(self) -> Numbers | None:
        """The entries that no later one of the same name and message replaces; None when these are all."""
        codes, message = self._name_codes, self._entries.message
        if not len(codes):
            return None
        if len(self._codes) < _BITS:
            # One bit a name: where a message's bits add up to what they make together, none is there twice.
            bits = np.left_shift(1, codes.astype(np.int64))
            firsts = np.flatnonzero(np.diff(message, prepend=-1))
            if (np.add.reduceat(bits, firsts) == np.bitwise_or.reduceat(bits, firsts)).all():
                return None
        both = message * len(self._codes) + codes
        _, last_reversed = np.unique(both[::-1], return_index=True)
        return np.sort(len(both) - 1 - last_reversed)


class _NativeEntries:
    """The same entries, found and copied by `native/columns.c`."""

    def __init__(self, data: Numbers, bounds: Numbers) -> None:
        assert native is not None
        self._data = data
        self._firsts, self._entries, self._is_repeated = native.property_entries(
            data, bounds.astype(np.int32)
        )
        self._count = len(bounds) - 1

    def values(self, name: str) -> pa.StringArray:
        assert native is not None
        nulls, valid, bounds, values = native.property_values(
            self._data, self._firsts, self._entries, name.encode()
        )
        return _column(self._count, bounds, values, valid if nulls else None, nulls)

    def maps(self) -> pa.MapArray | None:
        """None when a name may stand twice in a message, as it is or as it is shown."""
        if self._is_repeated:
            return None
        assert native is not None
        name_bounds, names, value_bounds, values = native.property_texts(self._data, self._entries)
        if not names.isascii():
            return None  # it may be UTF-8, and is rare
        count = len(name_bounds) // 4 - 1
        offsets = pa.Array.from_buffers(pa.int32(), self._count + 1, [None, pa.py_buffer(self._firsts)])
        return pa.MapArray.from_arrays(
            offsets, _column(count, name_bounds, names), _column(count, value_bounds, values)
        )


def _column(
    count: int, bounds: bytes, data: bytes, valid: bytes | None = None, nulls: int = 0
) -> pa.StringArray:
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(bounds), pa.py_buffer(data)]
    if data.isascii():  # nearly always, and seen in no time
        return pa.Array.from_buffers(pa.string(), count, buffers, nulls)
    return texts(pa.Array.from_buffers(pa.binary(), count, buffers, nulls))


class _Entries:
    """Every entry with a name and a value, of all messages, in their order."""

    def __init__(self, data: Numbers, bounds: Numbers) -> None:
        first, last = int(bounds[0]), int(bounds[-1])
        inside = data[first:last]
        lasts = np.flatnonzero(inside == _VALUE_END) + first
        ends = lasts
        final = bounds[1:][bounds[1:] > bounds[:-1]] - 1
        unclosed = final[data[final] != _VALUE_END]
        if len(unclosed):  # the last U+0002 was left out
            lasts = np.sort(np.concatenate((lasts, unclosed)))
            ends = lasts + (data[lasts] != _VALUE_END)
        # How many entries each message has, by where its bounds fall among their ends: 0.4 us a message less
        # than to look up the message of each entry; bench: topic.
        message = np.repeat(np.arange(len(bounds) - 1), np.diff(np.searchsorted(lasts, bounds)))
        begins = np.maximum(np.concatenate(([first], lasts + 1))[: len(lasts)], bounds[message])
        middles = np.flatnonzero(inside == _NAME_END) + first
        if len(middles) != len(begins) or (middles < begins).any() or (middles >= ends).any():
            # Not one U+0001 in each entry: take the first there is in it, if there is one.
            middles = np.append(middles, last)[np.searchsorted(middles, begins)]
        counts = (middles > begins) & (middles + 1 < ends)
        if not counts.all():
            begins, middles, ends, message = begins[counts], middles[counts], ends[counts], message[counts]
        self.message = message
        self.names, self.values = _names_and_values(data, begins, middles, ends)


def _names_and_values(
    data: Numbers, begins: Numbers, middles: Numbers, ends: Numbers
) -> tuple[pa.StringArray, pa.StringArray]:
    """Copied side by side, out of `…|name|1|value|2…`."""
    count = len(begins)
    if not count:
        return pa.array([], pa.string()), pa.array([], pa.string())
    bounds = np.empty(4 * count, dtype=np.int32)
    bounds[0::4], bounds[1::4], bounds[2::4], bounds[3::4] = begins, middles, middles + 1, ends
    pieces = pa.Array.from_buffers(
        pa.binary(), 4 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    numbers = np.arange(0, 4 * count, 4, dtype=np.int32)
    return texts(pieces.take(pa.array(numbers))), texts(pieces.take(pa.array(numbers + 2)))


def texts(packed: pa.BinaryArray) -> pa.StringArray:
    """The same bytes as text; what is not UTF-8 shows U+FFFD, for one odd message shall not stop a query."""
    try:
        return packed.cast(pa.string())
    except pa.ArrowInvalid:
        listed = packed.to_pylist()
        return pa.array(
            [None if each is None else each.decode("utf-8", "replace") for each in listed], pa.string()
        )
