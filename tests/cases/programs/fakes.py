"""Fake tensors, symbolic shapes and functionalization."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

real = torch.ones(4, 4)
with FakeTensorMode() as mode:
    a = torch.randn(1000, 1000, 1000, 10)
    print(type(a.mul(2).sum((0, 1))).__name__, a.device)
    for call in (lambda: a + real, lambda: a.flatten()[:8].nonzero(), lambda: a.sum().item()):
        try:
            call()
        except Exception as error:
            print(type(error).__name__)
fake = mode.from_tensor(real)
print((fake @ fake).shape)
graph = make_fx(lambda t: torch.nn.functional.linear(t, t).relu_().t())(real)
print([str(n.target) for n in graph.graph.nodes if n.op == "call_function"])
graph = make_fx(lambda t: t.new_zeros(t.shape[0], t.numel()).sum(), tracing_mode="symbolic")(real)
print([str(n.target) for n in graph.graph.nodes if n.op == "call_function"])
print(torch.func.functionalize(lambda t: t.view(16).add_(1).sum())(real.clone()).item())
print(torch.func.vmap(torch.dot)(real, real).tolist())
print(torch.func.grad(lambda t: (t * t).sum())(real).sum().item())
print(torch.func.jvp(torch.sin, (real,), (real,))[1][0, 0].item())
