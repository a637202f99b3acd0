"""Arguments and results of every kind."""

import torch

generator = torch.Generator().manual_seed(3)
a = torch.randn(2, 3, generator=generator)
print(a.max(dim=1).indices.shape, [tuple(t.shape) for t in a.split([1, 2], dim=1)])
print(torch.ones(2, 3, 4)[:, None, ..., torch.tensor([0, 1])].shape)
p = [torch.ones(2), torch.ones(3)]
torch._foreach_mul_(p, [2.0, 3.0])
torch._foreach_add_(p, 1.0)
print([t.tolist() for t in p])
o = torch.empty(0)
torch.add(torch.ones(2), 1, out=o)
print(o.tolist())
print((torch.ones(2) * (1 + 2j)).dtype, torch.full((2,), float("inf")).tolist())
print(torch.full((1,), float("nan")).isnan().item(), torch.full((1,), -0.0).signbit().item())
print(torch.empty(2, 3, 4, 4, memory_format=torch.channels_last).stride())
print(torch.div(torch.tensor(7), 2, rounding_mode="floor").item())
x = torch.ones(2)
x.set_(torch.zeros(3).untyped_storage())
x.resize_(2, 2)
print(x.shape)
x.data = torch.full((1,), 9.0)
print(x.tolist(), torch.block_diag().shape)
