"""Saved-tensor hooks run, and tensors die when they would."""

import weakref

import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

packed = []


def pack(tensor):
    packed.append(tuple(tensor.shape))
    return tensor.detach().half()


a = torch.full((3,), 0.5, requires_grad=True)
with saved_tensors_hooks(pack, lambda tensor: tensor.float()):
    y = (a.exp() * a).sum()
y.backward()
print(packed, a.grad.tolist())
with save_on_cpu():
    a.sin().cos().sum().backward()
try:
    with saved_tensors_hooks(lambda tensor: tensor.add_(1), lambda tensor: tensor):
        torch.ones(2, requires_grad=True).exp().mul(2)
except RuntimeError as error:
    print(str(error)[:40])
t = torch.ones(4, requires_grad=True)
u = t * 2
dead = weakref.ref(u)
temporary = weakref.ref(t.exp())
storage = torch.zeros(10)
gone = weakref.ref(storage.untyped_storage())
print(temporary() is None)
del u, storage
print(dead() is None, gone() is None)
