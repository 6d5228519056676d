"""Requests that are acts of operators, which the audit notes in the transaction that accepts them.

Rule: what programs ask all the time is none, and costs nothing more; from the console it is one.
"""

from __future__ import annotations

from progressor.acts import OF_CALLERS, OF_SCHEDULES, Act, AuditVerb, is_in_console, verb_of_request
from progressor.errors.wordings import SCHEDULES
from progressor.node.node import Node
from progressor.storage import Request


def act_of_request(node: Node, request: Request) -> Act | None:
    """Return the act that a request is, of an operator; None for those of callers and handlers."""
    if request.redoes is not None:
        verb: AuditVerb | None = AuditVerb.REDO
    elif request.namespace == SCHEDULES and request.name in OF_SCHEDULES:
        verb = OF_SCHEDULES[request.name]
    else:
        verb = verb_of_request(request.task_type, request.name)
        if verb is None and is_in_console():
            verb = OF_CALLERS.get(request.task_type)
    act = None if verb is None else node.act(verb)
    return act if act is not None and act.is_noted else None
