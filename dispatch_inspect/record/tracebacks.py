"""Tracebacks as they would be without the tracer."""

from __future__ import annotations

import os
from types import CodeType, TracebackType
from typing import NamedTuple

import torch

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OVERRIDES = _TORCH + "overrides.py"
_OPS = _TORCH + "_ops.py"


class _Step(NamedTuple):
    traceback: TracebackType
    code: CodeType
    file: str


def without_ours(error: BaseException) -> BaseException:
    """Takes the tracer's frames out of an exception's traceback, and of those chained to it."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _cleaned(one.__traceback__)
        todo += [one.__cause__, one.__context__]
        todo += getattr(one, "exceptions", ())
    return error


def _cleaned(traceback: TracebackType | None) -> TracebackType | None:
    steps: list[_Step] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        steps.append(_Step(traceback, code, os.path.abspath(code.co_filename)))
        traceback = traceback.tb_next
    rebuilt: TracebackType | None = None
    for step in reversed(_kept(steps)):
        found = step.traceback
        rebuilt = TracebackType(rebuilt, found.tb_frame, found.tb_lasti, found.tb_lineno)
    return rebuilt


def _kept(steps: list[_Step]) -> list[_Step]:
    """The steps that there would be without modes."""
    kept: list[_Step] = []
    place = 0
    while place < len(steps):
        step = steps[place]
        if not step.file.startswith(_OURS) and step.file != "<frozen runpy>":
            kept.append(step)
            place += 1
            continue
        while place < len(steps) and steps[place].file.startswith(_OURS):
            place += 1
        following = steps[place] if place < len(steps) else None
        _drop_override(kept, following)
        if (
            following is not None
            and following.file == _OPS
            and following.code.co_name == "__call__"
        ):
            # the handler's own call of the operator
            place += 1
        elif following is step:
            place += 1
    return kept


def _is_operator_call(step: _Step) -> bool:
    return step.file == _OPS and step.code.co_name == "__call__"


def _drop_override(kept: list[_Step], following: _Step | None) -> None:
    """Takes back the way into the function mode: a Python function that handed itself over."""
    if kept and kept[-1].file == _OVERRIDES and kept[-1].code.co_name == "handle_torch_function":
        kept.pop()
        if following is not None and kept and kept[-1].code is following.code:
            kept.pop()
