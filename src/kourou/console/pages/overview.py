"""The first page: is everything well, how much flows, who is behind; and what a search found."""

from __future__ import annotations

from starlette.responses import Response

from kourou.admin import groups, topics
from kourou.console.charts import Line, chart
from kourou.console.page import get
from kourou.console.visit import Visit
from kourou.errors import MQError

SLOWEST = 8
FOUND_MAX = 50


def overview(visit: Visit) -> Response:
    desk = visit.desk
    states = desk.sampler.states()
    samples = desk.sampler.samples()
    lags = desk.sampler.lags()
    times = [sample.at_ms for sample in samples]
    known = [state.runtime for state in states if state.runtime is not None]
    slowest = sorted((lags.by_group if lags else {}).items(), key=lambda each: -each[1])[:SLOWEST]
    charts = [
        (
            "rates",
            visit.say("Messages a second"),
            chart(
                times,
                [
                    Line(visit.say("in"), [sample.in_rate for sample in samples]),
                    Line(visit.say("out"), [sample.out_rate for sample in samples]),
                ],
            ),
        ),
        (
            "lag",
            visit.say("Messages behind, all groups"),
            chart(times, [Line(visit.say("behind"), [sample.lag for sample in samples])]),
        ),
        (
            "disk",
            visit.say("Disk, the fullest"),
            chart(
                times, [Line(visit.say("used"), [sample.disk_ratio * 100 for sample in samples])], "%", 100.0
            ),
        ),
    ]
    return visit.show(
        "overview.html",
        section="/",
        states=states,
        charts=charts,
        last=samples[-1] if samples else None,
        slowest=[(name, lag) for name, lag in slowest if lag],
        put_today=sum(runtime.put_today for runtime in known),
        got_today=sum(runtime.got_today for runtime in known),
        waiting=sum(runtime.timers_waiting for runtime in known),
        error=desk.sampler.error,
    )


def find(visit: Visit) -> Response:
    wanted = visit.query().text("q", "").lower()
    found_topics, found_groups, error = [], [], None
    try:
        found_topics = [
            each for each in topics.names(visit.desk.connection, everything=True) if wanted in each.lower()
        ]
        found_groups = [each for each in groups.names(visit.desk.connection) if wanted in each.lower()]
    except MQError as failure:
        error = str(failure)
    return visit.show(
        "find.html",
        section="",
        wanted=visit.query().text("q", ""),
        topics=found_topics[:FOUND_MAX],
        groups=found_groups[:FOUND_MAX],
        total=len(found_topics) + len(found_groups),
        error=error,
    )


PAGES = [get("/", overview), get("/find", find)]
