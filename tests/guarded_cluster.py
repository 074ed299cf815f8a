"""A name server and a broker of ours that ask everybody who they are, as processes of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import kourou
from tests.kourou_process import Serving, serving

ADMIN = kourou.Credentials("operator", "operators-secret")
SHOP = kourou.Credentials("shop-account", "shops-secret")
READER = kourou.Credentials("reader-account", "readers-secret")

PLAIN_ACL = """\
globalWhiteRemoteAddresses: []

accounts:
  - accessKey: operator
    secretKey: operators-secret
    admin: true

  - accessKey: shop-account
    secretKey: shops-secret
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - Orders=PUB|SUB
      - Prices=SUB
    groupPerms:
      - other-group=DENY
    rules:
      - {topic: TOPIC_ORDER, perm: PUB, group: OrderProducerGroup}
      - {topic: Elsewhere, perm: PUB, address: 10.1.2.*}

  - accessKey: reader-account
    secretKey: readers-secret
    defaultTopicPerm: SUB
    defaultGroupPerm: SUB
"""


@dataclass
class Guarded:
    name_server: str
    broker: str
    acl: Path
    processes: tuple[Serving, Serving]


@contextlib.contextmanager
def guarded_cluster(folder: Path, **settings: object) -> Iterator[Guarded]:
    """Both of them, apart, with one `plain_acl.yml`. `settings` are for both, but for what a broker says as a
    client (`tls.enable`, `tls.client.…`)."""
    folder.mkdir(parents=True, exist_ok=True)
    acl = folder / "plain_acl.yml"
    acl.write_text(PLAIN_ACL)
    common = {"aclEnable": "true", "aclConfigPath": acl, "listenPort": 0, **settings}
    of_both = {
        name: value for name, value in common.items() if not name.startswith(("tls.enable", "tls.client"))
    }
    names = _properties(folder / "namesrv.conf", {**of_both, "kvConfigPath": folder / "ns" / "kvConfig.json"})
    (folder / "ns").mkdir(exist_ok=True)
    broker = _properties(
        folder / "broker.conf",
        {
            **common,
            "brokerName": "guarded",
            "storePathRootDir": folder / "store",
            "mappedFileSizeCommitLog": 16 << 20,
        },
    )
    with serving("nameserver", "-c", names, folder=folder, until="listens on") as name_server:
        address = name_server.address("listens on")
        with serving("broker", "-c", broker, "-n", address, folder=folder, until="listens on") as process:
            yield Guarded(address, process.address("listens on"), acl, (name_server, process))


def _properties(path: Path, values: dict[str, object]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path
