"""Takes this tool's modes off a thread's mode stacks for a while, wherever they stand in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch._C import (
    _get_dispatch_stack_at,
    _get_function_stack_at,
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
    _pop_torch_dispatch_stack,
    _pop_torch_function_stack,
    _push_on_torch_dispatch_stack,
    _push_on_torch_function_stack,
)

from dispatch_inspect.record.calls import FunctionMode, OperatorMode

#: modes that were taken out, each with the number of modes that were below it
Taken = list[tuple[int, Any]]


class _Stack:
    """One of PyTorch's two mode stacks of the calling thread."""

    def __init__(
        self,
        length: Callable[[], int],
        at: Callable[[int], Any],
        pop: Callable[[], Any],
        push: Callable[[Any], None],
    ) -> None:
        self._length = length
        self._at = at
        self._pop = pop
        self._push = push

    def take_out(self, chosen: Callable[[Any], bool]) -> Taken:
        """Removes the modes that are ``chosen``; the others keep their order."""
        modes = [self._at(place) for place in range(self._length())]
        places = [place for place, mode in enumerate(modes) if chosen(mode)]
        if not places:
            return []
        for _ in modes[places[0] :]:
            self._pop()
        for mode in modes[places[0] :]:
            if not chosen(mode):
                self._push(mode)
        return [(place, modes[place]) for place in places]

    def put_back(self, taken: Taken) -> None:
        """Puts modes back where they stood, or on top when the stack has become shorter."""
        for place, mode in taken:
            above = [self._pop() for _ in range(max(0, self._length() - place))]
            self._push(mode)
            for other in reversed(above):
                self._push(other)


functions = _Stack(
    _len_torch_function_stack,
    _get_function_stack_at,
    _pop_torch_function_stack,
    _push_on_torch_function_stack,
)
operators = _Stack(
    _len_torch_dispatch_stack,
    _get_dispatch_stack_at,
    lambda: _pop_torch_dispatch_stack(None),
    _push_on_torch_dispatch_stack,
)


@contextmanager
def without_function_modes() -> Iterator[None]:
    """Runs a block as if this tool's function modes were not there."""
    taken = functions.take_out(lambda mode: isinstance(mode, FunctionMode))
    try:
        yield
    finally:
        functions.put_back(taken)


@contextmanager
def without_modes() -> Iterator[None]:
    """Runs a block as if none of this tool's modes were there."""
    taken = operators.take_out(lambda mode: isinstance(mode, OperatorMode))
    try:
        with without_function_modes():
            yield
    finally:
        operators.put_back(taken)
