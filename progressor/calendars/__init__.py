"""Calendars: rules by which a timer comes again at times of a wall clock. Pure: no clock, no storage."""

from progressor.calendars.cron import Cron as Cron
from progressor.calendars.monthly import Monthly as Monthly
from progressor.calendars.rrule import RRule as RRule
from progressor.calendars.rules import Rule as Rule, json_of as json_of, rule_of as rule_of
