"""What is stored and sent: the states of parcels and claims, and the arguments of their calls."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, Field, model_validator

Cents = Annotated[int, Field(strict=True, ge=0, le=10**9)]


class Stage(StrEnum):
    """Where a parcel is."""

    ORDERED = "ordered"
    BOOKED = "booked"
    TRAVELLING = "travelling"
    DELIVERED = "delivered"
    MISSING = "missing"
    PAID_FOR = "paid for"
    LOST = "lost"
    CANCELLED = "cancelled"


class Address(BaseModel):
    street: str
    city: str


class Order(BaseModel):
    """What the shop gives."""

    shop: str
    address: Address
    value: Cents


class Parcel(BaseModel):
    """The state of a parcel."""

    shop: str
    address: Address
    value: Cents
    stage: Stage = Stage.ORDERED
    tracking: str | None = None
    corrections: int = 0  # of the address, by an operator

    @model_validator(mode="before")
    @classmethod
    def _of_the_first_release(cls, stored: Any) -> Any:
        """Read states in which the address was one line, and the stage two flags."""
        if not isinstance(stored, dict) or not isinstance(stored.get("address"), str):
            return stored
        new = dict(stored)
        street, _, city = new["address"].rpartition(", ")
        new["address"] = {"street": street, "city": city}
        is_booked, is_delivered = new.pop("is_booked", False), new.pop("is_delivered", False)
        new["stage"] = "delivered" if is_delivered else "booked" if is_booked else "ordered"
        return new


class Scan(BaseModel):
    """What the carrier tells of a parcel; `code` is the carrier's word."""

    code: str
    place: str


class Loss(BaseModel):
    """A parcel that did not come: with it a claim is opened."""

    shop: str
    value: Cents


class ClaimStatus(StrEnum):
    WAITING = "waiting"
    PAID = "paid"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"


class Claim(BaseModel):
    """The state of a claim."""

    shop: str
    value: Cents
    status: ClaimStatus = ClaimStatus.WAITING


class Decision(BaseModel):
    """What a clerk says to a claim."""

    clerk: str
    pay: bool
