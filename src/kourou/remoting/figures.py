"""Figures for a monitoring system, gathered when it asks and written as Prometheus reads them.

Nothing is counted for its sake: whoever has figures tells them, once a scrape. A metric has a bounded number
of series, whatever names peers think of; the rest are added up in one series whose labels say `overflow`.

The text is made by `prometheus-client`, of the extra `kourou[server]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from kourou.errors import MissingExtra

SERIES_MAX: Final = 10_000
OVERFLOW: Final = "overflow"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram"]


class Histogram:
    """How often a value was at most so much. `bounds` grow; above the last one there is one place more."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def note(self, value: float, times: int = 1) -> None:
        at = 0
        for bound in self.bounds:
            if value <= bound:
                break
            at += 1
        self.counts[at] += times
        self.total += value * times


class Figures:
    """The metrics of one scrape. `common` are labels that all of them have."""

    def __init__(self, common: dict[str, str], series_max: int = SERIES_MAX) -> None:
        self._common = common
        self._series_max = series_max
        self._metrics: dict[str, _Metric] = {}

    def counter(self, name: str, about: str, value: float, **labels: str) -> None:
        """Something that only grows; its name ends with `_total`."""
        self._add(name, "counter", about, value, labels)

    def gauge(self, name: str, about: str, value: float, **labels: str) -> None:
        self._add(name, "gauge", about, value, labels)

    def histogram(self, name: str, about: str, values: Histogram, **labels: str) -> None:
        self._add(name, "histogram", about, values, labels)

    @property
    def names(self) -> list[str]:
        return list(self._metrics)

    def labels(self, name: str) -> tuple[str, ...]:
        return self._metrics[name].labels

    def value(self, name: str, **labels: str) -> float:
        """The sum of all series of a metric with these labels."""
        metric = self._metrics[name]
        wanted = labels.items()
        return sum(
            value
            for values, value in metric.rows.items()
            if not isinstance(value, Histogram)
            and wanted <= dict(zip(metric.labels, values, strict=True)).items()
        )

    def _add(
        self, name: str, kind: Kind, about: str, value: float | Histogram, labels: dict[str, str]
    ) -> None:
        metric = self._metrics.get(name)
        if metric is None:
            metric = self._metrics[name] = _Metric(name, kind, about, (*self._common, *labels))
        values = (*self._common.values(), *labels.values())
        if len(metric.rows) >= self._series_max and values not in metric.rows:
            values = (*self._common.values(), *[OVERFLOW] * len(labels))
        known = metric.rows.get(values)
        if isinstance(value, Histogram) or isinstance(known, Histogram) or known is None:
            metric.rows[values] = value
        else:
            metric.rows[values] = known + value

    def exposition(self) -> bytes:
        """The page. Raises MissingExtra."""
        try:
            from prometheus_client import CollectorRegistry
            from prometheus_client.exposition import generate_latest
        except ImportError:
            raise MissingExtra(
                "metrics need the package prometheus-client: pip install 'kourou[server]'"
            ) from None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected([metric.family() for metric in self._metrics.values()]))
        page: bytes = generate_latest(registry)
        return page


def gathered(source: Any) -> Figures:
    """All figures of a source at once."""
    figures = Figures(*source.head)
    for _ in source.steps(figures):
        pass
    return figures


class _Metric:
    def __init__(self, name: str, kind: Kind, about: str, labels: tuple[str, ...]) -> None:
        self.name = name
        self.kind = kind
        self.about = about
        self.labels = labels
        self.rows: dict[tuple[str, ...], float | Histogram] = {}

    def family(self) -> Any:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        if self.kind == "histogram":
            histograms = HistogramMetricFamily(self.name, self.about, labels=self.labels)
            for values, row in self.rows.items():
                assert isinstance(row, Histogram)
                histograms.add_metric(values, list(_buckets(row)), row.total)
            return histograms
        kind = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = kind(self.name, self.about, labels=self.labels)
        for values, row in self.rows.items():
            assert not isinstance(row, Histogram)
            family.add_metric(values, row)
        return family


def _buckets(histogram: Histogram) -> Iterable[tuple[str, float]]:
    so_far = 0
    for bound, count in zip([*histogram.bounds, float("inf")], histogram.counts, strict=True):
        so_far += count
        yield "+Inf" if bound == float("inf") else repr(float(bound)), so_far


class _Collected:
    def __init__(self, families: list[Any]) -> None:
        self._families = families

    def collect(self) -> Iterable[Any]:
        return self._families
