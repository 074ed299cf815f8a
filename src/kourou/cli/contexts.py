"""Clusters by name, kept in a file of the user's own, and which of them a command is for.

    current = "staging"

    [contexts.staging]
    name_server = "10.0.0.1:9876;10.0.0.2:9876"
    access_key = "operator"
    secret_key_file = "~/.config/kourou/staging.secret"
    tls = true
    trust = "ca.pem"

The file is `contexts.toml` in `$XDG_CONFIG_HOME/kourou` (else `~/.config/kourou`), or what KOUROU_CONTEXTS
names. What a command talks to is said by the first of these that speaks:

    -n  ·  --context  ·  NAMESRV_ADDR  ·  KOUROU_CONTEXT  ·  `current` in the file  ·  127.0.0.1:9876

Who we are is said by KOUROU_ACCESS_KEY and KOUROU_SECRET_KEY (or KOUROU_SECRET_KEY_FILE), else by the
context. No secret is ever taken from the command line, where `ps` would show it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kourou.errors import ConfigError

if TYPE_CHECKING:
    from kourou.client.signing import Credentials
    from kourou.remoting.config import ClientTls

FILE_VARIABLE = "KOUROU_CONTEXTS"
CONTEXT_VARIABLE = "KOUROU_CONTEXT"
NAME_SERVER_VARIABLE = "NAMESRV_ADDR"
ACCESS_KEY_VARIABLE = "KOUROU_ACCESS_KEY"
SECRET_KEY_VARIABLE = "KOUROU_SECRET_KEY"  # noqa: S105 - the name of a variable
SECRET_FILE_VARIABLE = "KOUROU_SECRET_KEY_FILE"  # noqa: S105
TOKEN_VARIABLE = "KOUROU_SECURITY_TOKEN"  # noqa: S105
VARIABLES = (
    FILE_VARIABLE,
    CONTEXT_VARIABLE,
    ACCESS_KEY_VARIABLE,
    SECRET_KEY_VARIABLE,
    SECRET_FILE_VARIABLE,
    TOKEN_VARIABLE,
)

DEFAULT_NAME_SERVER = "127.0.0.1:9876"


@dataclass(frozen=True)
class Context:
    """One cluster: where it is, who we are there, and how to talk to it."""

    name: str = ""
    name_server: str = DEFAULT_NAME_SERVER
    access_key: str = ""
    secret_key_file: str = ""
    tls: bool = False
    trust: str = ""
    certificate: str = ""
    key: str = ""
    verify: bool = True


@dataclass(frozen=True)
class Contexts:
    """What the file says."""

    path: str
    current: str = ""
    table: Mapping[str, Context] = field(default_factory=dict)

    def named(self, name: str) -> Context:
        context = self.table.get(name)
        if context is None:
            known = ", ".join(sorted(self.table)) or "none"
            raise ConfigError(f"no context '{name}' in {self.path}; known: {known}")
        return context


def contexts_path(environment: Mapping[str, str] = os.environ) -> str:
    given = environment.get(FILE_VARIABLE)
    if given:
        return os.path.expanduser(given)
    folder = environment.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(folder, "kourou", "contexts.toml")


def read_contexts(environment: Mapping[str, str] = os.environ) -> Contexts:
    """What the file says; nothing when there is none. Raises ConfigError naming what is wrong in it."""
    path = contexts_path(environment)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return Contexts(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
    import tomllib  # here, because most users have no such file

    try:
        document = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be understood: {error}") from None
    return _contexts(path, document)


def _contexts(path: str, document: dict[str, Any]) -> Contexts:
    unknown = document.keys() - {"current", "contexts"}
    if unknown:
        raise ConfigError(f"{path}: unknown key {sorted(unknown)[0]!r}; there are: current, contexts")
    table = document.get("contexts", {})
    if not isinstance(table, dict) or not all(isinstance(each, dict) for each in table.values()):
        raise ConfigError(f"{path}: contexts must be tables, as in [contexts.staging]")
    found = {name: _context(path, name, entry) for name, entry in table.items()}
    current = str(document.get("current", ""))
    if current and current not in found:
        raise ConfigError(f"{path}: current is '{current}', but there is no [contexts.{current}]")
    return Contexts(path, current, found)


def _context(path: str, name: str, entry: dict[str, Any]) -> Context:
    known = {key: type(value) for key, value in vars(Context()).items() if key != "name"}
    for key, value in entry.items():
        kind = known.get(key)
        if kind is None:
            raise ConfigError(f"{path}: [contexts.{name}] has no key '{key}'; there are: {', '.join(known)}")
        if not isinstance(value, kind):
            raise ConfigError(f"{path}: {key} of [contexts.{name}] must be a {kind.__name__}, not {value!r}")
    return Context(name=name, **entry)


def chosen(
    name_server: str | None, context: str | None, environment: Mapping[str, str] = os.environ
) -> Context:
    """What a command is for; raises ConfigError when a name is said that nobody knows."""
    if name_server:
        return Context(name_server=name_server)
    if context:
        return read_contexts(environment).named(context)
    if environment.get(NAME_SERVER_VARIABLE):
        return Context(name_server=environment[NAME_SERVER_VARIABLE])
    known = read_contexts(environment)
    name = environment.get(CONTEXT_VARIABLE) or known.current
    return known.named(name) if name else Context()


def credentials(context: Context, environment: Mapping[str, str] = os.environ) -> Credentials | None:
    """Who we are there; None to sign nothing. Raises ConfigError when only half of it is said."""
    access_key = environment.get(ACCESS_KEY_VARIABLE) or context.access_key
    secret_key = environment.get(SECRET_KEY_VARIABLE, "")
    if not secret_key:
        secret_key = _secret(environment.get(SECRET_FILE_VARIABLE) or context.secret_key_file)
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        raise ConfigError(
            f"an access key and its secret key belong together: set {ACCESS_KEY_VARIABLE} and "
            f"{SECRET_KEY_VARIABLE} (or {SECRET_FILE_VARIABLE}), or both in the context"
        )
    from kourou.client.signing import Credentials

    return Credentials(access_key, secret_key, environment.get(TOKEN_VARIABLE) or None)


def _secret(path: str) -> str:
    if not path:
        return ""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            return file.read().strip()
    except OSError as error:
        raise ConfigError(f"the secret key cannot be read from {path}: {error.strerror or error}") from None


def tls(context: Context) -> ClientTls | None:
    if not context.tls:
        return None
    from kourou.remoting.config import ClientTls

    return ClientTls(
        trust=os.path.expanduser(context.trust) or None,
        certificate=os.path.expanduser(context.certificate) or None,
        key=os.path.expanduser(context.key) or None,
        verify=context.verify,
    )


def write_contexts(contexts: Contexts) -> None:
    """Write the file anew, for its owner's eyes alone."""
    os.makedirs(os.path.dirname(contexts.path) or ".", mode=0o700, exist_ok=True)
    beside = f"{contexts.path}.new"
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(_as_toml(contexts))
    os.replace(beside, contexts.path)


def _as_toml(contexts: Contexts) -> str:
    import json  # a JSON string is a TOML string

    lines = [f"current = {json.dumps(contexts.current)}"] if contexts.current else []
    defaults = vars(Context())
    for name, context in sorted(contexts.table.items()):
        lines += ["", f"[contexts.{json.dumps(name)}]"]
        for key, value in vars(context).items():
            if key == "name_server" or (key != "name" and value != defaults[key]):
                lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines).lstrip() + "\n"
