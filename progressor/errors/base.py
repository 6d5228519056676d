"""The root of all errors."""

from __future__ import annotations


class ProgressorError(Exception):
    """The root of the errors that Progressor raises on purpose."""
