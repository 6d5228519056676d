"""Fields of a stored state that its type does not know, when a handler changes the state."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic.dataclasses import dataclass as checked_dataclass
from typing_extensions import TypedDict

from progressor.errors import InvalidState
from progressor.handlers.codec import JSON, Wire
from progressor.handlers.process import Draft, WritableProcess
from progressor.handlers.state.shape import StateShape

Stored = dict[str, Any]


class Address(BaseModel):
    city: str


@dataclasses.dataclass
class Card:
    last: str


class Limits(TypedDict):
    daily: int


class Account(BaseModel):
    n: int = 0
    address: Address | None = None
    card: Card | None = None
    limits: Limits | None = None
    addresses: list[Address] = []
    by_name: dict[str, Address] = {}


class Line(BaseModel):
    text: str
    below: "Line | None" = None


class Renamed(BaseModel):
    n: int = 0
    tariff: str

    @model_validator(mode="before")
    @classmethod
    def _from_plan(cls, stored: Any) -> Any:
        if "plan" in stored:
            stored = {"tariff": stored["plan"], **{k: v for k, v in stored.items() if k != "plan"}}
        return {**stored, "made_up": 1}


class Aliased(BaseModel):
    n: int = Field(0, alias="number")
    address: Address = Field(alias="Address")


class Ignoring(BaseModel):
    model_config = ConfigDict(extra="ignore")
    n: int = 0


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int = 0
    address: Address | None = None


@dataclasses.dataclass
class Plain:
    n: int = 0


@checked_dataclass
class Checked:
    n: int = 0


class Counted(TypedDict):
    n: int


class Cash(BaseModel):
    kind: Literal["cash"] = "cash"
    n: int = 0


class Mixed(BaseModel):
    n: int = 0
    paid: Cash | Address | None = None


def _lenient(value: Any, read: Callable[[Any], Any]) -> Any:
    with suppress(ValidationError):
        return read(value)
    return Address(city="nowhere")


class Lenient(BaseModel):
    n: int = 0
    address: Annotated[Address, WrapValidator(_lenient)]


@pytest.fixture
def after(make_task: Any, make_snapshot: Any) -> Callable[..., Any]:
    """The stored state after a handler, None if the handler saved none."""

    def run(state: Any, stored: Any, change: Callable[[WritableProcess[Any]], None]) -> Any:
        snapshot = make_snapshot(
            aux_state=stored if isinstance(stored, bytes) else json.dumps(stored).encode()
        )
        shape = StateShape(state)
        process: WritableProcess[Any] = WritableProcess(
            snapshot, make_task(), wire=JSON, shape=shape, draft=Draft()
        )
        change(process)
        saved = process.intent(None).aux_state
        return None if saved is None else json.loads(saved)

    return run


def _count(process: WritableProcess[Any]) -> None:
    if isinstance(process.state, dict):
        process.state["n"] += 1
    else:
        process.state.n += 1


@pytest.mark.parametrize(
    ("state", "stored"),
    [
        (Account, {"coupon": {"code": "x", "off": 0.1}}),
        (Plain, {"coupon": 1}),
        (Checked, {"coupon": 1}),
        (Counted, {"coupon": 1}),
        (Open, {"coupon": 1, "address": {"city": "Rome", "zip": "0"}}),
        (Account, {"address": {"city": "Rome", "zip": "0"}}),
        (Account, {"card": {"last": "4711", "brand": "v"}, "limits": {"daily": 1, "monthly": 2}}),
        (Mixed, {"coupon": 1, "paid": {"city": "Rome"}}),
        (Lenient, {"coupon": 1, "address": {"city": "Rome"}}),
        (dict[str, Any], {"coupon": 1}),
    ],
)
def test_unknown_fields_are_kept(after: Any, state: Any, stored: Stored) -> None:
    """In the state itself, and in the models, dataclasses and typed dicts within it."""
    found = after(state, {"n": 1, **stored}, _count)
    assert {key: found[key] for key in ("n", *stored)} == {"n": 2, **stored}


@pytest.mark.parametrize(
    ("state", "stored"), [(Account, {"n": 1, "coupon": 1, "address": {"zip": 1, "city": "Rome"}})]
)
def test_a_state_that_did_not_change_is_not_saved(after: Any, state: Any, stored: Stored) -> None:
    """Also if a worker of another version wrote its fields in another order."""
    full = json.loads(state(**stored).model_dump_json()) | stored
    assert after(state, full, lambda process: process.state) is None


def test_a_linked_model_keeps_its_fields(after: Any) -> None:
    """At any depth, also of a model that holds models of its own class."""

    def change(process: WritableProcess[Any]) -> None:
        process.state.below.text = "c"

    stored: Any = {
        "text": "a",
        "below": {"text": "b", "below": {"text": "x", "size": 3}, "size": 2},
        "size": 1,
    }
    found = after(Line, stored, change)
    assert found["below"].pop("text") == "c"
    del found["below"]["below"]["below"], stored["below"]["text"]
    assert found == stored


def test_fields_under_their_aliases_are_known(after: Any) -> None:
    """A state may have been written by hand, under the aliases of its fields."""
    found = after(Aliased, {"number": 1, "Address": {"city": "Rome", "zip": 1}, "coupon": 1}, _count)
    assert found == {"n": 2, "address": {"city": "Rome", "zip": 1}, "coupon": 1}


def test_a_field_that_a_validator_takes_is_not_kept(after: Any) -> None:
    """It would be taken again, and undo a change. One that a validator makes up is not stored either."""
    found = after(Renamed, {"n": 1, "plan": "pro", "coupon": 1}, _count)
    assert found == {"n": 2, "tariff": "pro", "coupon": 1}


def test_a_model_that_says_ignore_drops_them(after: Any) -> None:
    """`extra="ignore"` in a model's own config is its author's word."""
    assert after(Ignoring, {"n": 1, "coupon": 1}, _count) == {"n": 2}


def test_a_model_that_forbids_them_raises(after: Any) -> None:
    """As before."""

    class Closed(Account):
        model_config = ConfigDict(extra="forbid")

    with pytest.raises(InvalidState, match=r"state\.coupon: Extra inputs are not permitted"):
        after(Closed, {"n": 1, "coupon": 1}, _count)


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize(
    ("state", "fresh"), [(Account, Account(n=9)), (Plain, Plain(n=9)), (Counted, {"n": 9})]
)
def test_a_new_state_of_the_same_type_keeps_them(
    after: Any, state: Any, fresh: Any, *, is_read: bool
) -> None:
    """A handler need not have read the state that it replaces."""

    def replace(process: WritableProcess[Any]) -> None:
        assert not is_read or process.state is not None
        process.state = fresh

    found = after(state, {"n": 1, "coupon": 1}, replace)
    assert (found["n"], found["coupon"]) == (9, 1)


def test_a_state_that_cannot_be_read_is_replaced_whole(after: Any) -> None:
    """Nobody can tell which of its fields are known."""

    def replace(process: WritableProcess[Any]) -> None:
        process.state = Plain(n=9)

    assert after(Plain, {"n": "many", "coupon": 1}, replace) == {"n": 9}


def test_a_new_state_of_another_class_begins_without(after: Any) -> None:
    """Unknown fields of a state belong to its class."""

    class Gold(Account):
        pass

    def replace(process: WritableProcess[Any]) -> None:
        assert process.state.n == 1
        process.state = Gold(n=9)

    assert "coupon" not in after(Account, {"n": 1, "coupon": 1}, replace)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_new_model_within_a_state_begins_without(after: Any, *, is_new: bool) -> None:
    """The postal code of one address is not that of the next."""

    def move(process: WritableProcess[Any]) -> None:
        old = process.state.address
        address = Address(city="Bonn") if is_new else old
        process.state = process.state.model_copy(update={"n": 2, "address": address})

    found = after(Account, {"n": 1, "address": {"city": "Rome", "zip": 1}, "coupon": 1}, move)
    assert found["coupon"] == 1
    assert found["address"] == ({"city": "Bonn"} if is_new else {"city": "Rome", "zip": 1})


@pytest.mark.parametrize(
    ("state", "stored"),
    [
        (Account, {"addresses": [{"city": "Rome", "zip": 1}]}),
        (Account, {"by_name": {"home": {"city": "Rome", "zip": 1}}}),
        (Mixed, {"paid": {"city": "Rome", "zip": 1}}),
        (Lenient, {"address": {"city": "Rome", "zip": 1}}),
    ],
)
def test_items_and_members_of_unions_keep_none(after: Any, state: Any, stored: Stored) -> None:
    """Nobody can tell to which item of a changed list a field belonged; the known fields stay."""
    found = after(state, {"n": 1, **stored}, _count)
    assert "Rome" in json.dumps(found)
    assert "zip" not in json.dumps(found)


def test_a_root_model_has_no_fields(after: Any) -> None:
    """It is written as what it holds."""

    def change(process: WritableProcess[Any]) -> None:
        process.state.root.n = 2

    found = after(RootModel[Account], {"n": 1, "coupon": 1}, change)
    assert found["n"] == 2


def test_a_codec_that_cannot_read_the_old_state(make_task: Any, make_snapshot: Any) -> None:
    """The state is replaced unread, as ever."""

    class Lost:
        def encode(self, data: bytes) -> bytes:
            return data

        def decode(self, data: bytes) -> bytes:
            raise KeyError

    process: WritableProcess[Any] = WritableProcess(
        make_snapshot(aux_state=b"?"),
        make_task(),
        wire=Wire(Lost()),
        shape=StateShape(Plain),
        draft=Draft(),
    )
    process.state = Plain(n=9)
    assert process.intent(None).aux_state == b'{"n":9}'


def test_values_of_a_user_are_no_schema(after: Any) -> None:
    """A default value may look like a part of a schema, and hold itself."""
    odd: dict[str, Any] = {"type": "union"}
    odd["self"] = odd

    class Odd(BaseModel):
        n: int = 0
        more: Mapping[str, Any] = Field(odd, exclude=True)

    assert after(Odd, {"n": 1, "coupon": 1}, _count) == {"n": 2, "coupon": 1}
