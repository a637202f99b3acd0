"""What a mode cannot help changing, said at the event where it happens.

Decided once an operator, so that calls of all others pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from dispatch_inspect.record.thread import ThreadRecorder


def _view(thread: ThreadRecorder, row: int, args: Any) -> None:
    """``reshape`` of a view with odd strides asks for an alias, and under a mode for a view."""
    tensor = args[0]
    if type(tensor) is not torch.Tensor or thread.function_around(row) == "torch.Tensor.view":
        return
    if not tensor.is_contiguous():
        thread.note(
            row,
            "reshape-alias",
            "without a dispatch mode this is aten::_reshape_alias, and its gradient "
            "ReshapeAliasBackward0",
        )


def _add(thread: ThreadRecorder, row: int, args: Any) -> None:
    """Where two gradients meet, autograd adds them in place, but not under a mode."""
    if len(args) == 2 and thread.node_name(row) is not None and not torch.is_grad_enabled():
        thread.note(
            row,
            "accumulate-grad",
            "where gradients meet, autograd adds them out of place under a dispatch mode; "
            "without one this may be aten::add_.Tensor",
        )


def _detach(thread: ThreadRecorder, row: int, args: Any) -> None:
    """Autograd detaches what it saves and accumulates, through the dispatcher only under a mode."""
    del args
    around = thread.function_around(row)
    if around is None or not around.startswith("torch.Tensor.detach"):
        thread.note(row, "extra-detach", "this call is there only because a dispatch mode is on")


def _compliant(thread: ThreadRecorder, row: int, args: Any) -> None:
    """Composite operators that avoid in-place writes when a subclass or a mode is there."""
    del args
    thread.note(row, *OTHER_PATH)


#: said where PyTorch asks ``areAnyTensorSubclassLike`` and the answer changes more than operators
OTHER_PATH = (
    "subclass-like",
    "under any dispatch mode PyTorch takes the path for tensor subclasses here: rounding, strides "
    "or the name of the gradient may differ, and a check of the input may be left out",
)

#: autograd nodes that take such a path
NOTED_NODES = frozenset(
    {
        "LinalgEigBackward0",
        "LinalgEighBackward0",
        "LinalgSvdBackward0",
        "OrmqrBackward0",
        "ProdBackward0",
        "ProdBackward1",
    }
)

#: operator -> what looks at a call of it that has ended
NOTES: dict[str, Callable[[ThreadRecorder, int, Any], None]] = {
    "aten::view": _view,
    "aten::add.Tensor": _add,
    "aten::detach": _detach,
    "aten::_ctc_loss.Tensor": _compliant,
}

#: when a note may be due, for the probe, which looks before it asks; the numbers of calls.cpp:
#: 1 when the first tensor is not contiguous, 2 in backward without gradients, 0 always
WHEN: dict[Any, int] = {_view: 1, _add: 2}
