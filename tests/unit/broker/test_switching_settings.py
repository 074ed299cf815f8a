"""Replica sets that cannot be: each is refused at the start, with the value and the way out."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.broker.config import BrokerConfig
from kourou.errors import ConfigError

A, B, C = "127.0.0.1:10911", "127.0.0.1:10921", "127.0.0.1:10931"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"election_members": (A,)}, "names 1 brokers, 1 of them different: a replica set has 2 to 5"),
        ({"election_members": (A, B, A)}, "names 3 brokers, 2 of them different"),
        ({"election_members": tuple(f"127.0.0.1:{port}" for port in range(1, 7))}, "names 6 brokers"),
        ({"election_members": (A, "nowhere")}, "electionMembers, electionWitnesses: .*nowhere"),
        ({"election_members": (A, B), "election_witnesses": (B,)}, "a broker of the set votes already"),
        ({"election_witnesses": (C,)}, "electionWitnesses without electionMembers"),
        (
            {"election_members": (A, B, C), "broker_role": "SLAVE", "broker_id": 1},
            "brokerRole says what this broker is when it leads",
        ),
    ],
)
def test_a_set_that_cannot_be_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BrokerConfig(**settings)


def test_two_brokers_without_a_witness_survive_nobody() -> None:
    assert BrokerConfig(election_members=(A, B)).survives_nobody
    assert not BrokerConfig(election_members=(A, B), election_witnesses=(C,)).survives_nobody
    assert not BrokerConfig(election_members=(A, B, C)).survives_nobody
