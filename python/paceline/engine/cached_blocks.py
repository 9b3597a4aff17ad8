"""Find the nodes whose caches contain the bytes of tasks, and give tasks to these nodes first."""

import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from paceline import _core
from paceline.contract.cache import Cache
from paceline.contract.source import Extents, SampledFileSpec
from paceline.engine.tasks import AnyJob, AnyTask, Job, Task

#: Minimum fraction of a task's sampled bytes in the cache of the node that gets the task first.
MOST = 0.5


class CachedFiles(NamedTuple):
    """Files of one job, and their cache."""

    job: int
    cache: Cache
    #: Path and fingerprint of each file.
    files: list[tuple[str, str]]


@dataclass(frozen=True)
class NodeBlocks:
    """Blocks of files in the cache of one node."""

    #: Host and folder.
    node: str
    #: For each job and file, one bit for each block, packed as by `np.packbits`.
    held: dict[tuple[int, int], np.ndarray]


def cached_files(jobs: Sequence[AnyJob]) -> list[CachedFiles]:
    """List the files of jobs that have a cache."""
    return [
        CachedFiles(
            number,
            job.source.cache,
            [
                (file.path, _core.fingerprint_of(file.samples))
                for file in job.source.files
                if isinstance(file, SampledFileSpec)
            ],
        )
        for number, job in enumerate(jobs)
        if isinstance(job, Job) and job.source.cache is not None
    ]


def blocks_here(files: Iterable[CachedFiles]) -> NodeBlocks:
    """Find the blocks in the cache of this node; none in an unusable cache."""
    held, folder = {}, ""
    for one in files:
        try:
            cache = one.cache.here()
            found = _core.cached_blocks(one.files, cache)
        except (OSError, ValueError):  # reading raises the error, with the file's name
            continue
        folder = cache.folder
        for number, blocks in enumerate(found):
            if any(blocks):
                held[one.job, number] = np.packbits(np.frombuffer(blocks, np.uint8))
    return NodeBlocks(f"{socket.gethostname()}:{folder}", held)


def homes_of(tasks: Sequence[AnyTask], nodes: Sequence[NodeBlocks]) -> np.ndarray:
    """Return the index of the node that has most of each task's bytes; -1 if none has enough.

    The first, middle and last frame of a task are examined. Tasks of which several nodes have
    equally much are divided among these nodes, so that each node gets as many tasks as possible.
    """
    homes = np.full(len(tasks), -1)
    if not tasks or not any(node.held for node in nodes):
        return homes
    shares = _cached_shares(tasks, nodes)
    holds = (shares >= MOST) & (shares == shares.max(axis=0))
    loads = np.zeros(len(nodes))
    # One bit for each node; a task without a node is in no group.
    _, groups = np.unique(np.packbits(holds, axis=0), axis=1, return_inverse=True)
    order = np.argsort(groups.ravel(), kind="stable")
    members = np.split(order, np.cumsum(np.bincount(groups.ravel()))[:-1])
    for group in sorted(members, key=lambda one: holds[:, one[0]].sum()):
        owners = np.flatnonzero(holds[:, group[0]])
        if len(owners):
            wanted = (loads[owners].sum() + len(group)) / len(owners)
            stops = _stops(len(group), np.maximum(0, wanted - loads[owners]))
            for owner, part in zip(owners, np.split(group, stops[:-1]), strict=True):
                homes[part] = owner
                loads[owner] += len(part)
    return homes


def _cached_shares(tasks: Sequence[AnyTask], nodes: Sequence[NodeBlocks]) -> np.ndarray:
    """Return the fraction of each task's sampled blocks (columns) that each node (rows) has."""
    sampled = [_sample(task) for task in tasks]
    jobs, files, begins, ends = map(np.concatenate, zip(*sampled, strict=True))
    owners = np.repeat(np.arange(len(tasks)), [len(found[0]) for found in sampled])
    firsts, stops = begins // _core.CACHE_BLOCK, -(-ends // _core.CACHE_BLOCK)
    wanted = np.bincount(owners, stops - firsts, len(tasks))
    shares = np.zeros((len(nodes), len(tasks)), np.float32)
    for index, node in enumerate(nodes):
        there = np.zeros(len(owners))
        for (job, file), packed in node.held.items():
            counts = np.concatenate(([0], np.cumsum(np.unpackbits(packed))))
            rows = np.flatnonzero((jobs == job) & (files == file))
            last = len(counts) - 1
            there[rows] = (
                counts[np.minimum(stops[rows], last)] - counts[np.minimum(firsts[rows], last)]
            )
        shares[index] = np.bincount(owners, there, len(tasks)) / np.maximum(wanted, 1)
    return shares


def _stops(n: int, weights: np.ndarray) -> np.ndarray:
    """Return the ends of the parts of n tasks, in proportion to weights, not all of which are 0."""
    return np.rint(n * np.cumsum(weights) / weights.sum()).astype(int)


def _sample(task: AnyTask) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return jobs, files, and first bytes and ends of some frames of a task."""
    if not isinstance(task, Task):
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, nothing, nothing
    extents: Extents = task.extents
    rows = sorted({0, len(extents) // 2, len(extents) - 1})
    begins = extents.offsets[rows].astype(np.int64)
    ends = begins + extents.sizes[rows].astype(np.int64)
    return np.full(len(rows), task.job), np.asarray(extents.files)[rows], begins, ends


class NodeShares(NamedTuple):
    """Tasks of each worker: part of those in its node's cache, then part of the others."""

    #: Indices of tasks, share by share.
    order: list[int]
    #: Boundaries of the workers' shares in `order`.
    bounds: list[int]
    #: Node of each worker.
    nodes: list[int]


def share_by_node(homes: np.ndarray, nodes: Sequence[int]) -> NodeShares:
    """Divide tasks among workers, given each task's and each worker's node.

    Tasks of no node go to the nodes that have too few for their workers. They are the last ones of
    a share, and are therefore stolen first.

    Examples
    --------
    >>> share_by_node(np.array([1, 1, -1, 0, -1, -1]), nodes=[0, 1])
    NodeShares(order=[3, 2, 4, 0, 1, 5], bounds=[0, 3, 6], nodes=[0, 1])
    """
    n_workers = np.bincount(nodes)
    owned = np.bincount(homes[homes >= 0], minlength=len(n_workers))
    lacking = np.maximum(0, len(homes) * n_workers / len(nodes) - owned) + 1e-9 * n_workers
    others = np.flatnonzero(homes < 0)
    stops = _stops(len(others), lacking)
    shares: list[list[int]] = [[] for _ in nodes]
    for node in range(len(n_workers)):
        workers = np.flatnonzero(np.equal(nodes, node))
        given = others[stops[node - 1] if node else 0 : stops[node]]
        for tasks in (np.flatnonzero(homes == node), given):
            parts = np.array_split(tasks, len(workers))
            for worker, part in zip(workers, parts, strict=True):
                shares[worker] += part.tolist()
    bounds = [0, *np.cumsum([len(share) for share in shares]).tolist()]
    return NodeShares([task for share in shares for task in share], bounds, list(nodes))
