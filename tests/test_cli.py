"""The command line as a person meets it."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
import traces

from dispatch_inspect.cli import main

TEXT = """
module Net  f32[2,4] -> f32[2,8]
  aten::mm  f32[2,4], f32[4,8] -> f32[2,8]
  aten::mm  f32[2,4], f32[4,8] -> f32[2,8]
region backward
  aten::add_.Tensor  f32[3] !RuntimeError
"""


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return str(traces.build(tmp_path / "t.dtrace", TEXT))


def test_tree(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tree", trace]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("module Net  f32[2,4] -> f32[2,8]  # ")
    assert lines[1].startswith("  aten::mm  f32[2,4], f32[4,8] -> f32[2,8]  # ×2, CPU, ")
    assert len(lines) == 4


def test_tree_takes_depth_filter_and_json(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tree", trace, "--depth", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["tree", trace, "--where", "err"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in out] == ["region", "aten::add_.Tensor"]
    assert main(["tree", trace, "--json", "--where", "aten::mm"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["id"] for event in events] == [1, 2]
    assert events[0]["parent"] == 0
    assert events[0]["args"]["0"]["tensor"]["shape"] == [2, 4]


def test_stats_as_table_json_and_csv(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", trace, "--sort", "calls"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["name", "calls", "self", "total", "share", "errors", "dtypes"]
    assert table[1].split()[:2] == ["aten::mm", "2"]
    assert main(["stats", trace, "--json", "--by", "module"]) == 0
    assert {row["group"] for row in json.loads(capsys.readouterr().out)} == {"Net", "(no module)"}
    assert main(["stats", trace, "--csv", "--where", "kind:op"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert {row["group"]: row["errors"] for row in rows} == {
        "aten::mm": "0",
        "aten::add_.Tensor": "1",
    }


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["tre"], 2, "did you mean 'tree'?"),
        (["x.dtrace"], 2, "dispatch-inspect tree x.dtrace"),
        (["tree"], 2, "TRACE"),
        (["tree", "no.dtrace"], 3, "there is no no.dtrace"),
        (["tree", "TRACE", "--where", "kye:CPU"], 2, "did you mean 'key'?"),
        (["tree", "TRACE", "--depth", "0"], 2, "counts levels from 1"),
        (["stats", "TRACE", "--by", "colour"], 2, "groups: name key module dtype file"),
        (["stats", "TRACE", "--sort", "colour"], 2, "columns:"),
        (["stats", "TRACE", "--json", "--csv"], 2, "not allowed with"),
        (["run"], 2, "no program to run"),
        (["run", "-c"], 2, "nothing after -c"),
        (["run", "no_such_script.py"], 2, "there is no script no_such_script.py"),
    ],
)
def test_mistakes_are_answered(
    trace: str, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    assert main([trace if one == "TRACE" else one for one in arguments]) == code
    captured = capsys.readouterr()
    assert words in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_an_empty_trace_says_what_is_likely(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tree", str(traces.build(tmp_path / "t.dtrace", ""))]) == 0
    assert "nothing was recorded" in capsys.readouterr().out


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    text = "\n".join(f"aten::op{number}" for number in range(9_000))
    path = traces.build(tmp_path / "t.dtrace", text)
    command = f"{sys.executable} -m dispatch_inspect tree {path} | head -n 2"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2


def test_doctor_answers_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    found = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert {"tool", "python", "torch", "compiler", "probe", "terminal", "recording"} <= set(found)
    assert found["recording"] == "yes: torch works"
