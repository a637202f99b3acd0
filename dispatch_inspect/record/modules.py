"""The forwards of nn.Modules, under the qualified names by which they were reached.

A path follows the actual call: a module shared under two names is called by one of them. Hooks
would not see a forward that raised, so ``nn.Module.__call__`` itself is replaced while a
recording is on.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from dispatch_inspect.record import active, fastpath
from dispatch_inspect.store.records import ModuleName
from dispatch_inspect.store.table_writer import TableWriter

if TYPE_CHECKING:
    from dispatch_inspect.record.session import Session


class Reached(NamedTuple):
    """A running module: the object, its root's class, its path below it, and its name's number."""

    module: nn.Module
    root: str
    path: str
    number: int

    @property
    def name(self) -> str:
        """The class of the root and the path below it."""
        return f"{self.root}.{self.path}" if self.path else self.root


class ModuleNames:
    """Finds the names of modules from the modules whose forwards they are called in."""

    def __init__(self, table: TableWriter) -> None:
        self._table = table
        #: (parent, child) by address -> names to follow from the parent to the child
        self._routes: dict[tuple[int, int], tuple[str, ...]] = {}
        #: address -> the module and where it was last reached: for calls from outside any forward
        self._last: dict[int, tuple[weakref.ref[nn.Module], str, str]] = {}
        self._arguments: dict[type, tuple[str, ...]] = {}

    def reach(self, module: nn.Module, running: list[Reached]) -> Reached:
        """Where ``module`` is, called while the modules ``running`` (outermost first) run."""
        root, path = self._place(module, running)
        if len(self._last) > 65_536:
            self._last.clear()
            self._routes.clear()
        self._last[id(module)] = (weakref.ref(module), root, path)
        kind = type(module)
        number = self._table.intern(
            ("module", root, path, kind),
            lambda: ModuleName(
                kind="module",
                name=f"{root}.{path}" if path else root,
                path=path,
                type=f"{kind.__module__}.{kind.__qualname__}",
                root=root,
                arguments=self._parameters(kind),
            ),
        )
        return Reached(module, root, path, number)

    def _place(self, module: nn.Module, running: list[Reached]) -> tuple[str, str]:
        for enclosing in reversed(running):
            if enclosing.module is module:
                return enclosing.root, enclosing.path
            route = self._route(enclosing.module, module)
            if route:
                parts = (enclosing.path, *route) if enclosing.path else route
                return enclosing.root, ".".join(parts)
        last = self._last.get(id(module))
        if last is not None and last[0]() is module:
            # recomputed in backward, or called by itself: the name it is known by
            return last[1], last[2]
        return type(module).__name__, ""

    def _route(self, parent: nn.Module, child: nn.Module) -> tuple[str, ...]:
        """The names from ``parent`` to ``child``, or none."""
        children = vars(parent).get("_modules")
        if children is None:
            # a scripted module keeps its children elsewhere
            return ()
        for name, one in children.items():
            if one is child:
                return (name,)
        key = (id(parent), id(child))
        route = self._routes.get(key)
        if route is not None and _follow(parent, route) is child:
            return route
        for name, one in parent.named_modules():
            if one is child:
                route = tuple(name.split("."))
                self._routes[key] = route
                return route
        return ()

    def _parameters(self, kind: type[nn.Module]) -> tuple[str, ...]:
        found = self._arguments.get(kind)
        if found is None:
            try:
                found = tuple(inspect.signature(kind.forward).parameters)[1:]
            except (AttributeError, TypeError, ValueError):
                # no Python signature; a scripted class does not even show its forward
                found = ()
            self._arguments[kind] = found
        return found


def _follow(module: nn.Module | None, route: tuple[str, ...]) -> nn.Module | None:
    for name in route:
        if module is None:
            return None
        module = vars(module).get("_modules", {}).get(name)
    return module


_original: Callable[..., Any] = nn.Module.__call__


def _call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    sessions = active.sessions()
    if not sessions:
        return _original(self, *args, **kwargs)
    if isinstance(self, fastpath.MODULES):
        with fastpath.kept():
            return _recorded(sessions, self, args, kwargs)
    return _recorded(sessions, self, args, kwargs)


def _recorded(sessions: Sequence[Session], module: nn.Module, args: Any, kwargs: Any) -> Any:
    """Calls a module, recorded by each of ``sessions``."""
    if not sessions:
        return _original(module, *args, **kwargs)
    session, others = sessions[0], sessions[1:]
    thread = session.thread()
    if thread is None:
        return _recorded(others, module, args, kwargs)
    mark, running = len(thread.open), len(thread.modules)
    try:
        row = thread.begin_module(module, args, kwargs, "modules" in session.layers)
        thread.gate_hops()
        result = _recorded(others, module, args, kwargs)
        thread.end(row, result, False)
    except BaseException as error:
        args = kwargs = None
        try:
            thread.fail(mark, error)
        finally:
            # an interrupt may come even here, and what is open decides what is inside what
            del thread.open[mark:]
        raise
    finally:
        del thread.modules[running:]
        thread.gate_hops()
    return result


#: what stands in for ``nn.Module.__call__`` while a recording is on
PATCHES = ((nn.Module, "__call__", _call),)
