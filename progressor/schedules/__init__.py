"""Schedules: each is a process of the namespace `progressor.schedules`, called by the functions here."""

from progressor.errors.wordings import SCHEDULES as SCHEDULES
from progressor.schedules.process import (
    backfill as backfill,
    pause as pause,
    resume as resume,
    schedules_of as schedules_of,
    times_of as times_of,
    trigger as trigger,
)
from progressor.schedules.runs import ScheduleRuns as ScheduleRuns
from progressor.schedules.start import declare_all as declare_all
from progressor.schedules.state import (
    Declaration as Declaration,
    ScheduleState as ScheduleState,
    Span as Span,
)
