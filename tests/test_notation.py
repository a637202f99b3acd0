"""The notation: what is printed can be parsed, and the other way round."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch_inspect import NotationError
from dispatch_inspect.notation import (
    SHORT_DTYPES,
    AnySiblings,
    CallPattern,
    TensorPattern,
    parse_line,
    parse_tensor,
    parse_tree,
    print_tree,
)

sizes = st.lists(st.integers(0, 99), max_size=4).map(tuple)
tensors = st.builds(
    TensorPattern,
    dtype=st.sampled_from([*SHORT_DTYPES, "quint8", None]),
    shape=sizes | st.none(),
    strides=st.none() | st.lists(st.integers(0, 99), min_size=1, max_size=4).map(tuple),
    layout=st.sampled_from(["strided", "sparse_coo", "sparse_csr", "jagged"]),
    device=st.sampled_from(["cpu", "meta", "cuda:1", "privateuseone:0"]),
)
operands = st.lists(tensors | st.lists(tensors, max_size=3).map(tuple), max_size=3).map(tuple)
words = st.text("abcz_9", min_size=1, max_size=6).map("x".__add__)


@st.composite
def calls(draw: st.DrawFn, depth: int = 0) -> CallPattern:
    kind = draw(st.sampled_from(["op", "hop", "module", "function", "region"]))
    name = f"{draw(words)}::{draw(words)}.{draw(words)}" if "op" in kind else draw(words)
    below = calls(depth + 1) | st.just(AnySiblings())
    return CallPattern(
        name=name,
        kind=kind,
        key="AutogradCPU" if kind == "hop" else None,
        inputs=draw(operands | st.none()),
        outputs=draw(operands | st.none()),
        error=draw(st.sampled_from([None, "RuntimeError", "open"])),
        children=tuple(draw(st.lists(below, max_size=2))) if depth < 2 else (),
    )


@given(tensors)
def test_tensors_are_read_as_they_were_written(tensor: TensorPattern) -> None:
    assert parse_tensor(str(tensor)) == tensor


@given(st.lists(calls(), max_size=3).map(tuple))
def test_trees_are_read_as_they_were_written(tree: tuple[CallPattern, ...]) -> None:
    text = print_tree(tree)
    assert parse_tree(text) == tree
    assert print_tree(parse_tree(text)) == text


@given(st.text(max_size=80))
def test_any_text_is_a_tree_or_a_clear_error(text: str) -> None:
    try:
        parse_tree(text)
    except NotationError as error:
        assert error.line >= 1
        assert error.column >= 0


def test_the_example_of_the_design() -> None:
    (call,) = parse_tree(
        "aten::addmm @AutogradCPU  f32[8], f32[2,4], f32[4,8] -> f32[2,8]\n  aten::addmm @CPU"
    )
    assert isinstance(call, CallPattern)
    assert (call.kind, call.key) == ("hop", "AutogradCPU")
    assert call.inputs is not None
    assert call.inputs[1] == TensorPattern("float32", (2, 4))
    assert call.children == (CallPattern("aten::addmm", "hop", "CPU"),)


def test_comments_are_left_out() -> None:
    assert parse_line("aten::mm  f32[2] -> f32[2]  # CPU, 41.2 µs") == parse_line(
        "aten::mm  f32[2] -> f32[2]"
    )
    assert parse_line("...  # nothing here") == AnySiblings()


@pytest.mark.parametrize(
    ("text", "words", "column"),
    [
        ("aten::mm  f32[2", "not a tensor", 10),
        ("aten::mm\n   aten::t", "two spaces", 3),
        ("aten::mm\n    aten::t", "two spaces", 4),
        ("...\n  aten::t", "no children", 2),
    ],
)
def test_errors_point_to_the_place(text: str, words: str, column: int) -> None:
    with pytest.raises(NotationError, match=words) as caught:
        parse_tree(text)
    assert caught.value.column == column
