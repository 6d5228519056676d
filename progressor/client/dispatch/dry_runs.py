"""Dry runs as they are accepted: by namespaces that take them, and where one runs soon.

Rule: a dry run that waits keeps its process from its repair. None is accepted where it would wait for long.
"""

from __future__ import annotations

from progressor.errors import InvalidRequest, RepairConflict
from progressor.handlers.dry_run import no_dry_runs
from progressor.model import TaskType
from progressor.node.node import Node
from progressor.storage import Request

# No worker has this id.
_NOBODY = 0


async def require_dry_runs(node: Node, request: Request) -> None:
    """Raise InvalidRequest if the namespace takes no dry runs, RepairConflict if this one would wait."""
    namespace, storage = request.namespace, node.storage
    row = await storage.namespace(namespace)
    if row is None or not row.schemas.get("dry_run"):
        raise InvalidRequest(no_dry_runs(namespace), field="namespace")
    why = "is paused" if row.paused else "has no live worker that serves repairs"
    if row.paused or not await storage.others_serving(
        namespace, TaskType.REPAIR, worker_id=_NOBODY, lease_age=node.options.lease_age
    ):
        detail = f"namespace {namespace} {why}: a dry run would wait, and keep repairs from the process"
        raise RepairConflict(namespace, request.process_id, detail=detail)
