"""torch.compile under a recording: the same frames are compiled, and none of ours.

The compiler guards on the stack of function modes, so compiled code runs without this tool's:
inside it, operators are seen and functions are not. Each call of compiled code is a region.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from threading import local
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from torch import nn
from torch._C._dynamo.eval_frame import (
    _FrameAction,
    _FrameExecStrategy,
    set_code_exec_strategy,
)

from dispatch_inspect.record import active, modestacks
from dispatch_inspect.record.calls import FunctionMode
from dispatch_inspect.record.modules import PATCHES as MODULE_PATCHES

_EVAL_FRAME = "torch._dynamo.eval_frame"
_SWITCH = "_maybe_set_eval_frame"
_CALL = MODULE_PATCHES[0][2]
_UNPATCHED_CALL = nn.Module.__call__


class _ThreadState(local):
    """What the compiled code of a thread runs without, and what is to be undone when it ends."""

    def __init__(self) -> None:
        self.taken: modestacks.Taken | None = None
        #: frame of a wrapper -> what undoes, at its second switch, what its first one did
        self.undo: dict[int, Callable[[], None]] = {}


_state = _ThreadState()


def _switching(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Follows the compiler as it is switched on and off around compiled code.

    The wrapper of a compiled function switches it on, that of a disabled one off, and each
    switches back when it ends; the compiler itself uses disabled functions while it works.
    """

    def switch(callback: Any) -> Any:
        if active.sessions() or _state.taken is not None:
            caller = sys._getframe(1)
            undo = _state.undo.pop(id(caller), None)
            if undo is not None:
                undo()
            else:
                _begin(caller, _compiles(callback))
        return original(callback)

    return switch


def _compiles(callback: Any) -> bool:
    return callback is not None and callback is not False


def _begin(wrapper: FrameType, compiles: bool) -> None:
    name = wrapper.f_code.co_name
    if name == "compile_wrapper" and compiles:
        rows = _open_regions(wrapper.f_locals.get("fn"))
        outermost = _state.taken is None
        if outermost:
            _hide_modes()

        def end() -> None:
            if outermost:
                _show_modes()
            for thread, row in rows:
                thread.end_region(row)

        _state.undo[id(wrapper)] = end
    elif name == "_fn" and _state.taken is not None and _compiles(wrapper.f_locals.get("prior")):
        _show_modes()
        _state.undo[id(wrapper)] = _hide_modes
    elif name == "__enter__" and compiles and _state.taken is None:
        _hide_modes()
    elif name == "__exit__" and not compiles and _state.taken is not None:
        _show_modes()


def _hide_modes() -> None:
    _state.taken = modestacks.functions.take_out(lambda mode: isinstance(mode, FunctionMode))


def _show_modes() -> None:
    taken, _state.taken = _state.taken, None
    if taken is not None:
        modestacks.functions.put_back(taken)


def _open_regions(function: Any) -> list[tuple[Any, int]]:
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    threads = [thread for session in active.sessions() if (thread := session.thread())]
    return [(thread, thread.begin_region(name, "compiled")) for thread in threads]


def _patch(module: ModuleType) -> None:
    current = getattr(module, _SWITCH)
    if getattr(current, "_of_dispatch_inspect", None) is None:
        replacement = _switching(current)
        replacement._of_dispatch_inspect = current  # type: ignore[attr-defined]
        setattr(module, _SWITCH, replacement)


def _tell_compiler(call: Any) -> None:
    """Tells the compiler which ``nn.Module.__call__`` is the one it may look through."""
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        module = sys.modules.get(name)
        known = getattr(module, "unpatched_nn_module_call", None)
        if known in (_CALL, _UNPATCHED_CALL):
            module.unpatched_nn_module_call = call  # type: ignore[union-attr]


class _Finder(MetaPathFinder):
    """Waits for the compiler to be imported while a recording is on."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _EVAL_FRAME:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _PatchingLoader(spec.loader)
        return spec


class _PatchingLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _patch(module)


_finder = _Finder()


def install() -> None:
    """Follows the compiler from now on."""
    _hide_frames()
    module = sys.modules.get(_EVAL_FRAME)
    if module is not None:
        _patch(module)
    else:
        sys.meta_path.insert(0, _finder)
    _tell_compiler(_CALL)


def uninstall() -> None:
    """Leaves the compiler as it was."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    module = sys.modules.get(_EVAL_FRAME)
    original = getattr(getattr(module, _SWITCH, None), "_of_dispatch_inspect", None)
    if original is not None:
        setattr(module, _SWITCH, original)
    _tell_compiler(_UNPATCHED_CALL)


_hidden = False


def _hide_frames() -> None:
    """Keeps the compiler from compiling this tool's own functions."""
    global _hidden
    if _hidden:
        return
    _hidden = True
    for name, module in list(sys.modules.items()):
        if name.startswith(("dispatch_inspect.record", "dispatch_inspect.store")):
            for thing in list(vars(module).values()):
                if getattr(thing, "__module__", None) == name:
                    _hide(thing)


def _hide(thing: Any) -> None:
    if isinstance(thing, FunctionType):
        _hide_code(thing.__code__)
    elif isinstance(thing, type):
        for member in vars(thing).values():
            inner = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
            if isinstance(inner, FunctionType):
                _hide_code(inner.__code__)


def _hide_code(code: CodeType) -> None:
    # only the frame itself is skipped: what it calls is the program's
    set_code_exec_strategy(code, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.DEFAULT))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _hide_code(constant)
