"""Tests that blocks cover the frames, and that the tree of merges does not depend on workers."""

import math
import random

import numpy as np
import pytest

import paceline
from paceline.analysis.rms import RMSD
from paceline.contract.plan import LEAF_BYTES, make_plan
from paceline.engine.reduce import TreeReduction, tree_reduce

SYSTEM = {"n_atoms": 3341, "n_wanted": 214, "frame_bytes": 12_000, "n_workers": 2}


def pair(left, right):
    return f"({left}{right})"


@pytest.mark.parametrize("n_frames", [1, 15, 16, 17, 98, 1000])
@pytest.mark.parametrize("block_frames", [None, 1, 16, 17, 64, 10**6])
def test_blocks_cover_every_frame_once(n_frames, block_frames):
    frames = np.random.default_rng(1).permutation(n_frames)
    plan = make_plan(frames, block_frames=block_frames, **SYSTEM)
    blocks = [plan.frames[rows] for rows in plan.blocks()]
    assert np.array_equal(np.concatenate(blocks), frames)
    assert all(len(block) for block in blocks)
    assert len(blocks) == len(plan)


@pytest.mark.parametrize("block_frames", [0, -3, math.inf, math.nan])
def test_a_block_of_no_frames_is_refused(block_frames, adk_xtc, tmp_path):
    message = f"block_frames must be at least 1, not {block_frames}"
    with pytest.raises(ValueError, match=message):
        make_plan(np.arange(1000), block_frames=block_frames, **SYSTEM)
    atoms = paceline.Universe(*adk_xtc).select_atoms("name CA")
    with pytest.raises(ValueError, match=message):
        paceline.run(RMSD(atoms), block_frames=block_frames, checkpoint=tmp_path / "checkpoint")
    with pytest.raises(ValueError, match=message):
        paceline.dask_array(atoms, block_frames=block_frames)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("block_frames", [None, 1, 16, 17, 64, 10**6])
def test_a_block_is_a_subtree_of_leaves(block_frames):
    plan = make_plan(np.arange(1000), block_frames=block_frames, **SYSTEM)
    leaves = plan.block_frames / plan.leaf_frames
    assert plan.leaf_frames == 16
    assert leaves == int(leaves)
    assert int(leaves).bit_count() == 1


@pytest.mark.parametrize("n_atoms", [0, 1, 3341, 10**5, 10**6, 10**8])
def test_leaves_depend_on_the_system_alone(n_atoms):
    leaves = {
        make_plan(
            range(n_frames),
            n_atoms=n_atoms,
            n_wanted=n_wanted,
            frame_bytes=100,
            n_workers=n_workers,
        ).leaf_frames
        for n_frames in (1, 10**5)
        for n_wanted in (1, n_atoms)
        for n_workers in (1, 64)
    }
    assert len(leaves) == 1
    (leaf,) = leaves
    assert leaf == 1 or leaf * 12 * n_atoms <= LEAF_BYTES


def test_every_worker_gets_many_blocks():
    plan = make_plan(np.arange(10**5), n_atoms=1000, n_wanted=10, frame_bytes=100, n_workers=64)
    assert len(plan) >= 16 * 64


def test_a_block_of_a_large_system_stays_small():
    plan = make_plan(np.arange(10**5), n_atoms=10**6, n_wanted=10**6, frame_bytes=4e6, n_workers=1)
    assert plan.block_frames == 1


@pytest.mark.parametrize("n_leaves", [*range(1, 20), 64, 100])
@pytest.mark.parametrize("leaves_of_block", [1, 2, 4, 8, 128])
def test_blocks_merge_as_leaves_would(n_leaves, leaves_of_block):
    leaves = [f"{k}." for k in range(n_leaves)]
    blocks = [
        tree_reduce(leaves[k : k + leaves_of_block], pair)
        for k in range(0, n_leaves, leaves_of_block)
    ]
    order = list(range(len(blocks)))
    random.Random(n_leaves).shuffle(order)
    tree = TreeReduction(len(blocks), pair)
    for number in order:
        tree.add(number, blocks[number])
    assert tree.root == tree_reduce(leaves, pair)


def test_a_value_may_be_none():
    merged = []
    tree = TreeReduction(2, lambda left, right: merged.append((left, right)))
    tree.add(1, None)
    tree.add(0, None)
    assert merged == [(None, None)]


def test_nearly_in_order_the_tree_holds_little():
    tree, most = TreeReduction(1024, pair), 0
    for number in range(1024):
        tree.add(number, "")
        most = max(most, len(tree._waiting))
    assert most <= 10


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("n_frames", [0, 1, 5, 16, 98])
def test_balanced_slices_are_those_of_numpy(n_frames, size):
    frames = np.arange(n_frames)
    found = [paceline.balanced_slices(n_frames, size, rank) for rank in range(size)]
    for share, wanted in zip(found, np.array_split(frames, size), strict=True):
        assert np.array_equal(frames[share], wanted)
    assert (found[0].start, found[-1].stop) == (0, n_frames)


@pytest.mark.parametrize("given", [(-1, 2, 0), (5, 0, 0), (5, 2, 2), (5, 2, -1), (5.5, 2, 0)])
def test_balanced_slices_of_impossible_ranks(given):
    with pytest.raises(ValueError, match=r"n_frames|size|rank"):
        paceline.balanced_slices(*given)
