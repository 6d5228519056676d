"""The metrics that operators' dashboards are built on: their names, labels and bucket bounds are fixed."""

import pytest
from prometheus_client import Histogram

from progressor import metrics

NAMESPACE = "prg_namespace"
SCANS = (50, 150, 300, 500, 750, 1000)
NOTIFICATIONS = (10, 50, 150, 300, 500, 1000)
LONG = (2500, 5000, 10_000, 30_000, 60_000)

HISTOGRAMS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "progressor_calls_scanning_duration_ms": ((NAMESPACE,), SCANS),
    "progressor_timers_scanning_duration_ms": ((NAMESPACE,), SCANS),
    "progressor_zombie_collection_duration_ms": ((NAMESPACE,), SCANS),
    "progressor_process_removing_duration_ms": ((NAMESPACE,), SCANS),
    "progressor_request_preparing_duration_ms": ((NAMESPACE, "task_type"), SCANS),
    "progressor_task_processing_duration_ms": ((NAMESPACE, "task_type"), SCANS),
    "progressor_task_completion_duration_ms": ((NAMESPACE, "completion_type"), SCANS),
    "progressor_notification_duration_ms": ((NAMESPACE, "notification_type"), NOTIFICATIONS),
}


def found() -> dict[str, Histogram]:
    every = [each for each in vars(metrics).values() if isinstance(each, Histogram)]
    return {each._name: each for each in every}


def test_exactly_these_durations() -> None:
    """There are these eight histograms of durations, and no other."""
    assert {name for name in found() if name.endswith("_duration_ms")} == set(HISTOGRAMS)


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_labels_and_buckets(name: str) -> None:
    """Labels are exactly these; bounds are these, finer ones below, and longer ones up to a minute."""
    histogram, (labels, bounds) = found()[name], HISTOGRAMS[name]
    assert histogram._labelnames == labels
    finite = [bound for bound in histogram._upper_bounds if bound != float("inf")]
    assert [bound for bound in finite if bounds[0] <= bound <= bounds[-1]] == list(bounds)
    assert [bound for bound in finite if bound > bounds[-1]] == list(LONG)
