"""Ends without a word to Python."""

import os
import signal

import torch

print(torch.ones(3).cumsum(0).tolist(), flush=True)
os.kill(os.getpid(), signal.SIGSEGV)
