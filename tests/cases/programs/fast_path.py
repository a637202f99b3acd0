"""The fused paths of attention modules."""

import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
x = torch.randn(2, 3, 8)
with torch.no_grad():
    print(layer(x).sum().item())
print(layer(x).sum().item())
attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
with torch.no_grad():
    print(attention(x, x, x, need_weights=False)[0].sum().item())
encoder = nn.TransformerEncoder(layer, 2).eval()
padding = torch.tensor([[False, False, True], [False, False, False]])
with torch.no_grad():
    out = encoder(x, src_key_padding_mask=padding)
print(out[0, 2].abs().sum().item() == 0, out.shape)
