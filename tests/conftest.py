"""What every test shares: Hypothesis that prints how to repeat a failure and does not race the clock."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "kourou",
    deadline=None,  # a busy machine is not a bug
    derandomize=True,  # the same examples for everybody; `make fuzz` looks for others
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore", parent=settings.get_profile("kourou"), derandomize=False, max_examples=2000
)
settings.load_profile("kourou")
