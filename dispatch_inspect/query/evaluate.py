"""Which events of a trace match a filter: one lookup a record, then numpy over the columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dispatch_inspect.errors import FilterError
from dispatch_inspect.query import derived
from dispatch_inspect.query.filter import All, Either, Node, Not, Term, parse
from dispatch_inspect.query.matching import (
    COMPARE,
    dtype_matcher,
    file_matcher,
    name_matcher,
    shape_matcher,
    text_matcher,
)
from dispatch_inspect.store.layout import KINDS
from dispatch_inspect.store.reader import StoredTrace

Array = np.ndarray[Any, Any]
MODES = ("grad", "no_grad", "inference", "autocast")


def select(trace: StoredTrace, where: str | Node) -> Array:
    """For each event, whether it matches. Raises FilterError for a text that is no filter."""
    text = where if isinstance(where, str) else ""
    node = parse(where) if isinstance(where, str) else where
    return _Evaluator(trace, text).evaluate(node)


class _Evaluator:
    def __init__(self, trace: StoredTrace, text: str) -> None:
        self._trace = trace
        self._text = text

    def evaluate(self, node: Node) -> Array:
        if isinstance(node, Not):
            return ~self.evaluate(node.inner)
        if isinstance(node, (All, Either)):
            parts = [self.evaluate(part) for part in node.parts]
            combine = np.logical_and if isinstance(node, All) else np.logical_or
            found = np.full(len(self._trace), isinstance(node, All))
            for part in parts:
                found = combine(found, part)
            return found
        return self._term(node)

    def _term(self, term: Term) -> Array:
        trace = self._trace
        match term.field:
            case "name":
                matches = name_matcher(term)
                return self._pointed("name", "names", lambda one: matches(one.name))
            case "module":
                matches = text_matcher(term)
                return self._pointed(
                    "module",
                    "names",
                    lambda one: one.kind == "module" and (matches(one.path) or matches(one.name)),
                )
            case "kind":
                matches = text_matcher(term)
                known = (matches("unknown"), *map(matches, KINDS))
                return _lookup(known, trace.column("kind"), matches("unknown"))
            case "key":
                matches = text_matcher(term)
                codes, names = derived.keys_of(trace)
                return _lookup([False, *map(matches, names)], codes)
            case "thread":
                matches = text_matcher(term)
                return _lookup([matches(lane.thread) for lane in trace.lanes], trace.column("lane"))
            case "file":
                matches = file_matcher(term)
                files = derived.files_of(trace)
                return _lookup([bool(one) and matches(one) for one in files], trace.column("stack"))
            case "mode":
                return self._pointed("state", "states", self._mode_matcher(term))
            case "err":
                matches = name_matcher(term)
                return self._pointed("error", "errors", lambda one: matches(one.type))
            case "alias":
                return self._alias(term)
            case "dtype" | "device" | "shape" | "stride":
                return self._tensors(term)
            case "in" | "has":
                return self._tree(term)
            case _:
                return self._number(term)

    def _pointed(self, column: str, table: str, test: Callable[[Any], bool]) -> Array:
        """Events whose pointer in ``column`` leads to a record that passes ``test``."""
        records = self._trace.table(table)
        passes = [False] * (len(records) + 1)
        for place in range(len(records)):
            record = records[place]
            passes[place + 1] = record is not None and test(record)
        return _lookup(passes, self._trace.column(column))

    def _number(self, term: Term) -> Array:
        trace = self._trace
        values: Array
        match term.field:
            case "depth":
                values = trace.column("depth")
            case "id":
                values = np.arange(len(trace))
            case "dur":
                values = derived.durations(trace)
            case _:
                values = derived.self_times(trace)
        compare = COMPARE[term.op]
        found = np.zeros(len(self._trace), bool)
        for item in term.items:
            found |= compare(values, item.number)
        if term.field in ("dur", "self"):
            found &= values >= 0
        return found

    def _mode_matcher(self, term: Term) -> Callable[[Any], bool]:
        for item in term.items:
            if item.match == "glob" and item.text not in MODES:
                raise FilterError(
                    f"unknown mode {item.text!r}",
                    self._text,
                    term.column,
                    f"modes: {' '.join(MODES)}",
                )
        matches = text_matcher(term)

        def test(state: Any) -> bool:
            known = ("grad" if state.grad else "no_grad", "inference" if state.inference else "")
            return any(map(matches, filter(None, known))) or (
                bool(state.autocast) and matches("autocast")
            )

        return test

    def _tensors(self, term: Term) -> Array:
        """Events with a matching tensor among their arguments or outputs."""
        trace = self._trace
        test = _tensor_test(term)
        records = trace.table("descriptors")
        passes = [False] * (len(records) + 1)
        for place in range(len(records)):
            record = records[place]
            passes[place + 1] = record is not None and test(record)
        found = np.zeros(len(trace), bool)
        if any(passes) and len(found):
            hits = _lookup(passes, trace.operand_column("operand_descriptor"))
            found[trace.operand_column("operand_event")[hits]] = True
        return found

    def _tree(self, term: Term) -> Array:
        inner = Term("name", term.op, term.items, term.column)
        matching = self._term(inner)
        ends = self._trace.column("subtree_end").astype(np.int64)
        if term.field == "has":
            counts = np.concatenate([[0], np.cumsum(matching)])
            after = np.arange(len(ends)) + 1
            return np.asarray(counts[ends] > counts[after], bool)
        rows = np.flatnonzero(matching)
        changes = np.zeros(len(ends) + 2, np.int64)
        np.add.at(changes, rows + 1, 1)
        np.add.at(changes, ends[rows], -1)
        return np.asarray(np.cumsum(changes)[: len(ends)] > 0)

    def _alias(self, term: Term) -> Array:
        """``alias:yes`` and ``alias:no``, or the name of an argument that an output aliases."""
        shares: Array = derived.aliasing(self._trace)
        matches = text_matcher(term)
        found = np.zeros(len(self._trace), bool)
        if matches("no"):
            found |= ~shares & (self._trace.column("result") > 0)
        if matches("yes"):
            found |= shares
            return found
        for row in np.flatnonzero(shares).tolist():
            found[row] |= any(matches(name) for _, name in self._trace.event(row).aliases)
        return found


def _tensor_test(term: Term) -> Callable[[Any], bool]:
    """Whether a descriptor passes a term on dtype, device, shape or stride."""
    if term.field in ("shape", "stride"):
        of_sizes = shape_matcher(term)
        attribute = "shape" if term.field == "shape" else "strides"
        return lambda one: of_sizes(getattr(one, attribute))
    matches = dtype_matcher(term) if term.field == "dtype" else text_matcher(term)
    return lambda one: matches(getattr(one, term.field) or "")


def _lookup(passes: Sequence[bool], codes: Array, otherwise: bool = False) -> Array:
    """``passes`` for each code; ``otherwise`` for codes it has no place for."""
    table = np.asarray([*passes, otherwise], bool)
    if len(codes) and (table == table[0]).all():
        return np.full(len(codes), table[0])
    return np.take(table, codes, mode="clip")
