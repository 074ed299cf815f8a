"""The end of a log that nobody else has is kept, and the store goes on without it."""

from __future__ import annotations

from kourou.doors.simulated_files import SimulatedFiles
from kourou.store.aside import set_aside
from tests.unit.store.folder import bodies_of, fill, store_on


def test_an_end_is_set_aside_from_a_store_that_has_no_checkpoint_yet() -> None:
    files = SimulatedFiles()
    store = store_on(files)
    fill(store, 2)
    place = store.wrote
    fill(store, 3, start=2)
    left = files.crashed()
    assert "checkpoint" not in left.list(store.config.root)
    folder, manifest = set_aside(store.config, left, place, store.wrote, "another one leads", 0)
    assert manifest.messages == 3
    assert sorted(left.list(folder)) == ["manifest.json", "tail"]
    assert bodies_of(store_on(left)) == [b"T-0-0", b"T-0-1"]
