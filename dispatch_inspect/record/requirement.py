"""Says clearly when PyTorch is missing or too old to be traced."""

from __future__ import annotations

import re
from importlib import metadata

from dispatch_inspect.errors import UsageError

OLDEST = (2, 10)


def torch_version() -> str | None:
    """The version of the installed PyTorch, without importing it; None when there is none."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def require_torch() -> None:
    """Raises UsageError unless a PyTorch is installed that can be traced."""
    version = torch_version()
    oldest = ".".join(map(str, OLDEST))
    if version is None:
        raise UsageError(
            "recording needs PyTorch, and none is installed here",
            f"install torch {oldest} or newer; reading traces works without it",
        )
    numbers = tuple(int(one) for one in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST:
        raise UsageError(
            f"recording needs PyTorch {oldest} or newer, and {version} is installed here",
            "upgrade torch; reading traces works with any",
        )
