"""The fields by which log lines name the step whose code writes them."""

from __future__ import annotations

from progressor.handlers.handler import handler_of
from progressor.handlers.running.waits import calling_step
from progressor.trace_context import trace_id_of


def log_fields() -> dict[str, object]:
    """Return namespace, process_id, task_id, call and, if it has one, trace_id of the step of this code.

    Also in its thread, in tasks that it made, and after its end; empty outside of steps. `call` is the name
    of the handler: that of the call, `timeout dunning`, or the type of the task.
    """
    step = calling_step()
    if step is None:
        return {}
    task = step.task
    fields: dict[str, object] = {
        "namespace": task.namespace,
        "process_id": task.process_id,
        "task_id": task.task_id,
        "call": handler_of(task),
    }
    if step.trace is not None:
        fields["trace_id"] = trace_id_of(step.trace)
    return fields
