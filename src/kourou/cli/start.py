"""`kourou start`: everything one machine needs, in one process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from kourou import native
from kourou.cli.configuration import configured
from kourou.cli.console import WithConsole, first_words
from kourou.cli.serving import log_options, log_to_stderr, serve
from kourou.errors import MQError

if TYPE_CHECKING:
    from kourou.console.server import ConsoleServer
    from kourou.local.node import Node


@click.command()
@click.option("--data", default="kourou-data", show_default=True, help="Folder for messages and settings.")
@click.option(
    "-c", "--config", "path", type=click.Path(), help="A broker.conf of RocketMQ's, read unchanged."
)
@click.option("--name-server-port", type=click.IntRange(0, 65535), default=9876, show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), help="The broker's port.  [default: 10911]")
@click.option(
    "--console-port",
    type=click.IntRange(0, 65535),
    help="The web console's.  [default: 8080, or any free one]",
)
@click.option("--no-console", is_flag=True, help="Without the web console.")
@click.option("--sync-flush", is_flag=True, help="Acknowledge a message when it is on the disk.")
@log_options("warning")
def start(
    data: str,
    path: str | None,
    name_server_port: int,
    port: int | None,
    console_port: int | None,
    no_console: bool,
    sync_flush: bool,
    log_level: str,
) -> int:
    """Run a name server and a broker in this process, on loopback. Port 0 takes any free one."""
    from kourou.broker.config import KEYS, BrokerConfig
    from kourou.local.node import Node, data_folder
    from kourou.nameserver.config import NameServerConfig
    from kourou.remoting.metrics_settings import IF_POSSIBLE, OFF, shown_if_possible

    log_to_stderr(log_level)
    folder = data_folder(data)
    flags = {
        "port": port,
        "store_path": f"{folder}/store",
        "flush_disk_type": "SYNC_FLUSH" if sync_flush else None,
    }
    own_name_server = {**os.environ, "NAMESRV_ADDR": ""}  # it is the one in this process
    broker_config = shown_if_possible(configured(BrokerConfig, KEYS, path, flags, own_name_server))
    node = Node(
        NameServerConfig(
            port=name_server_port,
            host=broker_config.host,
            insecure=broker_config.insecure,
            metrics_exporter=IF_POSSIBLE if broker_config.is_metered else OFF,
            **broker_config.about_access(),
            kv_config_path=f"{folder}/namesrv/kvConfig.json",
        ),
        broker_config,
    )

    served = node if no_console else WithConsole(node, folder, console_port)

    def ready() -> None:
        console = served.console if isinstance(served, WithConsole) else None
        click.echo(_welcome(node, folder, console))

    def fault() -> MQError | None:
        return node.broker.fault

    return serve(lambda: served, ready, fault)


def _welcome(node: Node, folder: str, console: ConsoleServer | None) -> str:
    name_server, broker = node.name_server.address, node.broker.address
    host, _, port = broker.rpartition(":")
    near = os.path.relpath(folder)
    shown = folder if near.startswith("..") else near
    return (
        f"kourou is ready\n"
        f"  name server  {name_server}\n"
        f"  broker       {broker} (fast port {host}:{int(port) - 2})\n"
        f"{_console_words(console)}"
        f"{_metrics_words(node)}"
        f"  data         {shown}\n"
        f"{_slower_words()}"
        f"\n"
        f"Try, in another terminal:\n"
        f"  kourou message send -n {name_server} greetings 'hello, world'\n"
        f"  kourou message tail -n {name_server} greetings --from earliest\n"
        f"\n"
        f"Ctrl-C stops it cleanly."
    )


def _slower_words() -> str:
    return "" if native.native is not None else f"  slower       {native.described()}\n"


def _metrics_words(node: Node) -> str:
    pages = (("broker", node.broker.pages), ("name server", node.name_server.pages))
    served = [f"{each.address} ({whose})" for whose, each in pages if each and each.address]
    refused = [f"of the {whose}: {each.refused}" for whose, each in pages if each and each.refused]
    words = [f"{', '.join(served)}: /metrics, /health, /ready"] if served else []
    return "".join(f"  metrics      {each}\n" for each in (*words, *(f"none {each}" for each in refused)))


def _console_words(console: ConsoleServer | None) -> str:
    if console is None:
        return ""
    password = (
        "" if console.first_password is None else f"\n               {first_words(console.first_password)}"
    )
    return f"  console      {console.address}{password}\n"
