"""Operators without a kernel for a layout."""

import warnings

import torch

warnings.simplefilter("ignore")
sparse, csr = torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr()
for call in (
    lambda: sparse.view(9),
    lambda: sparse.reshape(9),
    lambda: torch.relu(sparse),
    lambda: torch.nn.functional.softplus(sparse),
    lambda: sparse.cumsum(0),
    lambda: csr + 1,
    lambda: csr[:, 0],
    lambda: sparse @ torch.ones(3, 2),
):
    try:
        result = call()
        print(result.layout, tuple(result.shape))
    except (NotImplementedError, RuntimeError) as error:
        print(type(error).__name__, str(error).splitlines()[0][:70])
embedding = torch.nn.Embedding(5, 2, sparse=True)
embedding(torch.tensor([1, 1, 3])).sum().backward()
print(embedding.weight.grad.layout)
