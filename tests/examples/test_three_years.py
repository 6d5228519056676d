"""The three years of `examples/three_years`: engine and calculation agree, and the check finds a cent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from examples.three_years import plan
from examples.three_years.__main__ import main
from examples.three_years.calculation import Life, life_of
from examples.three_years.check import compare
from examples.three_years.provider import Charge
from examples.three_years.years import Years


def test_the_engine_agrees_with_the_calculation(
    dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the cent, in every line, with every kind of trouble among so few customers."""
    monkeypatch.setenv("PROGRESSOR_DATABASE_URL", dsn)

    assert main(["25"]) == 0
    said = capsys.readouterr().out
    assert said.endswith("All agree, to the cent.\n")
    assert "DIFFERS" not in said
    table = [line.split() for line in said.splitlines()]
    assert [each for each in table if each[-2:] == ["0", "0"]] == []


def test_a_calculation_that_differs_by_a_cent_is_found(
    dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The handlers have a price of their own release; the example fails."""
    monkeypatch.setenv("PROGRESSOR_DATABASE_URL", dsn)
    (first, *_) = plan.customers(3, seed=1)
    monkeypatch.setattr(plan, "PRICES", {**plan.PRICES, first.plan: plan.PRICES[first.plan] + 1})

    assert main(["3"]) == 1
    said = capsys.readouterr().out
    assert said.endswith("NOT ALL AGREE.\n")
    assert f"{first.name}: charged " in said


def test_each_seed_draws_customers_of_its_own() -> None:
    """And the same again."""
    assert plan.customers(5, seed=1) == plan.customers(5, seed=1) != plan.customers(5, seed=2)


CUSTOMERS = plan.customers(3, seed=1)


def years_of(lives: Sequence[Life]) -> Years:
    """Return years that agree with these lives, as an engine would have them."""
    book = [
        Charge(life.name, fact.month, fact.cents, paid=True)
        for life in lives
        for fact in life.facts
        if fact.name == "paid"
    ]
    breaks = sum(life.breaks for life in lives)
    return Years(
        {life.name: life for life in lives}, book, sum(life.failures for life in lives), breaks, breaks
    )


def without(years: Years, event: str) -> Years:
    """Return the years without the first event of this name of the first customer."""
    name, life = next(iter(years.lives.items()))
    lost = next(fact for fact in life.facts if fact.name == event)
    left = replace(life, facts=[fact for fact in life.facts if fact is not lost])
    return replace(years, lives={**years.lives, name: left})


def twice(years: Years) -> Years:
    """Return the years with the first customer's first invoice made twice."""
    name, life = next(iter(years.lives.items()))
    first = next(fact for fact in life.facts if fact.name == "invoiced")
    return replace(years, lives={**years.lives, name: replace(life, facts=[*life.facts, first])})


DAMAGES: list[tuple[Callable[[Years], Years], str]] = [
    (lambda years: without(years, "invoiced"), "lost the nominal time"),
    (twice, "once too often for the nominal time"),
    (lambda years: without(years, "reminded"), "the engine has"),
    (lambda years: replace(years, book=[*years.book, years.book[0]]), "too often"),
    (lambda years: replace(years, book=years.book[1:]), "never charged"),
    (lambda years: replace(years, book=[replace(years.book[0], cents=1), *years.book[1:]]), "1 cents of"),
    (lambda years: replace(years, lives={}), "lost"),
    (lambda years: replace(years, lives={**years.lives, "x": Life("x")}), "nobody knows of it"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
def test_the_check_finds(damage: Callable[[Years], Years], words: str) -> None:
    """Each kind of damage, where all else agrees; and there is none without it."""
    expected = [life_of(customer) for customer in CUSTOMERS]
    years = years_of(expected)
    assert compare(years, expected).agrees

    report = compare(damage(years), expected)
    assert not report.agrees
    assert any(words in difference for difference in report.differences)


@pytest.mark.parametrize("count", ["failures", "broken", "repaired"])
def test_the_check_finds_a_wrong_count(count: str) -> None:
    """Of what no history tells."""
    expected = [life_of(customer) for customer in CUSTOMERS]
    years = years_of(expected)
    assert not compare(replace(years, **{count: getattr(years, count) + 1}), expected).agrees
