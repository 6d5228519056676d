"""The version of this release; the build reads it too."""

from __future__ import annotations

VERSION = "0.1.0"
