"""The checks: does the server's record agree with the clients', to the last event.

Rule: each check says in one sentence what must hold, and yields what contradicts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise

from benchmarks.chaos.case import Case
from benchmarks.chaos.evidence import Account, by_key, came
from benchmarks.chaos.feed_checks import delivered, followed_once, never_held_up, projected_once
from benchmarks.chaos.ledger import ACCOUNTS, ENTERED, PAPERS, TENANTS, TICK
from benchmarks.chaos.limits import COOK_EVERY, COOK_PROCESSES, COOKS, METER_EVERY, METER_PROCESSES, PAUSE
from progressor import ProcessStatus, TaskStatus, TaskType, TraceEntry
from progressor.model import TaskStatus as Status

_FINAL = (Status.FINISHED, Status.ERROR, Status.CANCELLED)
_MAILBOX = (TaskType.INIT, TaskType.CALL, TaskType.NOTIFY, TaskType.REPAIR)
_TOLERANCE = timedelta(seconds=2)


def one_outcome(case: Case) -> Iterator[str]:
    """Every request that a client made has one task, and the task is final; or it was lost. It has another
    one only if it was asked again after a walk had deleted the first."""
    tasks: Counter[tuple[str, str]] = Counter()
    for name, account in case.books.accounts.items():
        for entry in account.trace:
            if entry.idempotency_key is not None:
                tasks[name, entry.idempotency_key] += 1
            if entry.status not in _FINAL:
                yield f"{name}: task {entry.task_id} ({entry.task_type}) is still {entry.status}"
    for asked, account in case.requests():
        count = tasks[account.name, asked.key]
        if count != 1 and not (count == 0 and case.is_lost(asked)) and not account.is_anew(asked.key):
            yield f"{asked.key}: {count} tasks on {account.name}"


def _ids(tasks: Iterable[TraceEntry]) -> set[int]:
    return {entry.task_id for entry in tasks}


def every_caller_answered(case: Case) -> Iterator[str]:
    """Every request has an answer, a rejection or (a notification) its acceptance; every errand ended."""
    for asked in case.clients.asked.values():
        for error in asked.errors:
            if not (asked.process in case.lost.processes and error.startswith("ProcessNotFound")):
                yield f"{asked.key}: {error}"
        account = case.books.accounts.get(asked.process) if asked.exists else None
        if asked.exists and not (account and account.swept.task_ids & _ids(account.tasks_of(asked.key))):
            yield f"{asked.key}: {asked.process} exists already, and not by a task that was deleted"
        if not asked.is_answered and not asked.errors:
            yield f"{asked.key} ({asked.name or asked.verb} of {asked.process}): no answer"
    for identity in case.clients.errands.keys() - case.clients.done:
        yield f"errand {identity} was not finished"


def answers_agree(case: Case) -> Iterator[str]:
    """What clients were answered is what the trace says, each time they asked, or what was lost since."""
    for asked, account in case.requests():
        tasks = account.tasks_of(asked.key)
        has = ", ".join(f"{entry.status} {entry.error or entry.response}" for entry in tasks) or "nothing"
        given = [entry.response for entry in tasks if entry.status is TaskStatus.FINISHED]
        for answer in asked.answers:
            if answer not in given and not case.was_given(asked, answer):
                yield f"{asked.key}: answered {answer}, but the trace has {has}"
        if not tasks or case.is_lost(asked):
            continue
        errors = [entry.error or "" for entry in tasks if entry.status is TaskStatus.ERROR]
        for reason in asked.refusals:
            if not any(reason in error for error in errors):
                yield f"{asked.key}: refused ({reason}), but the trace has {has}"
        if asked.accepted and not given:
            yield f"{asked.key}: accepted, but the trace has {has}"


def one_effect(case: Case) -> Iterator[str]:
    """Every request that succeeded made one event, the one it was answered; a refused one made none."""
    events = {name: by_key(account) for name, account in case.books.accounts.items()}
    for asked, account in case.requests():
        made = events[account.name].pop(asked.key, [])
        wanted = 0 if asked.refusals or not asked.is_answered else 1
        if account.is_anew(asked.key):
            wanted = account.did(asked.key)
        if len(made) != wanted and not (case.is_lost(asked) and len(made) < 2):
            yield f"{asked.key}: {len(made)} events on {account.name}, not {wanted}"
        for answer in asked.answers:
            payloads = [event.payload for event in made]
            if made and answer not in payloads and not case.was_given(asked, answer):
                yield f"{asked.key}: answered {answer}, but the history has {payloads}"
    for name, left in events.items():
        for key in left:
            yield f"{name}: an event of {key}, which nobody asked for"


def histories_exact(case: Case) -> Iterator[str]:
    """Histories are gapless, and replaying them gives every balance and the state."""
    for name, account in case.books.accounts.items():
        process, balance, ticks, notes = account.process, 0, 0, 0
        numbers = [event.event_id for event in account.history]
        if numbers != list(range(1, process.last_event_id + 1)):
            yield f"{name}: events {numbers[:3]}…{numbers[-3:]}, last_event_id {process.last_event_id}"
        for event in account.history:
            balance += event.payload["amount"]
            ticks += event.name == "ticked"
            notes += event.name == "noted"
            if event.payload["balance"] != balance:
                yield f"{name}: event {event.event_id} has {event.payload['balance']}, not {balance}"
                break
        state = {"balance": balance, "ticks": ticks, "notes": notes}
        if process.state != state:
            yield f"{name}: state {process.state}, but the history gives {state}"
        if process.status is not ProcessStatus.RUNNING:
            yield f"{name}: {process.status}, {process.detail}"


def sums_exact(case: Case) -> Iterator[str]:
    """The money in all accounts is what the clients' records say, plus the interest, less what was lost."""
    opened = moved = 0
    for asked, account in case.requests():
        times = int(bool(asked.answers or asked.exists))
        if account.is_anew(asked.key) or case.is_lost(asked):
            # What was done may have been refused when it was asked again.
            times = account.did(asked.key)
        amount = (asked.args or {}).get("amount", 0)
        opened += times * asked.args["balance"] if asked.verb == "start" else 0
        moved += times * {"deposit": amount, "withdraw": -amount}.get(asked.name or "", 0)
    states = [account.process.state for account in case.books.accounts.values()]
    total, interest = sum(s["balance"] for s in states), sum(s["ticks"] for s in states)
    if total != opened + moved + interest:
        yield f"{total} in all accounts, but {opened} opened {moved:+} moved {interest:+} interest"


def own_rows_exact(case: Case) -> Iterator[str]:
    """A row of the bank's own table and the event of its step are both there, or neither is."""
    events = Counter(
        (name, event.payload["nonce"], event.payload["amount"])
        for name, account in case.books.accounts.items()
        for event in account.history
        if event.name in ENTERED
    )
    for entry in events - case.books.entries:
        yield f"{entry}: an event without a row"
    for entry in case.books.entries - events:
        yield f"{entry}: a row without an event"


def mailbox_order(case: Case) -> Iterator[str]:
    """On each account calls ran one at a time, in the order of their acceptance."""
    for name, account in case.books.accounts.items():
        ran = [e for e in account.trace if e.task_type in _MAILBOX and e.status in _FINAL]
        for earlier, later in pairwise(ran):
            if earlier.finished_time and later.running_time and earlier.finished_time > later.running_time:
                overlap = (earlier.finished_time - later.running_time).total_seconds()
                yield f"{name}: task {later.task_id} ran {overlap:.6f} s before {earlier.task_id} ended"
        order = [event.task_id for event in account.history if event.name != "ticked"]
        if order != sorted(order):
            yield f"{name}: events out of the order of their tasks"


def visible_at_once(case: Case) -> Iterator[str]:
    """What a client was answered, everybody could read at that moment, if no walk had deleted it."""
    for key, answer, first in case.clients.unseen:
        account = case.books.accounts.get(case.clients.asked[key].process)
        # A walk of a server that was lost may have deleted what its successor still has.
        known = [*account.swept.events, *account.history] if account else []
        gone = [event.payload["nonce"] for event in known if (event.event_id or 0) < first]
        if answer["nonce"] not in gone and not case.was_given(case.clients.asked[key], answer):
            yield f"{key}: answered, but not yet in the history"


def timers_exact(case: Case) -> Iterator[str]:
    """Timers fire once, never early, and fall due by PostgreSQL's clock, whatever other clocks say."""
    for name, account in case.books.accounts.items():
        ticked = Counter(e.task_id for e in account.history if e.name == "ticked")
        ends = {e.finished_time for e in account.trace if e.finished_time is not None}
        for entry in account.trace:
            if entry.task_type is not TaskType.TIMEOUT:
                continue
            finished = entry.status is TaskStatus.FINISHED
            if finished and entry.running_time and entry.running_time < entry.scheduled_time:
                yield f"{name}: timer {entry.task_id} ran before it was due"
            if finished != (ticked[entry.task_id] == 1):
                yield f"{name}: timer {entry.task_id} is {entry.status}, {ticked[entry.task_id]} ticks"
            if not entry.last_retry_interval and entry.scheduled_time - TICK not in ends:
                yield f"{name}: timer {entry.task_id} was not set {TICK} after a step's end"


def one_clock(case: Case) -> Iterator[str]:
    """No moment in any table lies outside of the run, though processes with wrong clocks wrote them."""
    for column, earliest, latest in case.books.moments:
        for moment in (earliest, latest):
            if moment and not case.began - _TOLERANCE <= moment <= case.ended + _TOLERANCE:
                yield f"{column}: {moment}"
    for account in case.books.accounts.values():
        for event in account.history:
            seen = datetime.fromisoformat(event.payload["now"])
            if not case.began - _TOLERANCE <= seen <= case.ended + _TOLERANCE:
                yield f"{account.name}: a handler was told that it is {seen}"


def receipts_gone(case: Case) -> Iterator[str]:
    """Every receipt removed itself."""
    if case.books.receipts_left:
        yield f"{case.books.receipts_left} receipts are still there"


def living_workers_keep_their_steps(case: Case) -> Iterator[str]:
    """A worker that nobody killed, froze or cut off lost no step, whatever held up its writes."""
    for item in case.books.steady:
        if item.status is not ProcessStatus.RUNNING:
            yield f"{item.process_id}: {item.status}, {item.detail}"


def no_stranger_touched(case: Case) -> Iterator[str]:
    """Whoever was there and was not asked to go is there, unless its begin was lost."""
    asked = case.clients.asked.values()
    removed = {each.process for each in asked if each.verb == "remove"}
    there = {ACCOUNTS: case.books.accounts, PAPERS: case.books.papers}
    for each in asked:
        if each.verb != "start" or each.namespace not in there or not each.answers:
            continue
        if each.process not in removed | case.lost.processes and each.process not in there[each.namespace]:
            yield f"{each.process}: it was started and is gone, and nobody removed it"


def nominal_times_exact(case: Case) -> Iterator[str]:
    """A recurring timer runs each nominal time once: none is lost and none comes twice, however late."""
    there = {**case.books.meters, **case.books.cooks}
    for name in (*METER_PROCESSES, *COOK_PROCESSES):
        if name not in there:
            yield f"{name}: it is gone"
            continue
        account, every = there[name], METER_EVERY if name in METER_PROCESSES else COOK_EVERY
        nominals = came(account)
        for before, after in pairwise(nominals):
            if after - before != every:
                yield f"{name}: {after} came behind {before}"
        steps = [each for each in account.history if each.name == "came"]
        ended = {e.task_id for e in account.trace if e.task_type is TaskType.TIMEOUT and e.finished_time}
        finished = {e.task_id for e in account.trace if e.status is TaskStatus.FINISHED} & ended
        if sorted(each.task_id for each in steps) != sorted(finished):
            yield f"{name}: {len(steps)} steps in the history, {len(finished)} timers in the trace"
        if account.process.state["steps"] != len(nominals) or account.process.timers:
            yield f"{name}: state {account.process.state}, timers {account.process.timers}"


def stirred_once(case: Case) -> Iterator[str]:
    """Each notification to a cook is one step."""
    keys = Counter(
        event.payload["key"]
        for account in case.books.cooks.values()
        for event in account.history
        if event.name == "stirred"
    )
    for asked in case.clients.asked.values():
        if asked.namespace != COOKS:
            continue
        count = keys.pop(asked.key, 0)
        cook = case.books.cooks.get(asked.process)
        wanted = cook.did(asked.key) if cook and cook.is_anew(asked.key) else 1
        if count != wanted and not (count == 0 and case.is_lost(asked)):
            yield f"{asked.key}: {count} steps of {asked.process}"
    for key, count in keys.items():
        yield f"{key}: {count} steps, which nobody asked for"


def _spans(account: Account) -> Iterator[tuple[datetime, datetime]]:
    """When its steps began and ended; what was cancelled has the begin of its last try."""
    for entry in account.trace:
        if entry.running_time and entry.finished_time and entry.status is not TaskStatus.CANCELLED:
            yield entry.running_time, entry.finished_time


def limits_of_groups_kept(case: Case) -> Iterator[str]:
    """Of no group more ran at once than its limit, neither whenever it was looked at nor by the traces."""
    crowds = case.books.crowds
    for group, most in crowds.most.items():
        limit = crowds.limits[group]
        if limit is None or most > limit:
            yield f"{group}: {most} in running at once, not {limit}"
    for tenant, limit in TENANTS.items():
        cooks = [each for name, each in case.books.cooks.items() if COOK_PROCESSES[name] == tenant]
        spans = [span for account in cooks for span in _spans(account)]
        turns = [(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans]
        running = 0
        for moment, change in sorted(turns):
            running += change
            if running > limit:
                yield f"{tenant}: {running} steps at {moment}, by the traces"
                break


def pauses_kept(case: Case) -> Iterator[str]:
    """The next step of a cook begins no sooner than the pause after the end of its last one."""
    for name, account in case.books.cooks.items():
        for (_, ended), (began, _) in pairwise(sorted(_spans(account))):
            if began - ended < PAUSE:
                yield f"{name}: a step began {began - ended} after the end of the last one"


def swept_what_is_old(case: Case) -> Iterator[str]:
    """Walks deleted tasks that had ended long enough ago, and events that were not the newest."""
    accounts = [*case.books.accounts.values(), *case.books.meters.values(), *case.books.cooks.values()]
    for account in accounts:
        for fault in account.swept.faults:
            yield f"{account.name}: {fault}"
        first = account.process.first_event_id
        last = max((event.event_id or 0 for event in account.swept.events), default=0)
        if first != last + 1:
            yield f"{account.name}: its history begins with {first}, but events up to {last} were deleted"
    for kind in ("tasks", "events"):
        if not any(getattr(account.swept, kind) for account in accounts):
            yield f"no {kind} were deleted"


def archive_has_what_was_deleted(case: Case) -> Iterator[str]:
    """Every task and event that a walk deleted of an archived namespace is in the archive, the same to the
    last column; every part is whole, and there is some of each."""
    parts = case.books.parts
    yield from parts.missing
    if not parts.tasks or not parts.events:
        yield f"{parts.tasks} tasks and {parts.events} events are in the archive"


CHECKS: tuple[Callable[[Case], Iterator[str]], ...] = (
    one_outcome,
    every_caller_answered,
    answers_agree,
    one_effect,
    histories_exact,
    sums_exact,
    own_rows_exact,
    mailbox_order,
    visible_at_once,
    timers_exact,
    one_clock,
    receipts_gone,
    living_workers_keep_their_steps,
    no_stranger_touched,
    nominal_times_exact,
    stirred_once,
    limits_of_groups_kept,
    pauses_kept,
    swept_what_is_old,
    archive_has_what_was_deleted,
    followed_once,
    delivered,
    projected_once,
    never_held_up,
)
