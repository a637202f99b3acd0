"""Lazy conjugation and negation."""

import torch

x = torch.tensor([1 + 2j, 3 - 1j])
c = x.conj()
print(c.is_conj(), c.data_ptr() == x.data_ptr(), c.imag.is_neg(), c.imag.tolist())
print((c.imag + 0).is_neg(), (c * 1j).tolist())
m = torch.eye(2, dtype=torch.complex64)
print((m.mH @ m).real.sum().item(), torch.dot(c, x).item())
c[:] = torch.tensor([5 + 5j, 6 - 6j])
print(x.tolist(), c.resolve_conj().is_conj())
try:
    c.numpy()
except RuntimeError as error:
    print(str(error)[:40])
print(torch.linalg.solve(m + 1j * torch.ones(2, 2), c).tolist())
