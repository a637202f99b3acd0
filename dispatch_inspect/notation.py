"""The one text form of events, tensors and patterns: shown, printed, copied, asserted.

    module Net.fc  f32[2,4] -> f32[2,8]
      aten::addmm  f32[8], f32[2,4], f32[4,8](1,4) -> f32[2,8]
        aten::addmm @CPU
      ...

A line is a call: its kind (left out for operators and hops, whose names hold ``::``), its name,
``@Key`` for a hop, tensors that go in, and after ``->`` those that come out. Two spaces are a
child; ``...`` stands for any siblings; names may hold ``*``. A tensor is its dtype and shape,
its strides when it is not contiguous, its layout before and its device after when they are not
strided and cpu: ``sparse_coo:f32[3,3]``, ``f32[2]@meta``. ``!RuntimeError`` ends the line of a
call that raised, ``!open`` that of one without an end. What follows `` # `` is a comment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dispatch_inspect.errors import NotationError

#: PyTorch's dtype names -> the short names PyTorch uses in its own listings
SHORT_DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "complex128": "c128",
    "complex64": "c64",
    "complex32": "c32",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
    "uint8": "u8",
    "bool": "b8",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float8_e8m0fnu": "f8e8m0fnu",
}
LONG_DTYPES = {short: name for name, short in SHORT_DTYPES.items()}
KIND_WORDS = ("module", "function", "region")

Size = int | str


@dataclass(frozen=True, slots=True)
class TensorPattern:
    """A tensor as it is written; None matches anything."""

    dtype: str | None = None
    shape: tuple[Size, ...] | None = None
    #: only written when the tensor is not contiguous
    strides: tuple[Size, ...] | None = None
    layout: str = "strided"
    device: str = "cpu"

    def __str__(self) -> str:
        text = "" if self.layout == "strided" else f"{self.layout}:"
        text += "?" if self.dtype is None else SHORT_DTYPES.get(self.dtype, self.dtype)
        if self.shape is not None:
            text += f"[{','.join(map(str, self.shape))}]"
        if self.strides is not None:
            text += f"({','.join(map(str, self.strides))})"
        return text if self.device == "cpu" else f"{text}@{self.device}"


#: a tensor, or a list of them
Operand = TensorPattern | tuple[TensorPattern, ...]


@dataclass(frozen=True, slots=True)
class CallPattern:
    """A call as it is written, with the calls below it; None for what was left out."""

    name: str
    kind: str = "op"
    key: str | None = None
    inputs: tuple[Operand, ...] | None = None
    outputs: tuple[Operand, ...] | None = None
    error: str | None = None
    children: tuple[CallPattern | AnySiblings, ...] = ()

    def __str__(self) -> str:
        """The call's own line."""
        text = f"{self.kind} {self.name}" if self.kind in KIND_WORDS else self.name
        if self.key is not None:
            text += f" @{self.key}"
        if self.inputs:
            text += f"  {_operands(self.inputs)}"
        elif self.inputs is not None:
            text += "  ()"
        if self.outputs is not None:
            text += f" -> {_operands(self.outputs) or '()'}"
        return text if self.error is None else f"{text} !{self.error}"


@dataclass(frozen=True, slots=True)
class AnySiblings:
    """``...``: any calls, or none."""

    def __str__(self) -> str:
        return "..."


def _operands(operands: tuple[Operand, ...]) -> str:
    return ", ".join(
        f"[{', '.join(map(str, one))}]" if isinstance(one, tuple) else str(one) for one in operands
    )


def print_tree(calls: tuple[CallPattern | AnySiblings, ...], depth: int = 0) -> str:
    """The text of a tree of calls, one line each."""
    lines = []
    for call in calls:
        lines.append("  " * depth + str(call))
        if isinstance(call, CallPattern) and call.children:
            lines.append(print_tree(call.children, depth + 1))
    return "\n".join(lines)


_SIZE = r"(?:-?\d+|[A-Za-z_][\w*+\-/ ()]*?|\*|\?)"
_TENSOR = re.compile(
    rf"(?:(?P<layout>[a-z_]+):)?(?P<dtype>\?|[A-Za-z][A-Za-z0-9_]*)"
    rf"(?:\[(?P<shape>(?:{_SIZE}(?:,{_SIZE})*)?)\])?"
    rf"(?:\((?P<strides>(?:{_SIZE}(?:,{_SIZE})*)?)\))?"
    r"(?:@(?P<device>[a-z_]+(?::\d+)?))?$"
)
_HEAD = re.compile(
    r"(?:(?P<kind>module|function|region) )?(?P<name>.+?)(?: @(?P<key>[A-Za-z]\w*))?$"
)


@dataclass
class _Line:
    text: str
    number: int
    depth: int
    call: CallPattern | AnySiblings
    children: list[_Line] = field(default_factory=list)

    def tree(self) -> CallPattern | AnySiblings:
        if isinstance(self.call, AnySiblings):
            return self.call
        return CallPattern(
            self.call.name,
            self.call.kind,
            self.call.key,
            self.call.inputs,
            self.call.outputs,
            self.call.error,
            tuple(child.tree() for child in self.children),
        )


def parse_tree(text: str) -> tuple[CallPattern | AnySiblings, ...]:
    """The calls that a text writes. Raises NotationError with line and column."""
    roots: list[_Line] = []
    above: list[_Line] = []
    lines = text.splitlines()
    margin = min(
        (_indent(line) for line in lines if line.strip() and line.strip()[0] != "#"), default=0
    )
    for number, raw in enumerate(lines, start=1):
        if not raw.strip() or raw.lstrip().startswith("#"):
            continue
        indent = _indent(raw) - margin
        if indent % 2 or indent // 2 > len(above):
            raise NotationError(
                "a child is two spaces deeper than its parent", raw, number, indent + margin
            )
        depth = indent // 2
        del above[depth:]
        line = _Line(raw, number, depth, parse_line(raw.strip(), number))
        if above and isinstance(above[-1].call, AnySiblings):
            raise NotationError("`...` has no children", raw, number, indent + margin)
        (above[-1].children if above else roots).append(line)
        above.append(line)
    return tuple(line.tree() for line in roots)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def parse_line(text: str, number: int = 1) -> CallPattern | AnySiblings:
    """The call that one line writes, without children."""
    if text == "...":
        return AnySiblings()
    rest, error = re.sub(r"\s+#(?:\s.*)?$", "", text), None
    if rest == "...":
        return AnySiblings()
    raised = re.search(r" !([\w.]+)$", rest)
    if raised:
        error, rest = raised[1], rest[: raised.start()]
    head, arrow, after = rest.partition(" -> ")
    head, gap, before = head.partition("  ")
    match = _HEAD.match(head.strip())
    if match is None:
        raise NotationError("a call begins with its name", text, number, 0)
    kind = match["kind"] or ("hop" if match["key"] else "op")
    return CallPattern(
        name=match["name"],
        kind=kind,
        key=match["key"],
        inputs=_parse_operands(before, text, number) if gap else None,
        outputs=_parse_operands(after, text, number) if arrow else None,
        error=error,
    )


def _parse_operands(text: str, line: str, number: int) -> tuple[Operand, ...]:
    text = text.strip()
    if text in ("", "()"):
        return ()
    found: list[Operand] = []
    for part in _split(text):
        part = part.strip()
        if part.startswith("[") and part.endswith("]"):
            inner = part[1:-1].strip()
            found.append(
                tuple(parse_tensor(one.strip(), line, number) for one in _split(inner))
                if inner
                else ()
            )
        else:
            found.append(parse_tensor(part, line, number))
    return tuple(found)


def _split(text: str) -> list[str]:
    """The parts between commas that are not inside brackets."""
    parts, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        if letter in "[(":
            depth += 1
        elif letter in "])":
            depth -= 1
        elif letter == "," and not depth:
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]]


def parse_tensor(text: str, line: str | None = None, number: int = 1) -> TensorPattern:
    """The tensor that ``f32[2,4](1,2)`` writes."""
    match = _TENSOR.match(text)
    if match is None:
        line = text if line is None else line
        raise NotationError(
            f"not a tensor: {text!r}",
            line,
            number,
            max(0, line.find(text)),
            "a tensor is a dtype and a shape: f32[2,4], with strides f32[2,4](1,2)",
        )
    dtype = match["dtype"]
    return TensorPattern(
        dtype=None if dtype == "?" else LONG_DTYPES.get(dtype, dtype),
        shape=_sizes(match["shape"]),
        strides=_sizes(match["strides"]),
        layout=match["layout"] or "strided",
        device=match["device"] or "cpu",
    )


def _sizes(text: str | None) -> tuple[Size, ...] | None:
    if text is None:
        return None
    if not text:
        return ()
    return tuple(int(one) if re.fullmatch(r"-?\d+", one) else one for one in text.split(","))
