"""Registrations made while a recording is on: dispatch tables asked before are true no longer."""

from __future__ import annotations

import _imp
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.library

from dispatch_inspect.record import forks, probe


def _changing(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def change(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        finally:
            for session in forks.followed():
                session.forget_operators()
            probe.look_again()

    return change


_LIBRARY = torch.library.Library
_CHANGERS = ("define", "impl", "fallback", "_destroy")

#: what stands in for the ways to register from Python, and to load libraries that do
PATCHES = (
    *(
        (_LIBRARY, name, _changing(vars(_LIBRARY)[name]))
        for name in _CHANGERS
        if name in vars(_LIBRARY)
    ),
    (type(torch.ops), "load_library", _changing(type(torch.ops).load_library)),
    # an extension module that is imported may register as it is loaded
    (_imp, "create_dynamic", _changing(_imp.create_dynamic)),
)
