"""The filter language: text to a tree of terms that know where they stand in the text.

    filter = all {"|" all}      all = term {term}            a space is AND
    term   = ["!"] ( "(" filter ")" | field op value | word )
    value  = item {"," item}                                 a comma is OR, inside [ ] a size

A word, ``*glob*``, ``/regex/`` or ``"quoted"`` matches the name; ``::`` is never a field mark.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from dispatch_inspect.errors import FilterError

#: field -> what it is compared with
FIELDS = {
    "name": "text",
    "kind": "text",
    "key": "text",
    "module": "text",
    "file": "text",
    "thread": "text",
    "device": "text",
    "dtype": "text",
    "mode": "text",
    "err": "text",
    "alias": "text",
    "op": "text",
    "shape": "shape",
    "stride": "shape",
    "depth": "number",
    "id": "number",
    "dur": "duration",
    "self": "duration",
    "in": "tree",
    "has": "tree",
}
_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_FIELD = re.compile(r"([A-Za-z_]+)(:(?!:)|<=|>=|<|>|=)")
_BREAKS = " \t\n|()"


@dataclass(frozen=True, slots=True)
class Item:
    """One alternative of a value: a text to match, a number, or the sizes of a shape."""

    text: str
    #: "glob" (plain text too), "regex" or "exact" (it was quoted)
    match: str = "glob"
    number: float | None = None
    sizes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """``field op value``; a bare word is ``name:word``."""

    field: str
    op: str
    items: tuple[Item, ...]
    column: int


@dataclass(frozen=True, slots=True)
class Not:
    """What does not match ``inner``."""

    inner: Node


@dataclass(frozen=True, slots=True)
class All:
    """What matches every one of ``parts``; everything when there are none."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """What matches at least one of ``parts``."""

    parts: tuple[Node, ...]


Node = Term | Not | All | Either


def parse(text: str) -> Node:
    """The tree of a filter. Raises FilterError with the column of the fault."""
    parser = _Parser(text)
    node = parser.any_()
    if parser.at < len(text):
        raise parser.error("a ) without its (", parser.at)
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def error(self, message: str, column: int, hint: str = "") -> FilterError:
        return FilterError(message, self.text, column, hint)

    def any_(self) -> Node:
        parts = [self.all_()]
        while self._peek() == "|":
            bar = self.at
            self.at += 1
            self._skip()
            if self._peek() in ("", "|", ")"):
                raise self.error("nothing after |", bar)
            parts.append(self.all_())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def all_(self) -> Node:
        parts: list[Node] = []
        self._skip()
        while self._peek() not in ("", "|", ")"):
            parts.append(self._term())
            self._skip()
        if not parts and self._peek() == "|":
            raise self.error("nothing before |", self.at)
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _term(self) -> Node:
        if self._peek() == "!":
            mark = self.at
            self.at += 1
            if self._peek() in ("", "|", ")", " "):
                raise self.error("nothing after !", mark)
            return Not(self._term())
        if self._peek() == "(":
            opening = self.at
            self.at += 1
            inner = self.any_()
            if self._peek() != ")":
                raise self.error("this ( is not closed", opening)
            self.at += 1
            return inner
        return self._atom()

    def _atom(self) -> Node:
        begin = self.at
        match = _FIELD.match(self.text, self.at)
        if match is None:
            if self._word_here() == "err":
                self.at += 3
                return Term("err", ":", (Item("*"),), begin)
            return Term("name", ":", self._items("text", begin), begin)
        field, op = match[1], match[2]
        if field not in FIELDS:
            near = difflib.get_close_matches(field, FIELDS, 1, 0.5)
            raise self.error(
                f"unknown field {field!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
                begin,
                f"fields: {' '.join(FIELDS)}",
            )
        kind = FIELDS[field]
        if op in ("<", "<=", ">", ">=") and kind not in ("number", "duration"):
            raise self.error(f"{field} has no order; use {field}:value", match.start(2))
        self.at = match.end()
        return Term("name" if field == "op" else field, op, self._items(kind, begin), begin)

    def _word_here(self) -> str:
        match = re.compile(rf"[^{re.escape(_BREAKS)}]+").match(self.text, self.at)
        return match[0] if match else ""

    def _items(self, kind: str, term: int) -> tuple[Item, ...]:
        items = [self._item(kind, term)]
        while self._peek() == ",":
            self.at += 1
            items.append(self._item(kind, term))
        return tuple(items)

    def _item(self, kind: str, term: int) -> Item:
        begin = self.at
        opening = self._peek()
        if kind != "shape" and opening in ('"', "/"):
            end = self.text.find(opening, begin + 1)
            if end < 0:
                raise self.error(f"this {opening} is not closed", begin)
            self.at = end + 1
            text = self.text[begin + 1 : end]
            if opening == "/":
                return self._regex(text, begin)
            return self._valued(Item(text, "exact"), kind, begin)
        if kind == "shape":
            return self._shape(begin)
        depth = 0
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter in "[":
                depth += 1
            elif letter == "]":
                depth -= 1
            elif depth <= 0 and (letter in _BREAKS or letter == ","):
                break
            self.at += 1
        if self.at == begin:
            raise self.error("a value is missing here", begin if begin > term else term)
        return self._valued(Item(self.text[begin : self.at]), kind, begin)

    def _regex(self, text: str, begin: int) -> Item:
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            place = getattr(error, "pos", None) or 0
            raise self.error(f"not a regular expression: {error}", begin + 1 + place) from None
        return Item(text, "regex")

    def _valued(self, item: Item, kind: str, begin: int) -> Item:
        if kind == "number":
            if not re.fullmatch(r"-?\d{1,18}", item.text):
                raise self.error(f"not a whole number: {item.text!r}", begin)
            return Item(item.text, number=int(item.text))
        if kind == "duration":
            match = re.fullmatch(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s)?", item.text)
            if match is None:
                raise self.error(
                    f"not a duration: {item.text!r}", begin, "durations: 250ns 10us 1.5ms 2s"
                )
            return Item(item.text, number=float(match[1]) * _UNITS[match[2] or "ns"])
        return item

    def _shape(self, begin: int) -> Item:
        match = re.compile(r"\[([^\[\]]*)\]|\(([^()]*)\)").match(self.text, begin)
        if match is None:
            raise self.error("a shape is written [2,3] or [*,128]", begin)
        self.at = match.end()
        inside = match[1] if match[1] is not None else match[2]
        sizes = tuple(one.strip() for one in inside.split(",")) if inside.strip() else ()
        for size in sizes:
            if not re.fullmatch(r"-?\d{1,18}|\*|\.\.\.|[A-Za-z_]\w*", size):
                raise self.error(f"not a size: {size!r}", begin)
        return Item(match[0], sizes=sizes)

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _skip(self) -> None:
        while self._peek() in (" ", "\t", "\n"):
            self.at += 1
