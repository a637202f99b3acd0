"""Says what this installation is and can do: what to paste into a report.

example:
  dispatch-inspect doctor
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata

from dispatch_inspect._version import __version__
from dispatch_inspect.errors import UsageError
from dispatch_inspect.record.requirement import require_torch


def carry_out(options: argparse.Namespace) -> int:
    """Prints the findings and returns the exit code."""
    del options
    for name, finding in findings():
        print(f"{name:<12}{finding}")
    return 0


def findings() -> Iterator[tuple[str, str]]:
    """What is asked first about any report."""
    yield "tool", f"dispatch-inspect {__version__} in {os.path.dirname(os.path.dirname(__file__))}"
    yield "python", f"{platform.python_version()} {sys.executable}"
    yield "system", f"{platform.system()} {platform.release()} {platform.machine()}"
    for package in ("torch", "numpy", "pydantic", "textual", "rich", "ninja"):
        yield package, _version(package)
    yield "recording", _recording()
    yield "probe", _probe()
    yield "compiler", _compiler()
    yield "terminal", _terminal()
    yield "temporary", _temporary()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _recording() -> str:
    try:
        require_torch()
    except UsageError as error:
        return f"no: {error.message}; {error.hint}"
    code = "import torch; print(torch.ones(2).add(1).sum().item())"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot tell: {error}"
    if done.returncode == 0:
        return "yes: torch works"
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return f"no: torch does not work here: {last}"


def _probe() -> str:
    try:
        require_torch()
        from dispatch_inspect import building
        from dispatch_inspect.record import probe

        if not building.is_built(probe.PART, probe.MODULE):
            return "not compiled yet: `dispatch-inspect build`, or at the first use of hops"
        found = probe.load().counts()
    except UsageError as error:
        return f"no: {error.message}"
    text = f"yes: {found['kernels']:,} kernels of {found['operators']:,} operators"
    if found["unboxable"]:
        names = sorted(set(found["unboxable"]))
        text += f"; {len(names)} left alone, which cannot be called boxed: {', '.join(names)}"
    return text


def _compiler() -> str:
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path is None:
            continue
        try:
            done = subprocess.run(
                [path, "--version"], capture_output=True, text=True, timeout=20, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{path}: {error}"
        return f"{path}: {(done.stdout.splitlines() or ['no version'])[0]}"
    return "none found"


def _terminal() -> str:
    size = shutil.get_terminal_size((0, 0))
    stream = "a terminal" if sys.stdout.isatty() else "not a terminal"
    facts = [stream, f"{size.columns}x{size.lines}", f"TERM={os.environ.get('TERM', '')}"]
    facts.append(f"encoding {sys.stdout.encoding}")
    if os.environ.get("NO_COLOR"):
        facts.append("NO_COLOR")
    return ", ".join(facts)


def _temporary() -> str:
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
    except OSError as error:
        return f"{tempfile.gettempdir()} cannot be written: {error.strerror or error}"
    free = shutil.disk_usage(tempfile.gettempdir()).free
    return f"{tempfile.gettempdir()}, {free / 1e9:.1f} GB free"
