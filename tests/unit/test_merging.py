"""The metrics of several OS processes as those of one command."""

from __future__ import annotations

import json
import math

from progressor import metrics
from progressor.deployment.merged_metrics import merged, read
from progressor.metrics import Family, Sample


def _counter(value: float, *, created: float = 5.0) -> Family:
    samples = [
        Sample("orders_total", {"kind": "a"}, value),
        Sample("orders_created", {"kind": "a"}, created),
    ]
    return Family("orders", "Orders", "counter", "", samples)


def _gauge(value: float) -> Family:
    return Family("level", "Level", "gauge", "", [Sample("level", {"kind": "a"}, value)])


def test_what_only_grows_is_added_up() -> None:
    """That of the dead too; it began when the first began."""
    (family,) = merged([[_counter(1)], [_counter(2, created=3.0)]], {1: [_counter(4)], 2: [_counter(8)]})
    assert family == _counter(15, created=3.0)


def test_what_goes_up_and_down_is_of_one_child() -> None:
    """That of the dead is gone."""
    (family,) = merged([[_gauge(1)]], {1: [_gauge(2)], 2: [_gauge(math.nan)]})
    assert [each.labels for each in family.samples] == [
        {"kind": "a", "child": "1"},
        {"kind": "a", "child": "2"},
    ]
    assert family.samples[0].value == 2
    assert math.isnan(family.samples[1].value)


def test_labels_that_one_child_alone_has_are_kept() -> None:
    """Children need not have done the same."""
    other = Family("orders", "Orders", "counter", "", [Sample("orders_total", {"kind": "b"}, 1.0)])
    (family,) = merged([], {1: [_counter(1)], 2: [other]})
    assert family.samples == [*_counter(1).samples, *other.samples]


def test_all_of_ours_survive_the_journey() -> None:
    """Two children that count the same show twice as much, in both formats of the exposition."""
    metrics.took(metrics.TASK_PROCESSING, 0, "merging", "call")
    own = metrics.families()
    travelled = read(json.loads(json.dumps(own)))
    both = merged([], {1: travelled, 2: travelled})

    def count(families: object) -> list[float]:
        wanted = {"prg_namespace": "merging", "task_type": "call"}
        assert isinstance(families, list)
        return [
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == "progressor_task_processing_duration_ms_count" and sample.labels == wanted
        ]

    assert count(both) == [2 * each for each in count(own)] != []
    for accept in ("", "application/openmetrics-text"):
        text, _ = metrics.exposition(accept, both)
        assert text.count(b"# TYPE progressor_task_processing_duration_ms histogram") == 1
        assert text.count(b'child="2"') == text.count(b'child="1"') > 0
