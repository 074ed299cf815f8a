"""The trace of a message, as a picture: who sent it, where it was stored, who got it and what they said."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response

from kourou.admin import messages
from kourou.admin.messages import TraceStep
from kourou.console.deeds import messages as deeds
from kourou.console.page import get
from kourou.console.pages.carried import command
from kourou.console.visit import Visit

BOX_WIDTH, BOX_HEIGHT, ROW_HEIGHT, COLUMN_WIDTH = 220, 58, 74, 290


@dataclass(frozen=True)
class Box:
    x: int
    y: int
    title: str
    lines: tuple[str, str]
    kind: str


@dataclass(frozen=True)
class Picture:
    width: int
    height: int
    boxes: list[Box]
    edges: list[str]
    box_width: int = BOX_WIDTH
    box_height: int = BOX_HEIGHT


def trace(visit: Visit) -> Response:
    message_id = visit.query().text("message_id", "")
    steps = messages.trace(visit.desk.connection, message_id) if message_id else []
    return visit.show(
        "trace.html",
        section="/traces",
        message_id=message_id,
        steps=steps,
        picture=picture(visit, steps) if steps else None,
        command=command(visit, deeds.TRACE, message_id=message_id or "ID"),
    )


def picture(visit: Visit, steps: list[TraceStep]) -> Picture:
    """Three columns: producers, the broker, and consumptions, each in the order they happened."""
    sent = [step for step in steps if step.kind in ("Pub", "EndTransaction", "Recall")]
    ends = {step.request_id: step for step in steps if step.kind == "SubAfter"}
    begun = [step for step in steps if step.kind == "SubBefore"]
    rows = max(len(sent), len(begun), 1)
    boxes, edges = [], []
    middle = 8 + (rows - 1) * ROW_HEIGHT // 2
    broker = next((step.broker for step in sent if step.broker), "")
    topic = next((step.topic for step in sent if step.topic), "")
    boxes.append(Box(COLUMN_WIDTH, middle, topic or visit.say("the broker"), (broker, ""), ""))
    for row, step in enumerate(sent):
        y = 8 + row * ROW_HEIGHT
        lines = (f"{step.group} · {step.client}", f"{step.detail} · {step.spent_ms} ms")
        boxes.append(Box(4, y, step.kind, lines, "good" if step.is_success else "bad"))
        edges.append(_edge(4 + BOX_WIDTH, y, COLUMN_WIDTH, middle))
    for row, step in enumerate(begun):
        y = 8 + row * ROW_HEIGHT
        end = ends.get(step.request_id)
        told = visit.say("still at it") if end is None else f"{end.detail or 'success'} · {end.spent_ms} ms"
        kind = "" if end is None else ("good" if end.is_success else "bad")
        title = (
            step.group
            if not step.retry_times
            else f"{step.group} · {visit.say('try')} {step.retry_times + 1}"
        )
        boxes.append(Box(2 * COLUMN_WIDTH, y, title, (step.client, told), kind))
        edges.append(_edge(COLUMN_WIDTH + BOX_WIDTH, middle, 2 * COLUMN_WIDTH, y))
    return Picture(2 * COLUMN_WIDTH + BOX_WIDTH + 8, rows * ROW_HEIGHT + 8, boxes, edges)


def _edge(x1: int, y1: int, x2: int, y2: int) -> str:
    from_y, to_y, half = y1 + BOX_HEIGHT // 2, y2 + BOX_HEIGHT // 2, (x1 + x2) // 2
    return f"M{x1} {from_y} C{half} {from_y} {half} {to_y} {x2} {to_y}"


PAGES = [get("/traces", trace)]
