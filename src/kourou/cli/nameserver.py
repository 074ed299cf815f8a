"""`kourou nameserver`: a name server alone, told by RocketMQ's own configuration file."""

from __future__ import annotations

import click

from kourou.cli.configuration import configured
from kourou.cli.serving import LEVELS, log_to_stderr, serve


@click.command()
@click.option(
    "-c", "--config", "path", type=click.Path(), help="A namesrv.conf of RocketMQ's, read unchanged."
)
@click.option("-n", "ignored", metavar="ADDRESSES", help="Taken and ignored, as by the original.")
@click.option("-p", "--print-config", is_flag=True, help="Print the effective configuration and exit.")
@click.option("--port", type=click.IntRange(0, 65535), help="listenPort, whatever the file says.")
@click.option(
    "--address-server", metavar="HOST:PORT", help="Serve the address list there, at /rocketmq/nsaddr (HTTP)."
)
@click.option("--insecure", is_flag=True, help="Allow an address that other machines can reach.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
def nameserver(
    path: str | None,
    ignored: str | None,
    print_config: bool,
    port: int | None,
    address_server: str | None,
    insecure: bool,
    log_level: str,
) -> int:
    """Run a name server."""
    from kourou.doors.chance import Chance
    from kourou.doors.clock import RealClock
    from kourou.doors.files import RealFiles
    from kourou.doors.network import RealNetwork
    from kourou.nameserver.config import KEYS, NameServerConfig
    from kourou.nameserver.server import NameServer

    flags = {"port": port, "address_server": address_server, "insecure": True if insecure else None}
    config = configured(NameServerConfig, KEYS, path, flags)
    if print_config:
        click.echo(KEYS.as_properties(config), nl=False)
        return 0
    log_to_stderr(log_level)
    server = NameServer(config, network=RealNetwork(), clock=RealClock(), files=RealFiles(), chance=Chance())

    def ready() -> None:
        where = f"; address list at http://{server.address_server}/rocketmq/nsaddr" if address_server else ""
        click.echo(f"name server listens on {server.address}{where}")

    return serve(lambda: server, ready, lambda: None)
