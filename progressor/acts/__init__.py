"""Acts of operators, as the audit notes them: what was done, who did it, from where, and why."""

from progressor.acts.act import (
    MOST_ENTRIES as MOST_ENTRIES,
    OF_CALLERS as OF_CALLERS,
    OF_SCHEDULES as OF_SCHEDULES,
    Act as Act,
    AuditEntry as AuditEntry,
    AuditPage as AuditPage,
    AuditVerb as AuditVerb,
    Deed as Deed,
    Way as Way,
    check_filter as check_filter,
    verb_of_request as verb_of_request,
)
from progressor.acts.acting import (
    act_of as act_of,
    acting as acting,
    as_line as as_line,
    check_line as check_line,
    is_in_console as is_in_console,
    reason_of_block as reason_of_block,
)
