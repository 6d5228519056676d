"""Workers of two versions of an application, which serve the same processes at once."""

from pydantic import BaseModel

from progressor import Namespace, Process
from tests.acceptance.conftest import MakeClient, MakeEngine

NS = "shop.order"


class Order(BaseModel):
    paid: int = 0


class Address(BaseModel):
    city: str = "Rome"


class NewAddress(Address):
    zip: str = "00184"


class OldOrder(Order):
    address: Address = Address()


class NewOrder(Order):
    coupon: str = ""
    address: NewAddress = NewAddress()


def version(state: type[Order]) -> Namespace:
    """A namespace whose states are of this type."""
    namespace = Namespace(NS, state=state)

    @namespace.init
    async def begin(process: Process[Order]) -> None:
        process.state = state.model_validate({"coupon": "spring", "address": {"zip": "53111"}})

    @namespace.call
    async def pay(process: Process[Order], amount: int) -> int:
        process.state.paid += amount
        return process.state.paid

    return namespace


async def test_an_old_worker_keeps_what_a_new_one_wrote(
    engine: MakeEngine, serve: MakeClient, client: MakeClient
) -> None:
    """A field that its model does not have, in the state and in a model within it."""
    new = version(NewOrder)
    newer = await engine(new)
    await newer.client.start(NS, "a")
    await newer.stop()
    older = await serve(version(OldOrder))
    assert await older.call(NS, "a", "pay", 5) == 5
    assert await older.call(NS, "a", "pay", 2) == 7
    reader = await client(new)
    assert (await reader.get(NS, "a")).state == NewOrder(
        paid=7, coupon="spring", address=NewAddress(zip="53111")
    )
