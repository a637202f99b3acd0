"""TorchScript: scripted functions, and tracing that must not see a mode."""

import warnings

import torch

warnings.simplefilter("ignore")
torch.manual_seed(2)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 2, 1)
        self.bias = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return torch.relu(self.conv(x)) + self.bias


@torch.jit.script
def powers(x, n: int):
    out = torch.zeros_like(x)
    for i in range(n):
        out = out * x + i
    return out


net, x = Net().eval(), torch.ones(1, 1, 2, 2)
print(powers(torch.tensor([2.0]), 4).item())
for traced in (
    torch.jit.trace(net, x, check_trace=False),
    torch.jit.trace_module(net, {"forward": x}, check_trace=False),
):
    kinds = [n.kind() for n in traced.inlined_graph.nodes() if n.kind().startswith("aten")]
    print(kinds, torch.equal(traced(x * 3), net(x * 3)))
scripted = torch.jit.script(net)
print([torch.equal(scripted(x), net(x)) for _ in range(3)], torch.jit.freeze(scripted)(x).shape)
