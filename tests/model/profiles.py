"""How long the model-based tests search: HYPOTHESIS_PROFILE=quick (the default, `make test`) or deep.

Rule: quick tries the same examples each time, so that a failure comes from the change; deep tries new ones.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_ANY = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
DEEP = os.environ.get("HYPOTHESIS_PROFILE", "quick") == "deep"
# Every variant of every test, as `make test-matrix` runs them.
WHOLE = DEEP or os.environ.get("PROGRESSOR_TEST_WHOLE") == "1"


def profile(*, quick: int, deep: int, steps: int) -> settings:
    """So many examples, of at most so many steps."""
    if DEEP:
        return settings(_ANY, max_examples=deep, stateful_step_count=steps)
    return settings(_ANY, max_examples=quick, stateful_step_count=steps, derandomize=True, database=None)
