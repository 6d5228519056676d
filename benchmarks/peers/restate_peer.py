"""Restate's service: a virtual object that keeps a number, served by Hypercorn as its documentation has it.

`benchmarks.beside_restate` starts it, with the server beside it, at the server's default settings: one
node, which keeps journals and state on the same disk as PostgreSQL. A call carries an idempotency key, as
one of Progressor does. What differs: the state is changed and no event is kept, in Restate's favour.
"""

from __future__ import annotations

import restate

counter = restate.VirtualObject("counter")


@counter.handler()
async def add(ctx: restate.ObjectContext, value: int) -> int:
    """Add to the number of this key."""
    number = (await ctx.get("number", type_hint=int) or 0) + value
    ctx.set("number", number)
    return number


app = restate.app([counter])
