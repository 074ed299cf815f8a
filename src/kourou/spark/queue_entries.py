"""Whether the consume queues of a stopped store have an entry for a message: asked for many at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kourou.doors.files import File, Files
from kourou.spark.columns import Numbers

ENTRY_BYTES = 20
_ENTRY = np.dtype([("place", ">i8"), ("size", ">i4"), ("tags", ">i8")])
_OPEN_MAX = 256


class QueueEntries:
    """The queue files of one data folder; of each only the part is read that is asked about."""

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._folder = f"{root}/consumequeue"
        self._queues: dict[tuple[str, int], list[tuple[int, File]]] = {}

    def close(self) -> None:
        for segments in self._queues.values():
            for _, file in segments:
                file.close()
        self._queues.clear()

    def have(
        self, topics: pa.StringArray, queue_ids: Numbers, queue_offsets: Numbers, places: Numbers
    ) -> Numbers:
        """For each message whether its entry says that it lies at its place of the log."""
        coded = topics.dictionary_encode()
        names = coded.dictionary.to_pylist()
        codes = np.asarray(coded.indices).astype(np.int64)
        result = np.zeros(len(queue_ids), dtype=bool)
        pairs, inverse = np.unique(codes << 32 | queue_ids.astype(np.int64) & 0xFFFFFFFF, return_inverse=True)
        for number, pair in enumerate(pairs.tolist()):
            rows = np.flatnonzero(inverse == number)
            found = self._places(names[pair >> 32], pair & 0xFFFFFFFF, queue_offsets[rows])
            result[rows] = found == places[rows]
        return result

    def _places(self, topic: str, queue_id: int, offsets: Numbers) -> Numbers:
        """What the entries at these offsets say; -1 where there is none."""
        found = np.full(len(offsets), -1, dtype=np.int64)
        for first, file in self._segments(topic, queue_id):
            within = offsets - first
            is_here = (within >= 0) & (within < file.size() // ENTRY_BYTES)
            if not is_here.any():
                continue
            low, high = int(within[is_here].min()), int(within[is_here].max()) + 1
            data = file.pread((high - low) * ENTRY_BYTES, low * ENTRY_BYTES)
            entries: np.ndarray[Any, Any] = np.frombuffer(data, dtype=_ENTRY, count=len(data) // ENTRY_BYTES)
            chosen = entries[within[is_here] - low]
            found[is_here] = np.where(chosen["size"] == 0, -1, chosen["place"])
        return found

    def _segments(self, topic: str, queue_id: int) -> list[tuple[int, File]]:
        """The first offset of each file of a queue, and the file."""
        key = (topic, queue_id)
        known = self._queues.get(key)
        if known is not None:
            return known
        if len(self._queues) >= _OPEN_MAX:
            self.close()
        folder = f"{self._folder}/{topic}/{queue_id}"
        is_there = "/" not in topic and self._files.is_folder(folder)
        found = [
            (int(name) // ENTRY_BYTES, self._files.open(f"{folder}/{name}", read_only=True))
            for name in (self._files.list(folder) if is_there else ())
            if name.isdigit()
        ]
        self._queues[key] = found
        return found
