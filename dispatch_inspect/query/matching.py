"""How the values of a filter match texts, numbers and shapes."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from typing import Any

from dispatch_inspect.notation import LONG_DTYPES
from dispatch_inspect.query.filter import Item, Term

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    ":": operator.eq,
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_GLOB = re.compile(r"[*?]")


def text_matcher(term: Term) -> Callable[[str], bool]:
    """Whether a text matches a term: whole, by glob, or by a regular expression anywhere in it."""
    tests = [_test(item, parts=False) for item in term.items]
    return lambda text: any(test(text) for test in tests)


def name_matcher(term: Term) -> Callable[[str], bool]:
    """Likewise for names, where a plain word may be any run of whole parts of the name.

    ``mm`` matches ``aten::mm`` but not ``aten::addmm``; ``aten::add`` matches every overload.
    """
    tests = [_test(item, parts=term.op == ":") for item in term.items]
    return lambda text: any(test(text) for test in tests)


def _test(item: Item, parts: bool) -> Callable[[str], bool]:
    if item.match == "regex":
        found = re.compile(item.text)
        return lambda text: found.search(text) is not None
    if item.match == "glob" and _GLOB.search(item.text):
        # only * and ? are wild: names hold brackets
        pattern = re.compile(translate(item.text.replace("[", "[[]")))
        return lambda text: pattern.match(text) is not None
    if item.match == "exact" or not parts:
        return lambda text: text == item.text
    bounded = re.compile(rf"(?:^|[.:#]){re.escape(item.text)}(?:$|[.:#])")
    return lambda text: bounded.search(text) is not None


def file_matcher(term: Term) -> Callable[[str], bool]:
    """Whether a path, or its last parts, matches: ``file:train.py``, ``file:models/net.py``."""
    matches = text_matcher(term)

    def test(path: str) -> bool:
        parts = path.replace("\\", "/").split("/")
        return any(matches("/".join(parts[begin:])) for begin in range(len(parts)))

    return test


def dtype_matcher(term: Term) -> Callable[[str], bool]:
    """Whether a dtype matches by its long or short name."""
    items = tuple(
        Item(LONG_DTYPES.get(item.text, item.text.removeprefix("torch.")), item.match)
        for item in term.items
    )
    return text_matcher(Term(term.field, term.op, items, term.column))


def shape_matcher(term: Term) -> Callable[[Iterable[Any] | None], bool]:
    """Whether sizes match; ``*`` is any one size, ``...`` any number of them."""
    patterns = [
        re.compile(
            "".join(
                r"(?:[^,]*,)*"
                if size == "..."
                else r"[^,]*,"
                if size == "*"
                else re.escape(size) + ","
                for size in item.sizes or ()
            )
        )
        for item in term.items
    ]

    def test(sizes: Iterable[Any] | None) -> bool:
        if sizes is None:
            return False
        text = "".join(f"{size}," for size in sizes)
        return any(pattern.fullmatch(text) for pattern in patterns)

    return test
