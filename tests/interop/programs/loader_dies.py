"""Kill a DataLoader worker while the rank reads from it. Depending on the moment, Python ends with PyTorch's error
about the worker, or with multiprocessing's error about a connection."""
import os
import signal

import torch
from torch.utils.data import DataLoader, Dataset


class Killed(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, i):
        if i == 333:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(1000)


if __name__ == "__main__":
    for batch in DataLoader(Killed(), batch_size=4, num_workers=2):
        pass
