"""A small JSON file that a broker keeps."""

from __future__ import annotations

import errno

import pytest

from kourou.broker.state_file import StateFile
from kourou.doors.chance import Chance
from kourou.doors.files import make_lasting_folder
from kourou.doors.simulated_files import SimulatedFiles
from kourou.errors import Busy, Corrupt, DiskFault, StoreError
from kourou.protocol.bodies import ConsumerOffsets, TopicConfig, TopicTable
from tests.unit.store.folder import Later

PATH = "store/config/consumerOffset.json"


def disk() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_folders("store/config")
    return files


def put(files: SimulatedFiles, path: str, content: bytes) -> None:
    file = files.open(path, create=True)
    file.truncate(0)
    file.pwrite(content, 0)
    file.close()


def offsets(offset: int) -> ConsumerOffsets:
    return ConsumerOffsets(offset_table={"orders@billing": {0: offset}})


def test_nothing_was_ever_saved() -> None:
    assert StateFile(disk(), PATH).load(ConsumerOffsets) is None


def test_what_is_saved_is_loaded() -> None:
    file = StateFile(disk(), PATH)
    file.save(offsets(7))
    assert file.load(ConsumerOffsets) == offsets(7)


def test_apache_writes_integer_keys_without_quotes() -> None:
    files = disk()
    put(files, PATH, b'{\n\t"offsetTable":{"orders@billing":{0:250}\n\t}\n}')
    assert StateFile(files, PATH).load(ConsumerOffsets) == offsets(250)


@pytest.mark.parametrize("damage", [b"", b"  \n", b'{"offsetTable":{"ord', b"\xff\xfe", b"\0" * 40])
def test_a_damaged_file_falls_back_to_the_previous_generation(damage: bytes) -> None:
    files = disk()
    file = StateFile(files, PATH)
    file.save(offsets(1))
    file.save(offsets(2))
    put(files, PATH, damage)
    assert file.load(ConsumerOffsets) == offsets(1)


def test_a_missing_file_falls_back_to_the_previous_generation() -> None:
    files = disk()
    file = StateFile(files, PATH)
    file.save(offsets(1))
    file.save(offsets(2))
    files.remove(PATH)
    assert file.load(ConsumerOffsets) == offsets(1)


def test_two_damaged_generations_are_an_error_that_names_both() -> None:
    files = disk()
    put(files, PATH, b"{broken")
    put(files, PATH + ".bak", b"{broken")
    with pytest.raises(
        Corrupt, match=r"consumerOffset\.json is unreadable .*consumerOffset\.json\.bak"
    ) as error:
        StateFile(files, PATH).load(ConsumerOffsets)
    assert error.value.exit_code == 74


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [(errno.ENOSPC, Busy, "free some space"), (errno.EIO, DiskFault, "see to the disk")],
)
def test_a_file_that_cannot_be_written_is_named_and_stays_as_it_was(
    number: int, kind: type[Exception], words: str
) -> None:
    files = disk()
    file = StateFile(files, "store/config/topics.json")
    file.save(TopicTable(topic_config_table={"orders": TopicConfig(topic_name="orders")}))
    files.fail("sync", error=number)
    with pytest.raises(kind, match=rf"topics\.json cannot be written: .*; {words}"):
        file.save(TopicTable())
    kept = file.load(TopicTable)
    assert kept is not None
    assert "orders" in kept.topic_config_table


def test_a_file_that_may_not_be_read_is_not_replaced_by_an_older_one() -> None:
    files = disk()
    file = StateFile(files, "store/config/topics.json")
    file.save(TopicTable())
    file.save(TopicTable(topic_config_table={"orders": TopicConfig(topic_name="orders")}))
    files.fail("open", error=errno.EACCES)
    with pytest.raises(StoreError, match=r"config/topics.json cannot be read: Permission denied"):
        file.load(TopicTable)


def test_what_is_saved_later_is_the_state_of_the_moment_it_was_asked_for() -> None:
    file, thread = StateFile(disk(), PATH), Later()
    told: list[BaseException | None] = []
    state = offsets(1)
    file.save_later(state, thread.background, told.append)
    state.offset_table["orders@billing"][0] = 2
    assert file.load(ConsumerOffsets) is None
    thread.run()
    assert file.load(ConsumerOffsets) == offsets(1)
    assert told == [None]


def test_an_older_state_never_takes_the_place_of_a_newer_one() -> None:
    file, thread = StateFile(disk(), PATH), Later()
    told: list[BaseException | None] = []
    file.save_later(offsets(1), thread.background, told.append)
    file.save_later(offsets(2), thread.background, told.append)
    file.save(offsets(3))
    thread.run()
    assert file.load(ConsumerOffsets) == offsets(3)
    assert told == [None, None]


def test_saving_later_on_a_full_disk_tells_so() -> None:
    files, thread = disk(), Later()
    told: list[BaseException | None] = []
    file = StateFile(files, PATH)
    files.fail("sync", error=errno.ENOSPC)
    file.save_later(offsets(1), thread.background, told.append)
    thread.run()
    assert [type(error) for error in told] == [Busy]


def test_what_a_start_has_read_outlasts_a_power_cut() -> None:
    """Though the process before was killed between the rename and the sync of the folder."""
    files = SimulatedFiles()
    make_lasting_folder(files, "store/config")
    StateFile(files, PATH).save(ConsumerOffsets(offset_table={"T@g": {0: 1}}))
    files.fail("sync_folder")
    with pytest.raises(DiskFault):
        StateFile(files, PATH).save(ConsumerOffsets(offset_table={"T@g": {0: 2}}))
    found = files.crashed()
    assert (StateFile(found, PATH).load(ConsumerOffsets) or ConsumerOffsets()).offset_table["T@g"] == {0: 2}
    for seed in range(10):
        after = StateFile(found.power_cut(Chance(seed)), PATH).load(ConsumerOffsets)
        assert after is not None
        assert after.offset_table["T@g"] == {0: 2}


def test_a_number_that_rots_is_not_believed() -> None:
    files = disk()
    for queue_offset in (1230, 1240):
        StateFile(files, PATH).save(ConsumerOffsets(offset_table={"T@g": {0: queue_offset}}))
    at = files.read(PATH).index(b"1240") + 2
    files.open(PATH).pwrite(b"9", at)
    found = StateFile(files, PATH).load(ConsumerOffsets)
    assert found is not None
    assert found.offset_table["T@g"] == {0: 1230}


def test_a_file_of_another_broker_or_without_its_checksum_is_taken_as_it_is() -> None:
    files = disk()
    StateFile(files, PATH).save(ConsumerOffsets(offset_table={"T@g": {0: 5}}))
    text = files.read(PATH)
    assert b"kourouCrc32" in text
    by_hand = text[: text.index(b',\n "kourouCrc32"')].replace(b"5", b"7") + b"\n}"
    files.write_atomically(PATH, by_hand)
    found = StateFile(files, PATH).load(ConsumerOffsets)
    assert found is not None
    assert found.offset_table["T@g"] == {0: 7}
