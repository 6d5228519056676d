"""Options are checked when they are stated, by errors that name the field."""

from datetime import timedelta
from typing import Any

import pytest

from progressor import Client
from progressor.config import ConnectionOptions, EngineOptions, NamespaceOptions, Rate, RetryPolicy
from progressor.errors import InvalidRequest
from progressor.handlers.handler import Keywords

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("initial_interval", timedelta(0)),
        ("initial_interval", "soon"),
        ("max_interval", timedelta(seconds=-1)),
        ("backoff_coefficient", 0.5),
        ("backoff_coefficient", float("inf")),
        ("backoff_coefficient", float("nan")),
        ("max_attempts", 0),
        ("max_tries", 3),
    ],
)
def test_retry_policy_names_the_wrong_field(field: str, value: Any) -> None:
    """A retry policy that makes no sense is refused."""
    with pytest.raises(InvalidRequest, match=rf"^RetryPolicy\.{field}: ") as caught:
        RetryPolicy(**{field: value})
    assert caught.value.field == field


@pytest.mark.parametrize("value", [(3,), (int,), ("",)])
def test_non_retryable_takes_exceptions_and_names(value: Any) -> None:
    """Anything but an exception class or a name is refused."""
    with pytest.raises(InvalidRequest, match=r"^RetryPolicy\.non_retryable"):
        RetryPolicy(non_retryable=value)
    assert RetryPolicy(non_retryable=(KeyError, "MyError")).non_retryable == ("KeyError", "MyError")


def test_retry_policies_by_place() -> None:
    """The five values may be given in their order; one given twice, or too many, are refused."""
    minute = timedelta(minutes=1)
    policy = RetryPolicy(timedelta(seconds=2), 3.0, minute, 4, (KeyError,))
    assert policy == RetryPolicy(
        initial_interval=timedelta(seconds=2),
        backoff_coefficient=3.0,
        max_interval=minute,
        max_attempts=4,
        non_retryable=(KeyError,),
    )
    with pytest.raises(InvalidRequest, match=r"^RetryPolicy takes 5 values"):
        RetryPolicy(minute, initial_interval=minute)  # type: ignore[misc]
    with pytest.raises(InvalidRequest, match=r"^RetryPolicy takes 5 values"):
        RetryPolicy(minute, 3.0, minute, 4, (), 5)  # type: ignore[call-arg]
    with pytest.raises(InvalidRequest, match=r"^EngineOptions takes 0 values"):
        EngineOptions(minute)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step_timeout", timedelta(0)),
        ("concurrency", 0),
        ("on_zombie", "ignore"),
        ("zombie_attempts", 0),
        ("zombie_attempts", 1_000_001),
        ("history", "all"),
        ("retry_policy", 3),
    ],
)
def test_namespace_options_name_the_wrong_field(field: str, value: Any) -> None:
    """Options of a namespace that make no sense are refused."""
    with pytest.raises(InvalidRequest, match=rf"^NamespaceOptions\.{field}") as caught:
        NamespaceOptions(**{field: value})
    assert str(caught.value.field).startswith(field)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"limit": 0, "per": SECOND}, "limit"),
        ({"limit": 1_000_001, "per": SECOND}, "limit"),
        ({"limit": "many", "per": SECOND}, "limit"),
        ({"limit": 1, "per": timedelta(0)}, "per"),
        ({"limit": 1, "per": -SECOND}, "per"),
        ({"limit": 1, "per": timedelta.max}, "per"),
        ({"limit": 1, "per": "often"}, "per"),
        ({"limit": 1, "per": SECOND, "burst": 0}, "burst"),
        ({"limit": 1, "per": SECOND, "burst": 2**62}, "burst"),
        ({"limit": 100_001, "per": SECOND}, "options"),
        ({"limit": 1, "per": timedelta(days=31), "burst": 118}, "options"),
    ],
)
def test_a_rate_names_the_wrong_field(values: dict[str, Any], field: str) -> None:
    """A rate that nobody could keep is refused."""
    with pytest.raises(InvalidRequest, match=rf"^Rate\.{field}: ") as caught:
        Rate(**values)
    assert caught.value.field == field


def test_a_rate_as_it_is_stored() -> None:
    """As JSON, and back; with the burst that it has if none is given."""
    options = NamespaceOptions(rate=Rate(100, per=timedelta(milliseconds=500)), group_rate=None)
    assert options.model_dump(mode="json")["rate"] == {"limit": 100, "per": "PT0.5S", "burst": 100}
    assert NamespaceOptions.model_validate_json(options.model_dump_json()) == options


def test_the_interval_of_a_rate() -> None:
    """Whole microseconds, and never too few of them."""
    assert Rate(100, per=SECOND).interval == timedelta(milliseconds=10)
    assert Rate(7, per=SECOND).interval == timedelta(microseconds=142_858)
    assert Rate(1, per=timedelta(days=31)).interval == timedelta(days=31)


MEASURES = [
    (options, name)
    for options in (RetryPolicy, NamespaceOptions, EngineOptions)
    for name, field in options.model_fields.items()
    if field.annotation in (timedelta, int, float, int | None)
]


@pytest.mark.parametrize(("options", "name"), MEASURES, ids=[name for _, name in MEASURES])
def test_every_measure_has_an_upper_bound(options: Any, name: str) -> None:
    """No number and no duration is so large that PostgreSQL or a clock could not count with it."""
    largest = timedelta.max if options.model_fields[name].annotation is timedelta else 2**62
    with pytest.raises(InvalidRequest) as caught:
        options(**{name: largest})
    assert caught.value.field == name


def test_options_are_frozen() -> None:
    """Options cannot change under a running worker."""
    with pytest.raises(ValueError, match="frozen"):
        RetryPolicy().max_attempts = 3  # type: ignore[misc]


@pytest.mark.parametrize("options", [{"lease_age": 8.9}, {"heartbeat_interval": 5.1}])
def test_a_worker_beats_three_times_a_lease(options: dict[str, float]) -> None:
    """A heartbeat that is rarer is refused, whichever of the two was stated."""
    with pytest.raises(InvalidRequest, match=r"^EngineOptions\.heartbeat_interval: .*a third of lease_age"):
        EngineOptions(**options)
    assert EngineOptions(lease_age=9).heartbeat_interval == timedelta(seconds=3)


def test_a_listener_needs_signals() -> None:
    """A URL to listen at contradicts signals that are off; neither error nor repr shows it."""
    url = "postgresql://me:hush@db1/shop"
    with pytest.raises(InvalidRequest, match=r"listen_database_url: .*needs signals") as caught:
        ConnectionOptions(signals=False, listen_database_url=url)
    assert caught.value.field == "listen_database_url"
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(ConnectionOptions(listen_database_url=url))


def test_sessions_of_a_pooler_keep_no_state() -> None:
    """Whoever listens past a pooler, or not at all, leaves nothing in other sessions."""
    assert ConnectionOptions().session_state
    assert not ConnectionOptions(signals=False).session_state
    assert not ConnectionOptions(listen_database_url="postgresql://db1/shop").session_state


def test_a_listener_url_that_is_none_is_refused_by_its_name() -> None:
    """Without its text, which may hold a password."""
    with pytest.raises(InvalidRequest) as caught:
        Client("postgresql://db1/shop", listen_database_url="nothing://hush@db1")
    assert caught.value.field == "listen_database_url"
    assert "hush" not in str(caught.value)


def test_type_checkers_know_every_option_of_a_namespace() -> None:
    """An option that is missing among the keywords is an error of mypy where it is used."""
    assert set(NamespaceOptions.model_fields) <= set(Keywords.__annotations__)
