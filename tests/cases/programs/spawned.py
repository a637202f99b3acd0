"""Spawned processes import the program again, under the name python gives it."""

import multiprocessing
import pickle

import torch

print("imported as", __name__, flush=True)


class Job:
    def __call__(self):
        return torch.arange(5).sum().item()


def work(job, queue):
    queue.put((job(), __name__))


if __name__ == "__main__":
    print(pickle.loads(pickle.dumps(Job()))(), Job.__module__, flush=True)
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=work, args=(Job(), queue))
    process.start()
    print(queue.get(), flush=True)
    process.join()
    print(process.exitcode)
