"""A parcel: booked with the carrier, followed by its scans, and missed if it does not come."""

from datetime import timedelta
from typing import Any

from progressor import Namespace, Process, Reject, RetryPolicy

from .carrier import Carrier
from .model import Address, ClaimStatus, Loss, Order, Parcel, Scan, Stage

AT_ONCE = timedelta(0)
PROMISE = timedelta(days=5)  # from the booking to the delivery

# What may come after what. A stage that is not here ends the parcel.
NEXT: dict[Stage, set[Stage]] = {
    Stage.ORDERED: {Stage.BOOKED, Stage.CANCELLED},
    Stage.BOOKED: {Stage.TRAVELLING, Stage.DELIVERED, Stage.MISSING, Stage.CANCELLED},
    Stage.TRAVELLING: {Stage.DELIVERED, Stage.MISSING},
    Stage.MISSING: {Stage.DELIVERED, Stage.PAID_FOR, Stage.LOST},
}
CODES = {"accepted": Stage.TRAVELLING, "hub": Stage.TRAVELLING, "delivered": Stage.DELIVERED}

parcels = Namespace(
    "parcels.parcel",
    state=Parcel,
    group=lambda order: order.shop,  # a shop with a sale does not hold up the others
    group_limit=4,
    retry_policy=RetryPolicy(initial_interval=timedelta(minutes=1), max_interval=timedelta(hours=1)),
)


def may_enter(process: Process[Parcel], stage: Stage) -> bool:
    return stage in NEXT.get(process.state.stage, set())


def enter(process: Process[Parcel], stage: Stage, **facts: Any) -> None:
    """Go on to a stage: it is an event, and `search` finds it in the metadata."""
    process.state.stage = stage
    process.metadata["stage"] = stage.value
    process.emit(stage.value, **facts)


def label(process: Process[Parcel]) -> str:
    """The carrier's key for the label: one for each address, however often a step runs."""
    return f"{process.process_id}/{process.state.corrections}"


@parcels.init
async def order(process: Process[Parcel], args: Order) -> None:
    process.state = Parcel(shop=args.shop, address=args.address, value=args.value)
    process.metadata.update(shop=args.shop, stage=Stage.ORDERED.value)
    process.set_timer("book", after=AT_ONCE)


@parcels.timeout("book")
async def book(process: Process[Parcel], *, carrier: Carrier) -> None:
    """Order the label, in a timer: it is tried again while the carrier is out of order."""
    tracking = await carrier.book(label(process), process.state.address)
    process.state.tracking = tracking
    process.metadata["tracking"] = tracking
    enter(process, Stage.BOOKED, tracking=tracking)
    process.set_timer("promise", after=PROMISE)


@parcels.call
async def scanned(process: Process[Parcel], scan: Scan) -> Stage:
    """Take a scan of the carrier. An unknown code breaks the parcel, so that a person looks."""
    stage = CODES[scan.code]
    process.emit("scanned", code=scan.code, place=scan.place)
    if may_enter(process, stage):  # scans come late, and in any order
        if process.state.stage is Stage.MISSING:
            process.send("parcels.claim", process.process_id, "withdraw")
        if stage is Stage.DELIVERED:
            process.unset_timer("promise")
        enter(process, stage)
    return process.state.stage


@parcels.call
async def cancel(process: Process[Parcel]) -> None:
    """Cancel before the carrier has the parcel. A timer asks the carrier, for calls are not tried again."""
    if not may_enter(process, Stage.CANCELLED):
        raise Reject("it is too late to cancel", stage=process.state.stage.value)
    process.unset_timer("book")
    process.unset_timer("promise")
    process.set_timer("void", after=AT_ONCE)
    enter(process, Stage.CANCELLED)


@parcels.timeout("void")
async def void(process: Process[Parcel], *, carrier: Carrier) -> None:
    """Give back the label, also one whose booking was never answered."""
    await carrier.void(label(process))
    process.emit("label given back")


@parcels.timeout("promise")
async def miss(process: Process[Parcel]) -> None:
    """Open a claim, for the parcel is not there in time."""
    enter(process, Stage.MISSING)
    loss = Loss(shop=process.state.shop, value=process.state.value)
    process.send_start("parcels.claim", process.process_id, loss)


@parcels.call
async def settled(process: Process[Parcel], status: ClaimStatus) -> None:
    """Take the end of the claim. A parcel that has come meanwhile stays delivered."""
    stage = Stage.PAID_FOR if status is ClaimStatus.PAID else Stage.LOST
    if may_enter(process, stage):
        enter(process, stage)


@parcels.repair(dry_run=True)
async def correct(process: Process[Parcel], address: Address | None = None) -> None:
    """Repair a parcel, with an address that the carrier serves if that was the fault."""
    if address is not None:
        if process.state.stage is not Stage.ORDERED:
            raise Reject("the label is made", stage=process.state.stage.value)
        process.state.address = address
        process.state.corrections += 1
        process.emit("address corrected")
    if process.state.stage is Stage.MISSING:  # what the claim sent to a broken parcel was not delivered
        process.send("parcels.claim", process.process_id, "tell")
