import torch

x = torch.ones(2, 4)
layer = torch.nn.Linear(4, 3)
loss = layer(x).relu().sum()
loss.backward()
