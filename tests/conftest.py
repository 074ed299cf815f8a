"""What every test shares: Hypothesis that prints how to repeat a failure and does not race the clock."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "kourou",
    deadline=None,  # a busy machine is not a bug
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("kourou")
