"""Small programs whose route through the dispatcher is known: each returns nothing it must keep.

What each prepares is not part of its truth: ``prepare`` makes the tensors, the function takes them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Program = Callable[[], Any]
PROGRAMS: dict[str, Callable[[], Program]] = {}


def program(prepare: Callable[[], Program]) -> Callable[[], Program]:
    """Takes a function that prepares and returns the program itself."""
    PROGRAMS[prepare.__name__] = prepare
    return prepare


@program
def add() -> Program:
    a, b = torch.ones(2, 3), torch.ones(3)
    return lambda: torch.add(a, b)


@program
def add_with_gradient() -> Program:
    a, b = torch.ones(2, 3, requires_grad=True), torch.ones(3)
    return lambda: torch.add(a, b)


@program
def add_in_inference_mode() -> Program:
    a, b = torch.ones(2, 3), torch.ones(3)

    def run() -> None:
        with torch.inference_mode():
            torch.add(a, b)

    return run


@program
def linear() -> Program:
    x, w, b = torch.ones(2, 3), torch.ones(4, 3, requires_grad=True), torch.ones(4)
    return lambda: functional.linear(x, w, b)


@program
def linear_under_autocast() -> Program:
    x, w, b = torch.ones(2, 3), torch.ones(4, 3), torch.ones(4)

    def run() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            functional.linear(x, w, b)

    return run


def _conv_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())


@program
def conv_batch_norm_relu_in_training() -> Program:
    net, x = _conv_net(), torch.ones(2, 1, 5, 5)
    return lambda: net(x)


@program
def conv_batch_norm_relu_in_evaluation() -> Program:
    net, x = _conv_net().eval(), torch.ones(2, 1, 5, 5)

    def run() -> None:
        with torch.no_grad():
            net(x)

    return run


@program
def chain_of_views() -> Program:
    x = torch.ones(4, 6, requires_grad=True)
    return lambda: x.view(2, 2, 6).transpose(0, 1)[0].unsqueeze(-1)


@program
def in_place_on_a_view() -> Program:
    x = torch.ones(4, requires_grad=True)
    y = x * 2

    def run() -> None:
        y[:2].mul_(3)

    return run


@program
def backward_of_linear() -> Program:
    x, w = torch.ones(2, 3), torch.ones(4, 3, requires_grad=True)
    loss = functional.linear(x, w).sum()
    return lambda: loss.backward()


@program
def backward_of_a_view() -> Program:
    x = torch.ones(4, requires_grad=True)
    loss = x.view(2, 2)[0].sum()
    return lambda: loss.backward()


@program
def backward_of_conv_batch_norm_relu() -> Program:
    loss = _conv_net()(torch.ones(2, 1, 5, 5)).sum()
    return lambda: loss.backward()


@program
def backward_of_in_place_on_a_view() -> Program:
    x = torch.ones(4, requires_grad=True)
    y = x * 2
    y[:2].mul_(3)
    loss = y.sum()
    return lambda: loss.backward()


@program
def vmap_of_dot() -> Program:
    x, y = torch.ones(2, 3), torch.ones(2, 3)
    return lambda: torch.vmap(torch.dot)(x, y)


@program
def grad_of_sin() -> Program:
    x = torch.ones(())
    return lambda: torch.func.grad(torch.sin)(x)


@program
def jvp_of_sin() -> Program:
    x = torch.ones(())
    return lambda: torch.func.jvp(torch.sin, (x,), (x,))


@program
def functionalized_add() -> Program:
    x = torch.ones(3)
    return lambda: torch.func.functionalize(lambda one: one.clone().add_(1))(x)


@program
def attention_chooses_flash() -> Program:
    q = torch.ones(1, 2, 8, 16)
    return lambda: functional.scaled_dot_product_attention(q, q, q)


@program
def attention_chooses_math() -> Program:
    q = torch.ones(1, 2, 8, 16)
    mask = torch.ones(8, 8, dtype=torch.bool, requires_grad=False)

    def run() -> None:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            functional.scaled_dot_product_attention(q, q, q, mask)

    return run


@program
def empty_selects_a_backend() -> Program:
    return lambda: torch.empty(2, 3)


@program
def empty_on_meta() -> Program:
    return lambda: torch.empty(2, 3, device="meta").add(1)


@program
def sparse_add() -> Program:
    x = torch.eye(3).to_sparse()
    return lambda: torch.add(x, x)


@program
def quantized_add() -> Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
    return lambda: torch.ops.quantized.add(x, x, 0.2, 0)


@program
def nested_add() -> Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    return lambda: torch.add(x, x)


@program
def conjugate_and_negative() -> Program:
    x, y = torch.ones(2, dtype=torch.complex64), torch.ones(2)
    return lambda: torch.add(x.conj().imag, y)


@program
def conjugate_matmul() -> Program:
    x = torch.ones(2, 2, dtype=torch.complex64)
    return lambda: x.conj().abs()


@program
def foreach_optimizer_step() -> Program:
    parameters = [torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)]
    for one in parameters:
        one.grad = torch.ones_like(one)
    optimizer = torch.optim.SGD(parameters, lr=0.1, foreach=True)
    return lambda: optimizer.step()


@program
def missing_kernel() -> Program:
    x = torch.ones(1, 1, 2, 2)

    def run() -> None:
        try:
            torch.ops.aten._flash_attention_forward(x, x, x, None, None, 2, 2, 0.0, False, False)
        except NotImplementedError:
            return
        raise AssertionError("a kernel has been added")

    return run


@program
def wrong_shape() -> Program:
    x = torch.ones(2, 3, requires_grad=True)

    def run() -> None:
        try:
            torch.mm(x, x)
        except RuntimeError:
            return
        raise AssertionError("shapes that do not fit were taken")

    return run
