"""Rights: patterns fit what they say, scopes are read or refused, and a secret is in no text."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from progressor.errors import InvalidRequest
from progressor.loggers import without_passwords
from progressor.rights import (
    EVERYTHING,
    Bearer,
    Rights,
    Scope,
    Token,
    check_patterns,
    check_scopes,
    fits,
    hash_of,
)


@pytest.mark.parametrize(
    ("pattern", "namespace", "wanted"),
    [
        ("*", "billing", True),
        ("billing", "billing", True),
        ("billing", "billing.sub", False),
        ("billing.*", "billing.sub", True),
        ("billing.*", "billing", False),
        ("billing.*", "billingXsub", False),
        ("*.eu", "shop.eu", True),
        ("*.eu", "shop.eu.old", False),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("shop.*.eu", "shop.cart.eu", True),
        ("shop.*.eu", "shop.eu", False),
    ],
)
def test_patterns(pattern: str, namespace: str, wanted: bool) -> None:
    """A star stands for any characters, and everything else for itself."""
    assert fits(pattern, namespace) is wanted


@given(st.text("ab.*", min_size=1, max_size=8), st.text("ab.", min_size=1, max_size=8))
def test_a_pattern_is_a_regular_expression_with_stars(pattern: str, namespace: str) -> None:
    """What fits in one pass is what a regular expression says."""
    regex = ".*".join(re.escape(part) for part in pattern.split("*"))
    assert fits(pattern, namespace) is (re.fullmatch(regex, namespace) is not None)


def test_a_pattern_of_many_stars_costs_one_pass() -> None:
    """It is not tried in every way in which it could fit."""
    assert not fits("*a" * 120 + "b", "a" * 256)


def test_scopes_are_read_or_refused_by_name() -> None:
    """`all` is what there is today; no scope, or one that is not there, is refused."""
    assert check_scopes("scopes", ["bulk", "state:read"]) == {Scope.BULK, Scope.STATE_READ}
    assert check_scopes("scopes", ["all"]) == frozenset(Scope)
    for wrong in ([], ["everything"], ["processes:*"], [""]):
        with pytest.raises(InvalidRequest) as caught:
            check_scopes("scopes", wrong)
        assert caught.value.field == "scopes"


def test_patterns_are_read_or_refused_by_name() -> None:
    """What no namespace can be named like is a mistake."""
    assert check_patterns("namespaces", ["billing.*", "*", "billing.*"]) == ("billing.*", "*")
    for wrong in ([], [""], ["b l"], [".x"], ["a" * 257], ["a/b"], ["é*"], [f"n{i}" for i in range(101)]):
        with pytest.raises(InvalidRequest) as caught:
            check_patterns("namespaces", wrong)
        assert caught.value.field == "namespaces"


def test_no_scope_contains_another() -> None:
    """A caller has what was granted, where it was granted."""
    rights = Rights(frozenset({Scope.ADMIN}), ("billing.*", "shop"))
    assert rights.scopes == {Scope.ADMIN}
    assert rights.sees("billing.sub")
    assert rights.sees("shop")
    assert not rights.sees("shopping")
    assert not rights.sees_all
    assert EVERYTHING.sees_all


def test_a_token_reads_back_and_shows_its_id_alone() -> None:
    """The text has both parts; no representation has the secret, and logs strike it out."""
    bearer = Bearer.drawn()
    assert Bearer.read(bearer.text) == bearer
    assert bearer.secret not in repr(bearer)
    assert bearer.secret not in str(bearer)
    token = Token(
        bearer.token_id, "x", EVERYTHING, datetime(2026, 1, 1, tzinfo=UTC), None, None, None, None,
        hash_of(bearer.secret),
    )  # fmt: skip
    assert token.has_secret(bearer.secret)
    assert not token.has_secret(bearer.secret[:-1])
    assert "secret_hash" not in repr(token)
    struck = without_passwords(f"Bearer {bearer.text} of {bearer.token_id}")
    assert struck == f"Bearer prg_{bearer.token_id}_*** of {bearer.token_id}"


@pytest.mark.parametrize("text", ["", "prg_", "prg_a_b", "Bearer x", "prg_" + "0" * 16 + "_" + "G" * 64])
def test_what_is_no_token_is_none(text: str) -> None:
    """Whatever it is."""
    assert Bearer.read(text) is None


def test_two_tokens_are_never_the_same() -> None:
    """They are drawn at random."""
    assert Bearer.drawn() != Bearer.drawn()
