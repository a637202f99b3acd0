"""Keeps the fused paths of attention modules, which ask whether any function mode is on.

``nn.MultiheadAttention`` and the transformer encoder modules call ``torch.overrides.
has_torch_function`` and leave their fast path when it says yes, as it does under any
TorchFunctionMode: other kernels would run and results differ. While such a module runs, the
question is answered as if this tool's modes were not there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.overrides
from torch import nn

from dispatch_inspect.record import modestacks

#: modules whose forward asks
MODULES = (nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerEncoderLayer)

_original = torch.overrides.has_torch_function
_lock = threading.Lock()
_users = 0


def _has_torch_function(args: Iterable[Any]) -> bool:
    with modestacks.without_function_modes():
        return _original(args)


@contextmanager
def kept() -> Iterator[None]:
    """Lets attention modules decide as they would without this tool.

    The function is replaced only for so long: the compiler knows it by identity.
    """
    global _users
    with _lock:
        _users += 1
        torch.overrides.has_torch_function = _has_torch_function
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                torch.overrides.has_torch_function = _original
