"""What a broker is, and in which term: kept on its disk."""

from __future__ import annotations

import pytest

from kourou.broker.role import ASYNC_MASTER, SLAVE, SYNC_MASTER, BrokerRole
from kourou.broker.state_file import StateFile
from kourou.doors.simulated_files import SimulatedFiles


@pytest.fixture
def files() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_folders("config")
    return files


def role(files: SimulatedFiles, configured: str, broker_id: int = 0) -> BrokerRole:
    made = BrokerRole(configured, broker_id, StateFile(files, "config/term.json"))
    made.load()
    return made


def test_a_broker_without_replicas_writes_nothing(files: SimulatedFiles) -> None:
    alone = role(files, ASYNC_MASTER)
    assert (alone.is_master, alone.broker_id, alone.term) == (True, 0, 0)
    assert files.list("config") == []


def test_a_slave_that_is_started_as_the_master_begins_a_term(files: SimulatedFiles) -> None:
    slave = role(files, SLAVE, 2)
    assert (slave.is_master, slave.broker_id, slave.term) == (False, 2, 0)
    promoted = role(files, SYNC_MASTER)
    assert (promoted.is_sync, promoted.broker_id, promoted.term) == (True, 0, 1)
    again = role(files, SYNC_MASTER)
    assert again.term == 1, "a restart is no promotion"


def test_a_term_never_goes_back(files: SimulatedFiles) -> None:
    slave = role(files, SLAVE, 1)
    slave.adopt(7)
    assert role(files, SLAVE, 1).term == 7
    with pytest.raises(AssertionError):
        slave.change(SLAVE, 6)


def test_what_it_leads_as_is_as_configured(files: SimulatedFiles) -> None:
    assert role(files, SYNC_MASTER).master_role == SYNC_MASTER
    assert role(files, SLAVE, 1).master_role == ASYNC_MASTER


def test_a_slave_leads_as_the_master_did_that_it_followed_also_after_a_restart(files: SimulatedFiles) -> None:
    slave = role(files, SLAVE, 1)
    slave.heard_of("")  # one of the original's does not say
    slave.heard_of(SYNC_MASTER)
    assert slave.master_role == SYNC_MASTER
    assert role(files, SLAVE, 1).master_role == SYNC_MASTER
    assert role(files, ASYNC_MASTER).master_role == ASYNC_MASTER, "who starts it as a master decides"
