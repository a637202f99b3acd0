"""Backward inside backward, long chains, and few Python frames left."""

import sys

import torch


class Deep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, level):
        ctx.level = level
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.level:
            with torch.enable_grad():
                inner = grad.detach().requires_grad_()
                Deep.apply(inner, ctx.level - 1).sum().backward()
        return grad * 2, None


x = torch.ones(1, requires_grad=True)
Deep.apply(x, 150).backward()
print(x.grad.item())
y = x
for _ in range(1200):
    y = y * 1.0001
y.backward()
print(round(x.grad.item(), 3))


def recurse(levels, tensor):
    return tensor + 1 if levels == 0 else recurse(levels - 1, tensor)


frames, frame = 0, sys._getframe()
while frame:
    frames, frame = frames + 1, frame.f_back
print(recurse(sys.getrecursionlimit() - frames - 25, torch.zeros(1)).item())
