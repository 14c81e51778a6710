"""Pools without pictures: an image holds its domain, its index and its label."""

from itertools import groupby

import numpy as np
import torch


class Counted:
    """Image i is filled with [domain's code, i, label]; it counts what is read of it."""

    def __init__(self, code=0, size=100, classes=10, labels=None):
        self.code = code
        self.labels = np.arange(size) % classes if labels is None else np.asarray(labels)
        self.read = 0

    def __len__(self):
        return len(self.labels)

    def images(self, indices):
        indices = list(indices)
        self.read += len(indices)
        rows = [[self.code, i, self.labels[i]] for i in indices]
        return torch.tensor(rows, dtype=torch.float32).view(-1, 3, 1, 1).expand(-1, 3, 2, 2)


class CountedData:
    """Any domain that is asked for, at any severity."""

    def __init__(self, size=100, classes=4, labels=None):
        self.given = (size, classes, labels)
        self.pools = {}

    def __getitem__(self, name):
        return self.pools.setdefault(name, Counted(len(self.pools), *self.given))

    def at(self, *layers):
        return self[layers]

    @property
    def read(self):
        return sum(pool.read for pool in self.pools.values())


def shown(batches):
    """(domain, image index, label) of every sample, as its image says."""
    samples = []
    for batch in batches:
        for name, image, label in zip(batch.domains, batch.images, batch.labels, strict=True):
            if label >= 0:
                assert image[2, 0, 0] == label
            samples.append((name, int(image[1, 0, 0]), int(label)))
    return samples


def visited(batches):
    """The domains in the order in which they come, with their sizes."""
    names = [name for batch in batches for name in batch.domains]
    return [(name, len(list(run))) for name, run in groupby(names)]
