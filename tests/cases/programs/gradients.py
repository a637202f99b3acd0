"""Operators without an autograd kernel, whose gradient is that of what they call."""

import warnings

import torch

warnings.simplefilter("ignore")
library = torch.library.Library("cases", "DEF")
library.define("double(Tensor x) -> Tensor")
library.impl("double", lambda x: x * 2, "CPU")


@torch.library.custom_op("cases::square", mutates_args=())
def square(x: torch.Tensor) -> torch.Tensor:
    return x * x


square.register_autograd(
    lambda ctx, grad: grad * 2 * ctx.saved_tensors[0],
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)
x = torch.ones(2, requires_grad=True)
y = torch.ops.cases.double(x)
print(type(y.grad_fn).__name__)
y.sum().backward()
print(x.grad.tolist())
x.grad = None
square(x).sum().backward()
print(x.grad.tolist())
try:
    torch.ops.cases.double(x.to("meta"))
except NotImplementedError as error:
    print(str(error)[:60])
