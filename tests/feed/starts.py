"""Where the readers of these tests begin."""

from __future__ import annotations

from datetime import UTC, datetime

FIRST = datetime(2000, 1, 1, tzinfo=UTC)
"""A moment before all that the feed has."""
