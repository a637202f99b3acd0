"""Leaves by os._exit."""

import os

import torch

print((torch.arange(4.0) * 2).sum().item(), flush=True)
os._exit(5)
