"""The Node client ali-ons: our broker does with it as Apache's does, with and without accounts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.guarded_cluster import ADMIN, guarded_cluster
from tests.interop import apache, node_client, scenario_runs
from tests.interop.ours import wait_until
from tests.interop.test_scenarios_later import as_before_5

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

SETTINGS: dict[str, Any] = {"messageDelayLevel": "1s 2s 3s 4s 5s 6s", "enablePropertyFilter": "true"}
EXPLAINED_WITH_OLDER: dict[str, set[str]] = {
    "node-send-properties": {
        "received[0].properties.WAIT",
        "received[0].properties.UNIQ_KEY",
        "received[1].properties.UNIQ_KEY",
    },
    "node-send-compressed": {"received[0].properties.UNIQ_KEY"},
    "node-send-namespaced": {"received[0].properties.UNIQ_KEY"},
    "node-delay": {"received[0].properties.UNIQ_KEY"},
    "node-retry": {"last.properties.UNIQ_KEY"},
    "node-dead-letter": {"dead[0].properties.UNIQ_KEY"},
}
"""By scenario, where the two differ and why that is right: docs/compatibility.md tells each."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> scenario_runs.Both:
    return scenario_runs.both_of(node_client.scenarios, tmp_path_factory.mktemp("node"), **SETTINGS)


@pytest.mark.parametrize("name", node_client.names())
def test_the_node_client_finds_all_as_with_apache(results: scenario_runs.Both, name: str) -> None:
    scenario_runs.check(results, name, {})


@pytest.fixture(scope="module")
def results_with_older(tmp_path_factory: pytest.TempPathFactory) -> scenario_runs.Both:
    folder = tmp_path_factory.mktemp("node-older")
    return as_before_5(scenario_runs.both_of(node_client.scenarios, folder, release="4.9.7", **SETTINGS))


@pytest.mark.parametrize("name", node_client.names())
def test_the_node_client_finds_all_as_with_an_older_apache(
    results_with_older: scenario_runs.Both, name: str
) -> None:
    scenario_runs.check(results_with_older, name, EXPLAINED_WITH_OLDER)


def test_each_difference_with_the_node_client_is_explained() -> None:
    assert set(EXPLAINED_WITH_OLDER) <= scenario_runs.explained_in_the_documentation()


def test_the_node_client_signs_what_it_sends_and_asks(tmp_path: Path) -> None:
    with guarded_cluster(tmp_path / "ours") as cluster:
        wait_until(lambda: apache.listens(cluster.broker), 10, "the broker listened")
        asked = (tmp_path, cluster.name_server, cluster.broker, "node-push", "node-retry")
        secret = f"{ADMIN.access_key}:{ADMIN.secret_key}"
        for name, observed in node_client.scenarios(*asked, credentials=secret).items():
            assert "BROKEN" not in observed, (name, observed)
        for name, observed in node_client.scenarios(*asked, credentials="somebody:wrong-secret").items():
            assert "BROKEN" in observed, (name, observed)
