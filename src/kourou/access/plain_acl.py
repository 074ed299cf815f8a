"""`plain_acl.yml`, as 4.x writes it, and our `rules` in it.

    globalWhiteRemoteAddresses: [10.10.103.*, 192.168.0.*]
    accounts:
      - accessKey: RocketMQ            # at least 7 characters, the secret too
        secretKey: "12345678"
        whiteRemoteAddress: ""
        admin: false
        defaultTopicPerm: DENY         # DENY | PUB | SUB | PUB|SUB
        defaultGroupPerm: SUB
        topicPerms: [topicA=DENY, topicB=PUB|SUB]
        groupPerms: [groupA=DENY, groupC=SUB]
        rules:                         # ours; the original does not read them
          - {topic: TOPIC_ORDER, perm: PUB, group: OrderProducerGroup, address: 10.1.2.*}

A rule lets its groups and addresses do this with a topic (or all that begin so: `order*`), and nobody else
with the same key. `group` and `address` may be lists; what is left out is not asked for.

Every valid account may look at everything (GET, LIST), as in 4.x; only `admin` may change what is not its own
messages and offsets. An admin without perms of its own may do all there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NoReturn

import msgspec

from kourou.access.accounts import Account, Accounts
from kourou.access.addresses import Addresses
from kourou.access.rules import ADMIN, CHANGE, EVERY, LOOK, PUB, SUB, Entry, Kind, Pattern, Policy
from kourou.errors import ConfigError, MissingExtra
from kourou.protocol.names import printable

NAME_CHARACTERS_MIN: Final = 7
FILE_BYTES_MAX: Final = 4 * 1024 * 1024
DEPTH_MAX: Final = 20
VALUES_MAX: Final = 1_000_000
"""With what a file names by `*alias` counted each time: a few lines may mean more than fits anywhere."""

_EVERYTHING: Final = Pattern("Any", "", True)
_MAY_LOOK: Final = Entry(_EVERYTHING, LOOK)
_MAY_CHANGE: Final = Entry(_EVERYTHING, CHANGE | ADMIN)


class Rule(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A line of `rules`."""

    topic: str
    perm: str
    group: str | list[str] | None = None
    address: str | list[str] | None = None


class PlainAccount(msgspec.Struct, rename="camel", omit_defaults=True):
    """One of `accounts`, as it stands in the file."""

    access_key: str
    secret_key: str
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None
    rules: list[Rule] | None = None

    def __repr__(self) -> str:
        return f"<PlainAccount {self.access_key}>"


class PlainAcl(msgspec.Struct, rename="camel", omit_defaults=True):
    """The whole file."""

    global_white_remote_addresses: list[str] | None = None
    accounts: list[PlainAccount] | None = None
    rules: list[Rule] | None = None
    data_version: Any = None

    def __repr__(self) -> str:
        return f"<PlainAcl of {len(self.accounts or [])} accounts>"


def parse(data: bytes, origin: str) -> PlainAcl:
    """The file as it stands. Raises ConfigError naming `origin` and what is wrong, never a secret."""
    yaml = _yaml()
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{origin} has {len(data)} bytes: an ACL file has at most {FILE_BYTES_MAX}")
    try:
        content = yaml.load(data, Loader=_loader(yaml))
        if _values_in(content, {}) > VALUES_MAX:
            raise ConfigError(
                f"{origin}: its aliases stand for more than {VALUES_MAX} values, or for themselves"
            )
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{origin}{where}: not readable as YAML") from None
    except (RecursionError, ValueError):
        raise ConfigError(f"{origin}: not readable as YAML") from None
    try:
        return msgspec.convert(content if content is not None else {}, PlainAcl, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{origin}: {error}") from None


def _values_in(content: Any, known: dict[int, int]) -> int:
    """How many values it stands for; what contains itself has no end."""
    if not isinstance(content, (dict, list)):
        return 1
    count = known.get(id(content))
    if count is None:
        known[id(content)] = VALUES_MAX + 1  # until it is known
        parts = content.values() if isinstance(content, dict) else content
        count = known[id(content)] = 1 + sum(_values_in(part, known) for part in parts)
    return count


def dump(acl: PlainAcl) -> bytes:
    """The file's new content."""
    yaml = _yaml()
    text: str = yaml.safe_dump(msgspec.to_builtins(acl), sort_keys=False, allow_unicode=True)
    return text.encode()


def accounts_in(acl: PlainAcl, origin: str) -> Accounts:
    """The accounts it describes. Raises ConfigError."""
    by_name: dict[str, Account] = {}
    everybodys = acl.rules or []
    for plain in acl.accounts or []:
        try:
            by_name[plain.access_key] = account(plain, everybodys, origin)
        except ConfigError as error:
            raise ConfigError(f"{origin}: account {printable(plain.access_key)}: {error}") from None
    try:
        return Accounts(by_name, Addresses(acl.global_white_remote_addresses or ()))
    except ConfigError as error:
        raise ConfigError(f"{origin}: globalWhiteRemoteAddresses: {error}") from None


def account(plain: PlainAccount, everybodys: Iterable[Rule] = (), origin: str = "") -> Account:
    """The account in force. Raises ConfigError."""
    if len(plain.access_key) < NAME_CHARACTERS_MIN or len(plain.secret_key) < NAME_CHARACTERS_MIN:
        raise ConfigError(f"accessKey and secretKey must have at least {NAME_CHARACTERS_MIN} characters")
    rules = [*everybodys, *(plain.rules or [])]
    has_perms = bool(plain.topic_perms or plain.group_perms or rules)
    entries = [
        *_entries("Topic", plain.topic_perms or ()),
        *_entries("Group", plain.group_perms or ()),
        *(_rule_entry(rule) for rule in rules),
    ]
    defaults = [
        Entry(Pattern("Topic", "", True), _bits(plain.default_topic_perm or "DENY")),
        Entry(Pattern("Group", "", True), _bits(plain.default_group_perm or "DENY")),
        _MAY_LOOK,
        *([_MAY_CHANGE] if plain.admin else []),
    ]
    return Account(
        name=plain.access_key,
        secret=plain.secret_key.encode(),
        is_super=plain.admin and not has_perms,
        white=Addresses([plain.white_remote_address] if plain.white_remote_address else ()),
        policy=Policy(entries, defaults),
        origin=origin,
    )


def _entries(kind: Kind, perms: Iterable[str]) -> Iterable[Entry]:
    for perm in perms:
        name, equals, words = perm.partition("=")
        if not equals or not name.strip():
            _refuse(f"{perm!r} is not of the form name=PUB|SUB")
        pattern = Pattern(kind, name.strip())
        allowed = _bits(words)
        if allowed:
            yield Entry(pattern, allowed)
        if allowed != PUB | SUB:
            yield Entry(pattern, (PUB | SUB) & ~allowed, is_allowed=False)


def _rule_entry(rule: Rule) -> Entry:
    bits = _bits(rule.perm)
    if not bits or not rule.topic.strip(EVERY):
        _refuse(f"a rule needs a topic and perm PUB, SUB or PUB|SUB, not {rule.topic!r} {rule.perm!r}")
    addresses = Addresses(_listed(rule.address))
    return Entry(
        Pattern("Topic", rule.topic.removesuffix(EVERY), rule.topic.endswith(EVERY)),
        bits,
        addresses=addresses or None,
        groups=frozenset(_listed(rule.group)),
        is_only=True,
    )


def _listed(value: str | list[str] | None) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else value


_WORDS: Final = {"PUB": PUB, "SUB": SUB, "DENY": 0}


def _bits(words: str) -> int:
    bits = 0
    for word in words.split("|"):
        bit = _WORDS.get(word.strip())
        if bit is None:
            _refuse(f"{words!r} is no permission: DENY, PUB, SUB or PUB|SUB")
        bits |= bit
    return bits


def _refuse(what: str) -> NoReturn:
    raise ConfigError(what)


def _yaml() -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingExtra(
            "reading plain_acl.yml needs the package pyyaml: pip install 'kourou[server]'"
        ) from None
    return yaml


def _loader(yaml: Any) -> Any:
    """A SafeLoader that takes scalars as the text they are: `secretKey: 12345678` is no number."""

    class Texts(yaml.SafeLoader):  # type: ignore[misc]
        def fetch_flow_collection_start(self, token: Any) -> None:
            if self.flow_level >= DEPTH_MAX:  # each level takes time for all those around it
                raise yaml.YAMLError(f"deeper than {DEPTH_MAX}")
            super().fetch_flow_collection_start(token)

    Texts.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag.endswith((":null", ":bool", ":merge"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Texts
