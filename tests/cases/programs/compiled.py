"""Tracing changes nothing about what is compiled."""

import torch
from torch._dynamo.testing import CompileCounterWithBackend

counter = CompileCounterWithBackend("eager")
strict = CompileCounterWithBackend("aot_eager")


@torch.compile(backend=counter)
def soft(x):
    return (x.sin() + 1).relu()


@torch.compile(backend=strict, fullgraph=True)
def whole(x):
    return torch.nn.functional.linear(x, x).cos()


x = torch.randn(3, 3)
for _ in range(3):
    soft(x)
print(counter.frame_count, counter.op_count)
whole(x)
whole(x.clone().requires_grad_()).sum().backward()
print(strict.frame_count)
net = torch.compile(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()), backend=counter)
for _ in range(3):
    net(x)
print(counter.frame_count, counter.op_count)


def branch(x):
    return torch.cond(x.sum() > 100, lambda t: t.sin(), lambda t: t.cos(), (x,))


print(torch.equal(branch(x), x.cos()))
exported = torch.export.export(torch.nn.Linear(3, 2), (x,))
print([str(n.target) for n in exported.graph.nodes if n.op == "call_function"])
soft(torch.randn(4, 4))
print(counter.frame_count)
