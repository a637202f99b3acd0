"""Key sets decoded here are those that PyTorch prints."""

from __future__ import annotations

import pytest
import torch

from dispatch_inspect import keys
from dispatch_inspect.record.states import key_layout

LAYOUT = key_layout()


def printed(keyset: torch._C.DispatchKeySet) -> set[str]:
    text = str(keyset).removeprefix("DispatchKeySet(").removesuffix(")")
    return set(text.split(", ")) - {""}


def tensors() -> dict[str, torch.Tensor]:
    plain = torch.ones(2, 2)
    with torch.inference_mode():
        inference = torch.ones(2)
    return {
        "plain": plain,
        "grad": torch.ones(2, requires_grad=True),
        "meta": torch.ones(2, device="meta"),
        "inference": inference,
        "conj": torch.ones(2, dtype=torch.complex64).conj(),
        "neg": torch.ones(2, dtype=torch.complex64).conj().imag,
        "sparse": plain.to_sparse(),
        "csr": plain.to_sparse_csr(),
        "quantized": torch.quantize_per_tensor(plain, 0.1, 0, torch.quint8),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "zero": torch._efficientzerotensor((2,)),
    }


@pytest.mark.parametrize("name", tensors())
def test_tensors(name: str) -> None:
    keyset = torch._C._dispatch_keys(tensors()[name])
    found = keys.names(keyset.raw_repr(), LAYOUT)
    assert set(found) == printed(keyset)
    assert len(set(found)) == len(found)
    highest = str(keyset.highestPriorityTypeId()).removeprefix("DispatchKey.")
    if highest != "???":
        assert found[0] == highest


def test_thread_local_sets() -> None:
    for keyset in (
        torch._C._dispatch_tls_local_include_set(),
        torch._C._dispatch_tls_local_exclude_set(),
    ):
        assert set(keys.names(keyset.raw_repr(), LAYOUT)) == printed(keyset)


def test_order_is_that_of_priority() -> None:
    found = keys.names(torch._C._dispatch_keys(torch.ones(1)).raw_repr(), LAYOUT)
    assert found == ("AutocastCPU", "AutogradCPU", "ADInplaceOrView", "CPU")


def test_keys_above_python() -> None:
    for names in LAYOUT.functionalities:
        place = LAYOUT.functionalities.index(names)
        python = LAYOUT.functionalities.index(("Python",))
        assert all(keys.above_python(name) == (place > python) for name in names), names


def test_roles() -> None:
    assert keys.role("AutogradPrivateUse1") == "autograd"
    assert keys.role("AutocastCUDA") == "autocast"
    assert keys.role("SparseCsrMeta") == "backend"
    assert keys.role("SomethingNew") == "backend"
    assert keys.role("Conjugate") == "wrapper"
