"""Faults of the tracer, which a program never sees, must be seen by tests."""

from __future__ import annotations

import os

os.environ["DISPATCH_INSPECT_RAISE_FAULTS"] = "1"
