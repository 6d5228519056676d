"""Forms for arguments: what fields a schema gives, and what value submitted fields state."""

from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from progressor.client.results import Published
from progressor.errors import InvalidRequest
from progressor.web.forms import ArgsForm, call_form, fields_of, repair_form, skeleton_of


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    city: str


class Item(BaseModel):
    gift: bool = False
    note: str | None = None
    sku: str = Field(description="As the warehouse has it.")
    amount: int = Field(ge=1, le=100)
    price: Decimal = Decimal("1.5")
    weight: float | None = None
    size: Literal["S", "M"] = "M"
    colour: Colour = Colour.RED
    due: date | None = None
    sure: bool | None = None


class Order(BaseModel):
    address: Address
    lines: list[Item]


FILLED = {"args.sku": "a", "args.amount": "7"}


def form_of(kind: Any) -> ArgsForm:
    return ArgsForm.of(TypeAdapter(kind).json_schema())


def read(kind: Any, **submitted: str) -> Any:
    return form_of(kind).read({f"args.{name}": text for name, text in submitted.items()})


def refused(kind: Any, **submitted: str) -> tuple[str, str | None]:
    with pytest.raises(InvalidRequest) as caught:
        read(kind, **submitted)
    return str(caught.value), caught.value.field


@pytest.mark.parametrize(
    ("options", "has_repair"),
    [({}, None), ({"has_repair": True}, True), ({"has_repair": False}, False), ({"raw": True}, None)],
)
def test_whether_there_is_a_repair_handler(options: dict[str, Any], has_repair: bool | None) -> None:
    """Workers say it in the options of the namespace, but for one that is served in bytes."""
    published = Published("n", False, {"has_repair": None, **options}, {})
    assert published.has_repair is has_repair


def test_a_flat_object_has_a_field_for_each_member_required_ones_first() -> None:
    """Each scalar member has a field of its kind."""
    fields = form_of(Item).fields
    assert fields is not None
    assert [(each.name, each.kind) for each in fields] == [
        ("sku", "text"),
        ("amount", "whole"),
        ("gift", "flag"),
        ("note", "text"),
        ("price", "exact"),
        ("weight", "number"),
        ("size", "choice"),
        ("colour", "choice"),
        ("due", "text"),
        ("sure", "choice"),
    ]
    assert [each.name for each in fields if each.is_required] == ["sku", "amount"]


def test_a_field_says_what_it_takes() -> None:
    """The note names the limits, the default, the format, and the description of the schema."""
    notes = {each.name: each.note for each in form_of(Item).fields or ()}
    assert notes == {
        "sku": "required. As the warehouse has it.",
        "amount": "required, a whole number, at least 1, at most 100",
        "gift": "",
        "note": "may stay empty",
        "price": "1.5 if empty, a number",
        "weight": "may stay empty, a number",
        "size": "M if empty",
        "colour": "red if empty",
        "due": "may stay empty, as 2026-01-31",
        "sure": "may stay empty",
    }


def test_fields_that_are_left_empty_are_left_out() -> None:
    """An optional field without a text is not a member; a flag always is one."""
    assert form_of(Item).read(FILLED) == {"sku": "a", "amount": 7, "gift": False}


def test_each_field_becomes_a_value_of_its_kind() -> None:
    """Texts stay texts, numbers become numbers, choices become what they stand for."""
    assert read(
        Item,
        sku=" a ",
        amount="7",
        gift="on",
        note="n",
        price="0.10",
        weight="1.5",
        size='"S"',
        sure="false",
    ) == {
        "sku": " a ",
        "amount": 7,
        "gift": True,
        "note": "n",
        "price": "0.10",
        "weight": 1.5,
        "size": "S",
        "sure": False,
    }


def test_a_number_keeps_all_its_digits() -> None:
    """A whole number of any length and a Decimal arrive as they were typed."""
    long = "12345678901234567890123"
    assert read(int, **{"": long}) == int(long)
    assert read(Item, sku="a", amount="1", price=f"0.{long}")["price"] == f"0.{long}"


@pytest.mark.parametrize("text", ["x", "1.5", "1e3", "0x10", "1_000", "\u0661", "--1", " ", "9" * 2000])
def test_what_is_no_whole_number_is_refused_by_name(text: str) -> None:
    """The error names the field and the rule."""
    assert refused(Item, sku="a", amount=text) == (
        "args.amount must be a whole number, such as 17",
        "args.amount",
    )


@pytest.mark.parametrize("text", ["x", "nan", "inf", "1e999", "1,5", "0x1p3", "1_0.5"])
def test_what_is_no_number_is_refused_by_name(text: str) -> None:
    """Only finite decimal numbers pass."""
    message, field = refused(Item, sku="a", amount="1", weight=text)
    assert (message, field) == ("args.weight must be a number, such as 17 or 1.5", "args.weight")


def test_a_required_field_must_be_filled() -> None:
    """The first field that lacks a value is named."""
    assert refused(Item, amount="7") == ("args.sku is required", "args.sku")
    assert refused(int) == ("args is required", "args")


def test_only_what_the_schema_lists_can_be_chosen() -> None:
    """A value beside the choices is refused, whatever a browser sent."""
    assert refused(Item, sku="a", amount="7", size='"XL"')[0] == "args.size must be one of S, M"


def test_arguments_that_are_one_value_have_one_field() -> None:
    """A scalar alone is the whole value, and null if it may be empty."""
    assert read(str, **{"": "hello"}) == "hello"
    assert read(bool, **{"": "on"}) is True
    assert read(Literal[1, 2], **{"": "2"}) == 2
    assert read(int | None) is None


def test_a_required_member_that_takes_null_is_null_if_it_is_empty() -> None:
    """It is stated, for a schema asks for it."""

    class Late(BaseModel):
        until: str | None

    assert read(Late) == {"until": None}


@pytest.mark.parametrize(
    "kind", [Order, list[int], dict[str, int], int | str, Any, Address | int, list[str] | None]
)
def test_other_arguments_are_written_as_json(kind: Any) -> None:
    """What fields cannot state has none."""
    form = form_of(kind)
    assert form.fields is None
    assert form.read({"args": ' {"a": [1]} '}) == {"a": [1]}
    assert form.read({"args": " "}) is None


def test_json_counts_before_fields() -> None:
    """Whoever writes JSON means it."""
    assert form_of(Item).read({**FILLED, "args": '{"sku": ""}'}) == {"sku": ""}


def test_json_that_is_none_is_refused() -> None:
    """The error names the arguments."""
    with pytest.raises(InvalidRequest, match="args is not JSON") as caught:
        form_of(Order).read({"args": "{"})
    assert caught.value.field == "args"


def test_a_handler_without_arguments_has_no_fields() -> None:
    """Nothing is sent, unless JSON is."""
    assert ArgsForm.of(None) == ((), False, "")
    assert ArgsForm.of(None).read({}) is None
    assert ArgsForm.of(None).read({"args": "1"}) == 1


def test_a_model_without_members_is_an_empty_object() -> None:
    """The handler takes an object, so it gets one."""

    class Nothing(BaseModel):
        pass

    assert read(Nothing) == {}


def test_the_skeleton_shows_all_members() -> None:
    """Defaults stand as they are, other values as the emptiest of their type."""

    class Line(BaseModel):
        sku: str
        tags: list[str] = []

    class Basket(BaseModel):
        lines: list[Line]
        to: Address | None
        colour: Colour
        amount: int

    expected = """{
  "lines": [
    {
      "sku": "",
      "tags": []
    }
  ],
  "to": {
    "city": ""
  },
  "colour": "red",
  "amount": 0
}"""
    assert form_of(Basket).skeleton == expected


def test_a_schema_that_refers_to_itself_has_a_skeleton() -> None:
    """It ends at some depth."""

    class Tree(BaseModel):
        children: "list[Tree]"

    assert form_of(Tree).fields is None
    assert form_of(Tree).skeleton.startswith("{")


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/Gone"}}},
        {"type": "object", "properties": {"a": True, "": {"type": "string"}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "minProperties": 1},
        {"$ref": "#"},
        {"anyOf": []},
        {"anyOf": [{"type": ["string", "array"]}]},
        {"enum": [{}, []]},
    ],
)
def test_a_schema_of_any_shape_is_shown(schema: dict[str, Any]) -> None:
    """What is not understood is written as JSON, and breaks no page."""
    assert fields_of(schema) is None
    skeleton_of(schema)


def test_a_page_finds_the_form_of_a_call_and_of_a_repair() -> None:
    """A call that is not published, and a raw repair, take any JSON."""
    limit = TypeAdapter(Annotated[int, Field(gt=0)]).json_schema()
    typed = Published(
        "n", False, {}, {"calls": {"pay": {"args": limit}, "stop": {"args": None}}, "repair": limit}
    )
    raw = Published("n", False, {"raw": True}, {})
    assert [each.note for each in call_form(typed, "pay").fields or ()] == [
        "required, a whole number, more than 0"
    ]
    assert call_form(typed, "stop").fields == ()
    assert call_form(typed, "unknown").fields is None
    assert repair_form(typed).fields == call_form(typed, "pay").fields
    assert repair_form(raw).fields is None
