"""Bad traces: one clear error, or what can be read with a note; never anything else."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest
import traces
from hypothesis import given, settings
from hypothesis import strategies as st

import dispatch_inspect as di
from dispatch_inspect import render
from dispatch_inspect.query import derived

TEXT = """
module Net  f32[2,4] -> f32[2,8]
  function torch.nn.functional.linear  f32[2,4], f32[8,4] -> f32[2,8]
    aten::t  f32[8,4] -> f32[4,8](1,4)
    aten::mm  f32[2,4], f32[4,8](1,4) -> f32[2,8]
region backward
  aten::cat  [f32[2], f32[3]] -> f32[5]
  aten::mm  f32[2,4], f32[3,8] !RuntimeError
"""


PROPERTIES = [name for name, member in vars(di.Event).items() if isinstance(member, property)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return traces.build(tmp_path / "t.dtrace", TEXT, other="aten::ones -> f32[3]")


def lane(path: Path) -> Path:
    return path / "rank=00000" / "lane=00000"


def read_everything(path: Path) -> int:
    """Reads all there is; only this project's errors may come out."""
    trace = di.load(path)
    for event in trace.events:
        for name in PROPERTIES:
            getattr(event, name)
        repr(event)
    list(render.tree(trace.stored))
    list(render.tree_json(trace.stored))
    for by in ("name", "key", "module", "dtype", "file"):
        trace.stats(by=by)
    for text in ("aten::mm", "key:CPU", "dtype:f32", "in:Net", "has:aten::mm", "alias:yes", "err"):
        trace.where(text)
    derived.self_times(trace.stored)
    assert isinstance(trace.notes, tuple)
    return len(trace)


def test_a_good_trace_has_no_notes(path: Path) -> None:
    assert read_everything(path) == 8
    assert di.load(path).notes == ()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda p: shutil.rmtree(p), di.TraceNotFoundError, "there is no"),
        (lambda p: (p / "trace.json").unlink(), di.ForeignTraceError, "no trace.json"),
        (lambda p: (p / "trace.json").write_text("{"), di.ForeignTraceError, "not this tool's"),
        (
            lambda p: (p / "trace.json").write_text('{"format": "perfetto", "version": 1}'),
            di.ForeignTraceError,
            "perfetto",
        ),
        (lambda p: shutil.rmtree(p / "rank=00000"), di.DamagedTraceError, "no process"),
    ],
)
def test_one_clear_error(path: Path, make, error, words: str) -> None:  # type: ignore[no-untyped-def]
    make(path)
    with pytest.raises(error, match=words):
        di.load(path)


def test_a_newer_version_says_what_to_do(path: Path) -> None:
    (path / "trace.json").write_text(
        json.dumps({"format": "dispatch_inspect trace", "version": 99})
    )
    with pytest.raises(di.TraceVersionError, match="trace format 99, this is 1") as caught:
        di.load(path)
    assert "pip install -U" in caught.value.hint


def test_a_file_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "x.dtrace").write_text("x")
    with pytest.raises(di.ForeignTraceError, match="is a file"):
        di.load(tmp_path / "x.dtrace")


def test_near_names_are_offered(path: Path) -> None:
    with pytest.raises(di.TraceNotFoundError) as caught:
        di.load(path.with_name("u.dtrace"))
    assert "t.dtrace" in caught.value.hint


def test_no_permission_names_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # tests may run as root, for whom every file is readable
    real = Path.read_bytes

    def refuse(self: Path) -> bytes:
        if self.name == "process.json":
            raise PermissionError(13, "Permission denied", str(self))
        return real(self)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(di.TraceReadError, match=r"no permission to read .*process\.json"):
        di.load(path)


@pytest.mark.parametrize("name", ["kind", "depth", "name", "begin_ns"])
def test_a_truncated_column_ends_the_trace_with_a_note(path: Path, name: str) -> None:
    file = lane(path) / f"{name}.bin"
    size = {"kind": 1, "depth": 2, "name": 4, "begin_ns": 8}[name]
    file.write_bytes(file.read_bytes()[: 3 * size])
    trace = di.load(path)
    assert len(trace) == 3 + 1
    if name != "kind":
        assert any("3 of 7 events" in note for note in trace.notes)
    read_everything(path)


@pytest.mark.parametrize("name", ["end_ns", "parent", "arguments", "operand_tensor", "state"])
def test_a_short_or_missing_column_reads_as_zeros_with_a_note(path: Path, name: str) -> None:
    file = lane(path) / f"{name}.bin"
    file.write_bytes(file.read_bytes()[:7])
    assert read_everything(path) == 8
    file.unlink()
    assert read_everything(path) == 8


def test_a_cut_json_line_leaves_out_what_points_there(path: Path) -> None:
    names = path / "rank=00000" / "names.jsonl"
    text = names.read_bytes()
    names.write_bytes(text[: text.rindex(b'"name"') + 9])
    trace = di.load(path)
    assert read_everything(path) == 8
    list(render.tree(trace.stored))
    assert any("names.jsonl" in note for note in trace.notes)


def test_a_missing_table_leaves_out_what_points_there(path: Path) -> None:
    (path / "rank=00000" / "values.jsonl").unlink()
    trace = di.load(path)
    assert trace.events[3].args == {}
    assert any("values.jsonl is missing" in note for note in trace.notes)
    read_everything(path)


def test_a_missing_end_is_an_early_end(path: Path) -> None:
    process = path / "rank=00000" / "process.json"
    record = json.loads(process.read_text())
    process.write_text(json.dumps({**record, "pid": 0}))
    (path / "rank=00000" / "end.json").unlink()
    assert any("ended early" in note for note in di.load(path).notes)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_no_damage_raises_anything_but_our_errors(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = traces.build(Path(folder) / "t.dtrace", TEXT, other="aten::ones -> f32[3]")
        files = sorted(file for file in path.rglob("*") if file.is_file())
        for _ in range(data.draw(st.integers(1, 4))):
            _damage(data, data.draw(st.sampled_from(files)))
        try:
            read_everything(path)
        except di.DispatchInspectError:
            return


def _damage(data: st.DataObject, file: Path) -> None:
    how = data.draw(st.sampled_from(("flip", "cut", "insert", "replace", "remove", "folder")))
    if not file.is_file():
        return
    content = bytearray(file.read_bytes())
    at = data.draw(st.integers(0, len(content)))
    if how == "flip" and content:
        content[at % len(content)] ^= data.draw(st.integers(1, 255))
    elif how == "cut":
        del content[at:]
    elif how == "insert":
        content[at:at] = data.draw(st.binary(min_size=1, max_size=40))
    elif how == "replace":
        content = bytearray(data.draw(st.binary(max_size=200)))
    elif how == "remove":
        file.unlink()
        return
    elif how == "folder":
        file.unlink()
        file.mkdir()
        return
    file.write_bytes(bytes(content))
