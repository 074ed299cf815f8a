"""Writes the configuration files under `deploy/`, from the layouts that `kourou cluster up` runs.

python -m tools.deploy_files        after a layout has changed; a test holds the files against it
"""

from __future__ import annotations

from pathlib import Path

from kourou.local.layouts import LAYOUTS, Place, Server, planned

ROOT = Path(__file__).parents[1] / "deploy"
NAME_SERVERS = ("10.0.0.1", "10.0.0.2")
FIRST_BROKER = 11
DATA = "/var/lib/kourou"

PREFACE = {
    "nameserver": """\
# {name} of layout {layout}: kourou nameserver -c {file}
# It asks peers who they are: put the accounts into plain_acl.yml beside kvConfigPath (docs/security.md).
""",
    "broker": """\
# {name} of layout {layout}: kourou broker -c {file}
# It asks peers who they are: accounts are in plain_acl.yml in the store's config folder (docs/security.md)
# The secret that brokers of a replica set share is given by the environment: KOUROU_BROKER_HA_SECRET
""",
}


def files() -> dict[Path, str]:
    """Every file, by its path below `deploy/`."""
    found = {}
    for layout in LAYOUTS:
        for server in planned(layout, places(), name_servers=len(NAME_SERVERS), more={"aclEnable": "true"}):
            path = Path("layouts") / layout / f"{server.name}.conf"
            found[path] = text_of(server, layout, path)
    return found


def places() -> Hosts:
    return Hosts()


class Hosts:
    """One machine for every server."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}

    def __call__(self, kind: str, name: str) -> Place:
        if name not in self._places:
            number = sum(
                kind == ("nameserver" if each.startswith("nameserver") else "broker") for each in self._places
            )
            host = NAME_SERVERS[number] if kind == "nameserver" else f"10.0.0.{FIRST_BROKER + number}"
            port = 9876 if kind == "nameserver" else 10911
            self._places[name] = Place(host, port, f"{DATA}/{name}")
        return self._places[name]


def text_of(server: Server, layout: str, path: Path) -> str:
    preface = PREFACE[server.kind].format(name=server.name, layout=layout, file=path.name)
    more = "aclEnable=true\n" if server.kind == "nameserver" else ""
    return preface + server.configuration() + more


def main() -> None:
    for path, text in files().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)


if __name__ == "__main__":
    main()
