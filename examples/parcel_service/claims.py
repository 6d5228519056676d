"""The claim for a parcel that did not come: a small one is paid, a large one waits for a clerk."""

from datetime import time, timedelta

from psycopg import AsyncConnection

from progressor import Namespace, Process, Reject

from .model import Claim, ClaimStatus, Decision, Loss

SMALL = 50_00
ANSWER_WITHIN = timedelta(days=7)  # as the terms say; after that it is paid
OFFICE_HOURS = (time(8), time(17), "Europe/Berlin")

claims = Namespace("parcels.claim", state=Claim)


@claims.init
async def open_claim(process: Process[Claim], loss: Loss, *, connection: AsyncConnection) -> None:
    process.state = Claim(shop=loss.shop, value=loss.value)
    process.metadata.update(shop=loss.shop, status=ClaimStatus.WAITING.value)
    if loss.value <= SMALL:
        await pay(process, connection, "nobody: it is small")
    else:
        process.set_timer("remind", every=timedelta(days=1), between=OFFICE_HOURS)
        process.set_timer("deadline", after=ANSWER_WITHIN)


@claims.call
async def decide(process: Process[Claim], args: Decision, *, connection: AsyncConnection) -> None:
    """Take the word of a clerk: the first counts."""
    if process.state.status is not ClaimStatus.WAITING:
        raise Reject("it is decided", status=process.state.status.value)
    if args.pay:
        await pay(process, connection, args.clerk)
    else:
        close(process, ClaimStatus.REFUSED, args.clerk)


@claims.timeout("deadline")
async def run_out(process: Process[Claim], *, connection: AsyncConnection) -> None:
    await pay(process, connection, "nobody: it waited too long")


@claims.timeout("remind")
async def remind(process: Process[Claim]) -> None:
    """Add an event, of which a sink can make a letter to the clerks."""
    process.emit("reminded")


@claims.call
async def withdraw(process: Process[Claim]) -> None:
    """End the claim, for the parcel has come; a shop that has its money by then keeps it."""
    if process.state.status is ClaimStatus.WAITING:
        close(process, ClaimStatus.WITHDRAWN, "the parcel")
    else:
        process.emit("found too late", status=process.state.status.value)


@claims.call
async def tell(process: Process[Claim]) -> None:
    """Send the end of the claim once more, to a parcel that was broken when the first message came."""
    if process.state.status is not ClaimStatus.WAITING:
        process.send("parcels.parcel", process.process_id, "settled", process.state.status)


async def pay(process: Process[Claim], connection: AsyncConnection, by: str) -> None:
    """Write the row that the bookkeeper pays: it is committed with the step, or not at all."""
    row = (process.process_id, process.state.shop, process.state.value, by, process.now)
    await connection.execute("INSERT INTO parcel_payouts VALUES (%s, %s, %s, %s, %s)", row)
    close(process, ClaimStatus.PAID, by)


def close(process: Process[Claim], status: ClaimStatus, by: str) -> None:
    process.state.status = status
    process.metadata["status"] = status.value
    process.emit(status.value, by=by)
    process.unset_timer("remind")
    process.unset_timer("deadline")
    if status is not ClaimStatus.WITHDRAWN:
        process.send("parcels.parcel", process.process_id, "settled", status)
