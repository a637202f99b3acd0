"""Recording leaves nothing behind: no mapped files, descriptors or objects."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
import torch

import dispatch_inspect as di


def held() -> tuple[int, int]:
    gc.collect()
    maps = Path("/proc/self/maps").read_text().count("dispatch_inspect-")
    return maps, len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="asks Linux what is mapped")
@pytest.mark.parametrize("layers", [("modules", "functions", "ops"), ("hops",), ("ops", "hops")])
def test_many_recordings(layers: tuple[str, ...]) -> None:
    def record() -> None:
        with di.trace(layers=layers) as outer, di.trace(layers=layers):
            torch.ones(2).add(1)
        assert len(outer)

    record()
    before = held()
    for _ in range(10):
        record()
    maps, descriptors = held()
    assert descriptors <= before[1]
    # the last one's files may stay mapped until its thread records again
    assert maps <= before[0] + 60
