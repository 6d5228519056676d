"""Names that somebody may have meant."""

from __future__ import annotations

import pytest

from progressor.errors import InvalidRequest, NamespaceNotFound
from progressor.inputs import names_like, nearest_names
from progressor.rights import Scope, check_scopes


def test_the_nearest_stand_first() -> None:
    """Of many names also one that is not among the first; what is not alike is no suggestion."""
    many = [f"a{number:02}" for number in range(30)] + ["payment"]
    assert nearest_names("paymnet", many) == ("payment",)
    assert names_like("paymnet", many).startswith("payment, a00, a01, ")
    assert names_like("paymnet", many).endswith(" and 21 more")
    assert nearest_names("zzz", many) == ()
    assert names_like("pay", []) == "none"


def test_a_scope_is_refused_with_the_nearest() -> None:
    """The one that was meant stands first."""
    with pytest.raises(InvalidRequest, match="scopes must be some of processes:read, ") as caught:
        check_scopes("scopes", ["processes:raed"])
    assert caught.value.field == "scopes"
    assert check_scopes("scopes", ["all"]) == frozenset(Scope)


def test_the_text_of_an_unknown_namespace_has_three_at_most() -> None:
    """All that are alike are an attribute."""
    similar = tuple(f"billing.{letter}" for letter in "abcd")
    error = NamespaceNotFound("billing.x", similar)
    assert "(did you mean 'billing.a' or 'billing.b' or 'billing.c'?)" in str(error)
    assert error.similar == similar
    assert "did you mean" not in str(NamespaceNotFound("billing.x"))
