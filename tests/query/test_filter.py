"""The filter language: what it takes, what it says of the rest, and what it selects."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import traces
from hypothesis import given
from hypothesis import strategies as st

import dispatch_inspect as di
from dispatch_inspect.query.filter import All, Either, Not, Term, parse
from dispatch_inspect.store.values import tensors_in

TEXT = """
module Net  f32[2,4] -> f32[2,8]
  module Net.fc  f32[2,4] -> f32[2,8]
    function torch.nn.functional.linear  f32[2,4], f32[8,4] -> f32[2,8]
      aten::t  f32[8,4] -> f32[4,8](1,4)
      aten::addmm  f32[8], f32[2,4], f32[4,8](1,4) -> f32[2,8]
  aten::add.Tensor  f32[2,8], bf16[2,8]@meta -> f32[2,8]
region backward
  aten::mm  f32[2,4], f32[4,8] -> f32[2,8]
  aten::add_.Tensor  f32[3] !RuntimeError
aten::mm  f32[2], f32[3] !open
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> di.Trace:
    path = tmp_path_factory.mktemp("filters") / "t.dtrace"
    return di.load(traces.build(path, TEXT, worker="aten::mm  f64[2,2], f64[2,2] -> f64[2,2]"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("mm", ["aten::mm"] * 3),
        ("aten::mm", ["aten::mm"] * 3),
        ("aten::add", ["aten::add.Tensor"]),
        ("aten::add*", ["aten::addmm", "aten::add.Tensor", "aten::add_.Tensor"]),
        ("name=aten::add", []),
        ("/add(mm|_)/", ["aten::addmm", "aten::add_.Tensor"]),
        ('"aten::t"', ["aten::t"]),
        ("op:aten::t,aten::addmm", ["aten::t", "aten::addmm"]),
        ("kind:region", ["backward"]),
        ("kind:module,region", ["Net", "Net.fc", "backward"]),
        ("module:fc kind:op", ["aten::t", "aten::addmm"]),
        ("module:Net.fc kind:op !aten::t", ["aten::addmm"]),
        ("thread:worker", ["aten::mm"]),
        ("dtype:bf16", ["aten::add.Tensor"]),
        ("dtype:bfloat16,f64", ["aten::add.Tensor", "aten::mm"]),
        ("device:meta", ["aten::add.Tensor"]),
        ("shape:[4,8] kind:op", ["aten::t", "aten::addmm", "aten::mm"]),
        ("shape:[*] kind:op", ["aten::addmm", "aten::add_.Tensor", "aten::mm"]),
        ("shape:[...,8] in:backward", ["aten::mm"]),
        ("stride:(1,4)", ["aten::t", "aten::addmm"]),
        ("err", ["aten::add_.Tensor"]),
        ("err:RuntimeError", ["aten::add_.Tensor"]),
        ("err:KeyError", []),
        ("in:backward", ["aten::mm", "aten::add_.Tensor"]),
        ("in:Net.fc aten::*", ["aten::t", "aten::addmm"]),
        ("has:aten::addmm", ["Net", "Net.fc", "torch.nn.functional.linear"]),
        ("depth:0 kind:op", ["aten::mm", "aten::mm"]),
        ("depth>=3", ["aten::t", "aten::addmm"]),
        ("id:1", ["Net.fc"]),
        ("key:CPU depth:0", ["aten::mm", "aten::mm"]),
        ("(aten::t | aten::addmm) depth:3", ["aten::t", "aten::addmm"]),
        ("!kind:op !kind:module !kind:function", ["backward"]),
        ("dur<1us", []),
        ("dur=1us kind:op depth:3", ["aten::t", "aten::addmm"]),
        ("mode:grad id:0", ["Net"]),
        ("alias:yes", []),
        ("", None),
    ],
)
def test_what_is_selected(trace: di.Trace, text: str, names: list[str] | None) -> None:
    found = [event.name for event in trace.where(text)]
    assert found == (names if names is not None else trace.names())


@pytest.mark.parametrize(
    ("text", "words", "column"),
    [
        ("kye:CPU", "unknown field 'kye'; did you mean 'key'?", 0),
        ("aten::mm dur>abc", "not a duration: 'abc'", 13),
        ("(a | b", "is not closed", 0),
        ("a )", "a ) without its (", 2),
        ("a |", "nothing after |", 2),
        ("| a", "nothing before |", 0),
        ("!", "nothing after !", 0),
        ("name<3", "has no order", 4),
        ("shape:2", "a shape is written", 6),
        ("shape:[2,x y]", "not a size", 6),
        ('"abc', "is not closed", 0),
        ("/(/", "not a regular expression", 1),
        ("depth:x", "not a whole number", 6),
        ("key:", "a value is missing", 4),
        ("mode:sleepy", "unknown mode", 0),
    ],
)
def test_errors_point_to_the_place(trace: di.Trace, text: str, words: str, column: int) -> None:
    with pytest.raises(di.FilterError, match=re.escape(words)) as caught:
        trace.where(text)
    assert caught.value.column == column
    assert f"{' ' * column}^" in str(caught.value)


@given(st.text(alphabet='ab:|!() "/,[]*<>=kindshape0', max_size=30))
def test_any_text_is_a_filter_or_a_clear_error(text: str) -> None:
    try:
        parse(text)
    except di.FilterError as error:
        assert 0 <= error.column <= len(text)


TERMS = st.sampled_from(
    ["mm", "aten::t", "aten::add*", "kind:op", "kind:module,region", "module:fc", "dtype:f32"]
    + ["shape:[*,8]", "depth>1", "err", "in:Net", "has:aten::t", "thread:worker", "device:meta"]
    + ["key:CPU", "stride:(1,4)", "id<4"]
)
FILTERS = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        st.builds("{} {}".format, inner, inner),
        st.builds("({} | {})".format, inner, inner),
        st.builds("!({})".format, inner),
    ),
    max_leaves=6,
)


@given(text=FILTERS)
def test_columns_select_what_one_event_at_a_time_would(trace: di.Trace, text: str) -> None:
    node = parse(text)
    expected = [event.id for event in trace.events if holds(node, event)]
    assert [event.id for event in trace.where(text)] == expected


def holds(node: Any, event: di.Event) -> bool:
    """The meaning of a filter, said again without columns."""
    if isinstance(node, Not):
        return not holds(node.inner, event)
    if isinstance(node, All):
        return all(holds(part, event) for part in node.parts)
    if isinstance(node, Either):
        return any(holds(part, event) for part in node.parts)
    return any(_item_holds(node, item.text, event) for item in node.items)


def _item_holds(term: Term, text: str, event: di.Event) -> bool:
    tensors = [one for v in (*event.args.values(), *event.outputs) for one in tensors_in(v)]
    match term.field:
        case "name":
            if "*" in text:
                return event.name.startswith(text.rstrip("*"))
            return re.search(rf"(^|[.:]){re.escape(text)}($|[.:])", event.name) is not None
        case "kind":
            return event.kind == text
        case "module":
            return text in (event.module, event.module_name)
        case "dtype":
            return any(one.dtype == "float32" for one in tensors)
        case "shape":
            return any(len(one.shape or ()) == 2 and (one.shape or ())[1] == 8 for one in tensors)
        case "stride":
            return any(one.strides == (1, 4) for one in tensors)
        case "device":
            return any(one.device == text for one in tensors)
        case "depth":
            return event.depth > 1
        case "id":
            return event.id < 4
        case "err":
            return event.error is not None
        case "thread":
            return event.thread == text
        case "key":
            return event.key == text
        case "in":
            parent = event.parent
            while parent is not None:
                if _item_holds(Term("name", ":", term.items, 0), text, parent):
                    return True
                parent = parent.parent
            return False
        case "has":
            inner = Term("name", ":", term.items, 0)
            return any(
                _item_holds(inner, text, child) or _item_holds(term, text, child)
                for child in event.children
            )
    raise AssertionError(term)


def test_statistics_count_recursion_once(tmp_path: Path) -> None:
    text = "module Net\n  module Net\n    aten::mm\n  aten::mm\naten::mm !ValueError"
    trace = di.load(traces.build(tmp_path / "t.dtrace", text))
    rows = {row.group: row for row in trace.stats()}
    assert (rows["Net"].calls, rows["aten::mm"].calls, rows["aten::mm"].errors) == (2, 3, 1)
    outer, inner = trace.events[0], trace.events[1]
    assert rows["Net"].total_ns == outer.duration_ns
    assert rows["Net"].self_ns == (outer.self_ns or 0) + (inner.self_ns or 0)
    assert sum(row.share for row in rows.values()) == pytest.approx(1)
    assert next(row.group for row in trace.stats(sort="calls")) == "aten::mm"
    with pytest.raises(di.UsageError, match="cannot group by 'colour'"):
        trace.stats(by="colour")


def test_equal_siblings_fold_and_different_ones_do_not(tmp_path: Path) -> None:
    text = "\n".join(
        ["aten::a  f32[2]\n  aten::b  f32[2]"] * 3
        + ["aten::a  f32[2]\n  aten::b  f32[3]"]
        + ["aten::a  f32[2]"] * 2
    )
    trace = di.load(traces.build(tmp_path / "t.dtrace", text))
    lines = [line.split("  #")[0] for line in trace.tree().splitlines()]
    assert lines == [
        "aten::a  f32[2]",
        "  aten::b  f32[2]",
        "aten::a  f32[2]",
        "  aten::b  f32[3]",
        "aten::a  f32[2]",
    ]
    assert "×3" in trace.tree().splitlines()[0]
    assert len(trace.tree(fold=False).splitlines()) == 10


def test_a_printed_tree_can_be_parsed_back(trace: di.Trace) -> None:
    from dispatch_inspect.notation import parse_tree, print_tree

    plain = "\n".join(line.split("  # ")[0] for line in trace.tree(fold=False).splitlines())
    assert print_tree(parse_tree(trace.tree(fold=False))) == plain


def test_no_match_says_what_there_is(trace: di.Trace) -> None:
    assert "aten::mm" in trace.tree(where="nothing::here")
    assert trace.tree(where="aten::t").count("context") == 3
