"""`kourou broker`: a broker alone, told by RocketMQ's own configuration file."""

from __future__ import annotations

import os

import click

from kourou.cli.configuration import configured
from kourou.cli.serving import LEVELS, log_to_stderr, serve
from kourou.errors import MQError


@click.command()
@click.option(
    "-c", "--config", "path", type=click.Path(), help="A broker.conf of RocketMQ's, read unchanged."
)
@click.option("-n", "--name-server", metavar="ADDRESSES", help="host:port; several separated by ';'.")
@click.option("-p", "--print-config", is_flag=True, help="Print the effective configuration and exit.")
@click.option("--port", type=click.IntRange(0, 65535), help="listenPort, whatever the file says.")
@click.option("--data", type=click.Path(), help="storePathRootDir, whatever the file says.")
@click.option("--insecure", is_flag=True, help="Allow an address that other machines can reach.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
def broker(
    path: str | None,
    name_server: str | None,
    print_config: bool,
    port: int | None,
    data: str | None,
    insecure: bool,
    log_level: str,
) -> int:
    """Run a broker."""
    from kourou.broker.broker import Broker
    from kourou.broker.config import KEYS, BrokerConfig
    from kourou.doors.chance import Chance
    from kourou.doors.clock import RealClock
    from kourou.doors.failing_files import machine_files
    from kourou.doors.network import RealNetwork

    flags = {
        "name_servers": name_server,
        "port": port,
        "store_path": data,
        "insecure": True if insecure else None,
    }
    config = configured(BrokerConfig, KEYS, path, flags)
    if print_config:
        click.echo(KEYS.as_properties(config), nl=False)
        return 0
    log_to_stderr(log_level)
    made: list[Broker] = []

    def make() -> Broker:
        made.append(
            Broker(
                config,
                network=RealNetwork(),
                clock=RealClock(),
                files=machine_files(os.environ),
                chance=Chance(),
                process_id=os.getpid(),
            )
        )
        return made[0]

    def ready() -> None:
        names = ";".join(config.name_servers) or "none: nobody will find it by name"
        click.echo(f"broker {config.broker_name} listens on {made[0].address}; name servers {names}")

    def fault() -> MQError | None:
        return made[0].fault

    return serve(make, ready, fault)
