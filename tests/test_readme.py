"""The README is true: its commands and blocks run, and print what it shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def normal(text: str) -> list[str]:
    """Lines without times and shares, and without the widths they give to columns."""
    text = re.sub(r"\d[\d.]* (ns|µs|ms|s|%)", "N", text)
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("readme")
    shutil.copy(ROOT / "examples" / "step.py", found)
    shutil.copytree(ROOT / "examples", found / "examples")
    return found


def test_commands_print_what_is_shown(folder: Path) -> None:
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(blocks("console")), re.MULTILINE)
    assert len(steps) >= 4
    for command, shown in steps:
        assert command.startswith("dispatch-inspect ")
        line = command.replace("dispatch-inspect", f"{sys.executable} -m dispatch_inspect", 1)
        done = subprocess.run(
            line, shell=True, cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode in (0, 2), done.stderr
        printed = done.stdout if done.returncode == 0 else done.stderr
        if "stats" in command:
            # rows of equal calls are in the order of their times
            assert sorted(normal(printed)) == sorted(normal(shown))
        else:
            assert normal(printed) == normal(shown), command


@pytest.mark.parametrize("block", blocks("python"))
def test_python_runs(folder: Path, block: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "aten::mm" in done.stdout


def test_the_make_targets_are_there() -> None:
    named = set(re.findall(r"^make (\w+)", README, re.MULTILINE)) | set(
        re.findall(r"`make (\w+)`", README)
    )
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test", "lint", "benchmark"} <= named <= targets


def test_every_verb_is_listed() -> None:
    from dispatch_inspect.cli.arguments import VERBS

    assert set(re.findall(r"^\| `dispatch-inspect (\w+)", README, re.MULTILINE)) == set(VERBS)


def test_every_note_is_explained() -> None:
    source = "".join(
        (ROOT / "dispatch_inspect" / "record" / f"{name}.py").read_text()
        for name in ("notes", "jitting")
    )
    rules = set(re.findall(r'"([a-z]+-[a-z]+)"', source))
    assert rules == set(re.findall(r"^\| `([a-z]+-[a-z]+)`", README, re.MULTILINE))


def test_files_that_are_named_exist() -> None:
    for name in re.findall(r"`((?:benchmarks|examples|\.ci)/[\w./]+)`", README):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"\]\(([\w./]+)\)", README):
        assert (ROOT / name).exists(), name
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
