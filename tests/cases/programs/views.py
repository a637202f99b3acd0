"""Which results share storage with their input, and which only look as if they did."""

import torch

x = torch.arange(12.0).reshape(3, 4)


def shares(y):
    return y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


for name, call in {
    "reshape": lambda: x.reshape(2, 6),
    "odd reshape": lambda: x.t().reshape(12),
    "kept reshape": lambda: x.t().reshape(4, 3),
    "contiguous": lambda: x.contiguous(),
    "transposed contiguous": lambda: x.t().contiguous(),
    "same dtype": lambda: x.to(torch.float32),
    "other dtype": lambda: x.to(torch.float64),
    "slice": lambda: x[1:],
    "list": lambda: x[[0, 2]],
    "clone": lambda: x.clone(),
    "detach": lambda: x.detach(),
    "expand": lambda: x[:1].expand(5, 4),
    "unfold": lambda: x.unfold(1, 2, 1),
}.items():
    y = call()
    print(name, shares(y), y is x, y._is_view(), y.stride())
x.t().reshape(4, 3).add_(1)
x.t().reshape(12).add_(1000)
print(x.sum().item())
try:
    x.t().view(12)
except RuntimeError as error:
    print(str(error)[:40])
