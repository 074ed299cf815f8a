"""Routes kept on disk, so that known topics work when no name server answers, even after a restart.

One JSON file, `{topic: route as a name server told it}`, replaced as a whole when a route has changed.
Several clients may share it: who writes keeps what others have written meanwhile. It is only ever a fallback:
whoever can ask a name server believes that.
"""

from __future__ import annotations

import logging
import os
import threading

import msgspec

from kourou.doors.files import Files, make_lasting_folder
from kourou.errors import ConfigError, MQError
from kourou.protocol.bodies import TopicRouteData

_log = logging.getLogger("kourou.client")


class RouteCache:
    """The routes in one file; any number of threads may keep and ask."""

    def __init__(self, path: str, files: Files) -> None:
        self._path = path
        self._files = files
        self._lock = threading.Lock()
        self._routes = self._read()

    def get(self, topic: str) -> TopicRouteData | None:
        kept = self._routes.get(topic)
        if kept is None:
            return None
        try:
            return TopicRouteData.decode(kept)
        except MQError:
            return None

    def keep(self, topic: str, route: TopicRouteData) -> None:
        """A failing disk is no reason not to send: it is logged."""
        encoded = route.encode()
        with self._lock:
            if self._routes.get(topic) == encoded:
                return
            self._routes = {**self._routes, **self._there(), topic: encoded}
            table = {name: msgspec.Raw(each) for name, each in sorted(self._routes.items())}
            try:
                make_lasting_folder(self._files, os.path.dirname(self._path))
                self._files.write_atomically(self._path, msgspec.json.encode(table), keep_previous=False)
            except OSError as error:
                _log.warning("routes cannot be kept in %s: %s", self._path, error.strerror or error)

    def _there(self) -> dict[str, bytes]:
        """What the file holds now."""
        try:
            return self._read()
        except ConfigError:
            return {}  # then writing will not do either, and that is told

    def _read(self) -> dict[str, bytes]:
        try:
            content = self._files.read(self._path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(
                f"route_cache '{self._path}' cannot be read: {error.strerror or error}; name another file"
            ) from None
        try:
            table = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            _log.warning("%s holds no routes, and will be replaced", self._path)
            return {}
        return {topic: bytes(route) for topic, route in table.items()}
