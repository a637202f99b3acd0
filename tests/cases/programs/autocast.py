"""What CPU autocast casts, and what it leaves alone."""

import torch
from torch.nn import functional as F

torch.manual_seed(0)
linear = torch.nn.Linear(4, 4)
x = torch.randn(3, 4)
with torch.autocast("cpu", dtype=torch.bfloat16):
    h = linear(x)
    print(h.dtype, h.softmax(-1).dtype, F.mse_loss(h, x).dtype, (h + x).dtype)
    print((x.double() @ x.double().t()).dtype, linear(h).dtype)
try:
    linear(h)
except RuntimeError as error:
    print(str(error)[:40])
print(h.float().sum().item())
