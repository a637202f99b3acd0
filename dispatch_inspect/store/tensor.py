"""What is known of a tensor at one moment of a trace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor as it was when a call began (inputs) or ended (outputs).

    A field is None where PyTorch has no such value or reading it would have disturbed the program.
    """

    #: "float32", without "torch."
    dtype: str | None = None
    #: "cpu", "cuda:0"
    device: str | None = None
    #: sizes; text for a symbolic one
    shape: tuple[int | str, ...] | None = None
    #: in elements, like ``Tensor.stride()``
    strides: tuple[int | str, ...] | None = None
    #: in elements
    storage_offset: int | str | None = None
    #: "strided", "sparse_coo"
    layout: str | None = None
    #: its dispatch keys, highest priority first
    keys: tuple[str, ...] = ()
    requires_grad: bool | None = None
    is_leaf: bool | None = None
    is_view: bool | None = None
    #: a Python number that became a tensor; PyTorch does not tell Python
    is_wrapped_number: bool | None = None
    #: the same number is the same tensor object
    tensor_id: int | None = None
    #: the same number is the same storage: such tensors alias
    storage_id: int | None = None
    #: how often its data was written in place
    version: int | None = None
    nbytes: int | None = None
    #: qualified class name when it is not torch.Tensor
    subclass: str | None = None

    @property
    def is_contiguous(self) -> bool | None:
        """Whether the strides are those of a dense row-major tensor."""
        if self.shape is None or self.strides is None or len(self.shape) != len(self.strides):
            return None
        expected: int | str = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if isinstance(size, str) or isinstance(stride, str) or isinstance(expected, str):
                return None
            if size == 0:
                return True
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True
