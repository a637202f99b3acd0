"""What is loaded when: help answers at once, reading needs no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import traces

import dispatch_inspect as di

HEAVY = ("numpy", "torch", "pydantic", "textual", "rich")


def loaded(code: str, *arguments: str) -> set[str]:
    """The heavy packages that a program has loaded at its end."""
    program = f"{code}\nimport sys\nprint('\\n' + ' '.join({HEAVY!r} & sys.modules.keys()))"
    program = program.replace(f"{HEAVY!r}", f"set({HEAVY!r})")
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded(
        "import dispatch_inspect; dispatch_inspect.__version__; dir(dispatch_inspect)"
    ) == (set())


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["tree", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
from dispatch_inspect.cli import main
try:
    main({arguments!r})
except SystemExit as end:
    assert end.code == 0
"""
    assert loaded(code) == set()


@pytest.mark.parametrize("verb", ["tree", "stats"])
def test_reading_loads_no_torch(tmp_path: Path, verb: str) -> None:
    path = traces.build(tmp_path / "t.dtrace", "aten::mm  f32[2] -> f32[2]")
    code = f"from dispatch_inspect.cli import main\nmain([{verb!r}, {str(path)!r}])"
    assert not loaded(code) & {"torch", "textual"}


def test_every_public_name_is_there() -> None:
    for name in di.__all__:
        assert getattr(di, name) is not None
    assert set(di.__all__) <= set(dir(di))
    with pytest.raises(AttributeError, match="no attribute 'tarce'"):
        di.tarce  # noqa: B018


@pytest.mark.parametrize(
    ("version", "words"), [(None, "none is installed"), ("2.4.1", "2.4.1 is installed")]
)
def test_a_missing_or_old_torch_is_said_clearly(
    monkeypatch: pytest.MonkeyPatch, version: str | None, words: str
) -> None:
    from dispatch_inspect.record import requirement

    monkeypatch.setattr(requirement, "torch_version", lambda: version)
    monkeypatch.delitem(vars(di), "trace", raising=False)
    with pytest.raises(di.UsageError, match=words):
        di.trace  # noqa: B018
