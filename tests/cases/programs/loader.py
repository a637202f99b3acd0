"""Forked loader workers, their work and their failures."""

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == self.bad:
            return torch.ones(2) @ torch.ones(3)
        return torch.full((3,), float(index)).pow(2)


if __name__ == "__main__":
    (torch.ones(2, requires_grad=True) * 2).sum().backward()
    for workers in (0, 2):
        data = Numbers()
        data.bad = None
        print(sum(b.sum().item() for b in DataLoader(data, batch_size=2, num_workers=workers)))
    data.bad = 3
    try:
        list(DataLoader(data, num_workers=1))
    except RuntimeError as error:
        print(str(error).splitlines()[0])
