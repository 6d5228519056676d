"""Timers: how handlers and clients ask for one, and the rule by which one comes again. Pure."""

from progressor.timers.changes import (
    KEPT as KEPT,
    Recurring as Recurring,
    SetTimer as SetTimer,
    TimerChange as TimerChange,
    UnsetTimer as UnsetTimer,
    keeping as keeping,
    recurring as recurring,
    timer_of as timer_of,
)
