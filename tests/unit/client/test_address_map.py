from __future__ import annotations

import pytest

from kourou.client.address_map import AddressMap
from kourou.errors import ConfigError


def test_the_whole_address_counts_first_then_its_host() -> None:
    where = AddressMap({"10.0.0.5:10911": "localhost:7", "10.0.0.5": "gateway", "::1": "v6.example"})
    assert where("10.0.0.5:10911") == "localhost:7"
    assert where("10.0.0.5:10912") == "gateway:10912"
    assert where("[::1]:1") == "v6.example:1"
    assert where("10.0.0.6:10911") == "10.0.0.6:10911"


def test_what_is_learnt_is_added() -> None:
    where = AddressMap()
    where.add("10.0.0.5:1", "localhost:1")
    assert where("10.0.0.5:1") == "localhost:1"


@pytest.mark.parametrize("given", [{"a:1": "b"}, {"a": "b:1"}, {"a:1": "b:x"}])
def test_a_map_that_makes_no_sense_is_an_error(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        AddressMap(given)
