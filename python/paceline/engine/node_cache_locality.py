"""Find the nodes whose caches contain the bytes of tasks, so that they get these tasks first."""

import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from paceline import _core
from paceline._util.os_calls import blocks_in_memory
from paceline.contract.node_disk_cache import Cache
from paceline.contract.source import Extents, SampledFileSpec
from paceline.engine.tasks_and_results import AnyJob, AnyTask, Job, Task

#: A node is preferred for a task if its cache contains at least this fraction of the bytes of the
#: task's examined frames: the first, middle and last one.
MOST = 0.5


class CachedFiles(NamedTuple):
    """Files of one job, and their cache."""

    job: int
    cache: Cache
    #: Path and fingerprint of each file.
    files: list[tuple[str, str]]


@dataclass(frozen=True)
class NodeBlocks:
    """Blocks of files in the cache of one node, and in the memory of its host."""

    #: Name of the host and folder of the cache, as "HOST:FOLDER".
    node: str
    #: Blocks in the cache: for each job and file, one bit per block, packed by `np.packbits`.
    held: dict[tuple[int, int], np.ndarray]
    #: Blocks in the page cache, in the same format.
    in_memory: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)

    @property
    def host(self) -> str:
        """Name of the host."""
        return self.node.partition(":")[0]


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
    """Find the blocks in the cache and memory of this node; an unusable cache counts as empty."""
    held, in_memory, folder = {}, {}, ""
    for one in files:
        try:
            cache = one.cache.here()
            if cache is None:
                continue
            found = _core.cached_blocks(one.files, cache)
        except (OSError, ValueError):  # the reader raises the error, with the name of the file
            continue
        folder = cache.folder
        for number, blocks in enumerate(found):
            if any(blocks):
                held[one.job, number] = np.packbits(np.frombuffer(blocks, np.uint8))
        for number, (path, _) in enumerate(one.files):
            try:
                pages = blocks_in_memory(path, _core.CACHE_BLOCK)
            except (OSError, ValueError):  # the file is not local, or has changed
                continue
            if pages is not None and pages.any():
                in_memory[one.job, number] = np.packbits(pages)
    return NodeBlocks(f"{socket.gethostname()}:{folder}", held, in_memory)


def homes_of(tasks: Sequence[AnyTask], nodes: Sequence[NodeBlocks]) -> np.ndarray:
    """Return the index of the node that has most of each task's bytes; -1 if none has enough.

    The first, middle and last frame of a task are examined. If no cache contains enough of their
    bytes, the page caches of several hosts are compared. If several nodes have the same part of
    some tasks, these tasks are divided evenly among the nodes.
    """
    homes, loads = np.full(len(tasks), -1), np.zeros(len(nodes))
    kinds = [[node.held for node in nodes]]
    if len({node.host for node in nodes}) > 1:
        kinds.append([node.in_memory for node in nodes])
    for blocks in kinds:
        rest = np.flatnonzero(homes < 0)
        if len(rest) and any(blocks):
            shares = _shares_of(blocks, [tasks[k] for k in rest.tolist()])
            homes[rest] = _divide(shares, loads)
    return homes


def _divide(shares: np.ndarray, loads: np.ndarray) -> np.ndarray:
    """Choose a node for each task; -1 if no node has enough of the task's bytes.

    `shares` contains for each node (row) the fraction of each task (column) that is in the node.
    `loads` is the number of tasks of each node, which is updated.
    """
    homes = np.full(shares.shape[1], -1)
    holds = (shares >= MOST) & (shares == shares.max(axis=0))
    # Tasks are grouped by the nodes that have them; groups with few nodes come first.
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


def _shares_of(
    nodes: Sequence[dict[tuple[int, int], np.ndarray]], tasks: Sequence[AnyTask]
) -> np.ndarray:
    """For each node (row) and task (column), return the fraction of examined blocks in the node."""
    sampled = [_sample(task) for task in tasks]
    jobs, files, begins, ends = map(np.concatenate, zip(*sampled, strict=True))
    owners = np.repeat(np.arange(len(tasks)), [len(found[0]) for found in sampled])
    firsts, stops = begins // _core.CACHE_BLOCK, -(-ends // _core.CACHE_BLOCK)
    wanted = np.bincount(owners, stops - firsts, len(tasks))
    shares = np.zeros((len(nodes), len(tasks)), np.float32)
    for index, blocks in enumerate(nodes):
        there = np.zeros(len(owners))
        for (job, file), packed in blocks.items():
            counts = np.concatenate(([0], np.cumsum(np.unpackbits(packed))))
            rows = np.flatnonzero((jobs == job) & (files == file))
            last = len(counts) - 1
            there[rows] = (
                counts[np.minimum(stops[rows], last)] - counts[np.minimum(firsts[rows], last)]
            )
        shares[index] = np.bincount(owners, there, len(tasks)) / np.maximum(wanted, 1)
    return shares


def _stops(n: int, weights: np.ndarray) -> np.ndarray:
    """Divide n tasks in proportion to weights (not all 0); return the ends of the parts."""
    return np.rint(n * np.cumsum(weights) / weights.sum()).astype(int)


def _sample(task: AnyTask) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return job, file, first byte and end (bytes) of a task's first, middle and last frame."""
    if not isinstance(task, Task):
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, nothing, nothing
    extents: Extents = task.extents
    rows = sorted({0, len(extents) // 2, len(extents) - 1})
    begins = extents.offsets[rows].astype(np.int64)
    ends = begins + extents.sizes[rows].astype(np.int64)
    return np.full(len(rows), task.job), np.asarray(extents.files)[rows], begins, ends


class NodeShares(NamedTuple):
    """Tasks of each worker: first tasks in the cache of its node, then others."""

    #: Indices of tasks, share by share.
    order: list[int]
    #: Boundaries of the workers' shares in `order`.
    bounds: list[int]
    #: Node of each worker.
    nodes: list[int]


def share_by_node(homes: np.ndarray, nodes: Sequence[int]) -> NodeShares:
    """Divide tasks among workers, given the node of each task and of each worker.

    Tasks without a node fill up the shares of workers whose nodes have too few tasks. They come
    last in a share, and are therefore stolen first.

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
