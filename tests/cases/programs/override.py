"""A kernel that a library registers for an operator of PyTorch's, and takes back."""

import warnings

import torch

warnings.simplefilter("ignore")
seen = []


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        seen.append("forward")
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, grad):
        seen.append("backward")
        return 3 * ctx.saved_tensors[0] ** 2 * grad


library = torch.library.Library("aten", "IMPL")
library.impl("sinh", Cube.apply, "AutogradCPU")
x = torch.tensor([1.0, 2.0], requires_grad=True)
y = torch.sinh(x)
y.sum().backward()
print(y.tolist(), x.grad.tolist(), seen, type(y.grad_fn).__name__)
with torch.inference_mode():
    torch.sinh(torch.ones(1))
print(len(seen))
library._destroy()
print(type(torch.sinh(x).grad_fn).__name__)
