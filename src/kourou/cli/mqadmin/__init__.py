"""`kourou mqadmin <verb> …`: the verbs, flags and columns of RocketMQ's own admin tool, without a JVM.

    verbs.py           how a verb is declared, parsed and printed
    topic_verbs.py group_verbs.py message_verbs.py server_verbs.py access_verbs.py      the verbs

What a verb prints has the headings and columns of release 5.3.3, compared with what the real tool printed
(`tests/system/test_cli_mqadmin.py`). What differs: rows are sorted; an error is one line on stderr and an
exit code, where the original prints a stack trace and ends with 0; nothing is written to /tmp/rocketmq.
"""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

import click

from kourou.cli.connection import cluster_at
from kourou.cli.contexts import chosen
from kourou.errors import ConfigError

if TYPE_CHECKING:
    from kourou.cli.mqadmin.verbs import Verb

NOT_HERE = {
    **dict.fromkeys(("addBroker", "removeBroker"), "brokers do not live in containers here"),
    **dict.fromkeys(
        ("updateStaticTopic", "remappingStaticTopic"), "static topics are passed on, but not made or changed"
    ),
    **dict.fromkeys(
        ("exportMetadataInRocksDB", "rocksDBConfigToJson", "checkRocksdbCqWriteProgress"),
        "nothing is kept in RocksDB",
    ),
    **dict.fromkeys(
        (
            *("getColdDataFlowCtrInfo", "updateColdDataFlowCtrGroupConfig"),
            *("removeColdDataFlowCtrGroupConfig", "setCommitLogReadAheadMode"),
        ),
        "cold reads are not throttled apart",
    ),
    **dict.fromkeys(
        (
            *("getControllerMetaData", "getControllerConfig", "updateControllerConfig", "electMaster"),
            *("cleanBrokerMetadata", "getSyncStateSet", "getBrokerEpoch"),
        ),
        "there is no controller; see: kourou broker replicas, kourou broker promote",
    ),
    "dumpCompactionLog": "compaction topics are not served",
    "exportPopRecord": "groups pull here",
    "startMonitoring": "see: kourou check lag, kourou top",
}
"""Verbs of the original that have nothing to do here, and why."""


@click.command(
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": [],
    }
)
@click.argument("words", metavar="VERB …", nargs=-1, type=click.UNPROCESSED)
def mqadmin(words: tuple[str, ...]) -> int:
    """Carry out a verb of RocketMQ's own mqadmin, with its flags and columns. `help VERB` tells more."""
    verbs = all_verbs()
    if not words or words[0] in ("-h", "--help") or (words[0] == "help" and len(words) == 1):
        _list(verbs)
        return 0
    asks = words[0] == "help"
    name = words[1] if asks else words[0]
    found = verbs.get(name)
    if found is None:
        raise _unknown(name, verbs)
    parser = _parser(found)
    if asks:
        click.echo(parser.format_help())
        return 0
    given = vars(parser.parse_args(list(words[1:])))
    from kourou.cli.mqadmin.verbs import Given

    values = {flag.long: given[f"flag{index}"] for index, flag in enumerate(found.flags)}
    context = chosen(given["names"], None)
    click.get_current_context().meta["kourou.context"] = context
    with cluster_at(context.name_server) as connection:
        found.run(connection, Given(found, values))
    return 0


def all_verbs() -> dict[str, Verb]:
    """Every verb, declared by importing its module."""
    from kourou.cli.mqadmin import access_verbs, group_verbs, message_verbs, server_verbs, topic_verbs
    from kourou.cli.mqadmin.verbs import VERBS

    assert all((access_verbs, group_verbs, message_verbs, server_verbs, topic_verbs))
    return VERBS


def _list(verbs: dict[str, Verb]) -> None:
    click.echo("The verbs are:")
    for name, found in verbs.items():
        click.echo(f"   {name:<35}  {found.about}")
    click.echo("\nSee 'kourou mqadmin help <verb>' for its flags.")


def _unknown(name: str, verbs: dict[str, Verb]) -> ConfigError:
    if name in NOT_HERE:
        return ConfigError(f"mqadmin {name} does not apply: {NOT_HERE[name]}")
    near = get_close_matches(name, verbs, n=1)
    hint = f"; did you mean {near[0]}?" if near else "; see: kourou mqadmin help"
    return ConfigError(f"mqadmin has no verb '{name}'{hint}")


class _Parser(argparse.ArgumentParser):
    """Says what is wrong as all other commands do."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}; see: kourou mqadmin help {self.prog.split()[-1]}")


def _parser(verb: Verb) -> _Parser:
    parser = _Parser(prog=f"kourou mqadmin {verb.name}", description=verb.about, allow_abbrev=False)
    taken = {flag.short for flag in verb.flags}
    for index, flag in enumerate(verb.flags):
        names = [f"--{flag.long.replace(' ', '-')}"]
        if flag.short:
            names.insert(0, f"-{flag.short}")
        if flag.takes_value:
            parser.add_argument(
                *names, dest=f"flag{index}", required=flag.is_needed, metavar="VALUE", help=flag.long
            )
        else:
            parser.add_argument(*names, dest=f"flag{index}", action="store_true", help=flag.long)
    if "n" not in taken:
        parser.add_argument("-n", "--namesrvAddr", dest="names", metavar="ADDRESSES", help="name servers")
    return parser
