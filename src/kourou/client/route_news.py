"""Hearing from name servers that the route of a topic has changed.

Who asks a name server of ours for a route, and `hears_news`, is told of its next change: KOUROU_ROUTE_CHANGED
(30020) comes by the connection that was asked on. A name server of Apache's passes over the wish; then, and
whenever a word is lost, the route is looked at every 30 s as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kourou.client.routes import Routes
from kourou.protocol.bodies import TopicList
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.remoting.answer import Answer, Handler

OnNews = Callable[[float], None]
"""Is told in how many seconds routes that are in use may be asked for again."""


def route_news(routes: Routes, then: OnNews | None = None) -> Mapping[int, Handler]:
    """The handler by which `routes` hear that they have changed; `then` is for who wants to act upon it.

    From now on they ask to be told: the handler has to be at the connections they ask by.
    """
    routes.hears_news = True

    def on_news(request: Command, answer: Answer) -> None:
        seconds = routes.changed(TopicList.decode(request.body).topic_list)
        if seconds is not None and then is not None:
            then(seconds)

    return {RequestCode.KOUROU_ROUTE_CHANGED: on_news}
