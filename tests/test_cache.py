"""Tests of the cache of blocks on local disks, and of the assignment of blocks to their nodes."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from helpers.disks import full_disk
from helpers.mpi import SCRIPTS, mpirun, needs_mpi
from helpers.waiting import until

import paceline
from benchmarks.measure import Unavailable
from benchmarks.slowfs import SlowFileSystem, library, total
from paceline import _core
from paceline._util.os_calls import blocks_in_memory, drop_from_cache
from paceline.analysis.rms import RMSD
from paceline.backends.dask import NodeBatcher, NodeTasks
from paceline.cli.command_line import main
from paceline.contract.node_disk_cache import Cache
from paceline.contract.source import Extents
from paceline.engine.node_cache_locality import (
    CachedFiles,
    NodeBlocks,
    blocks_here,
    homes_of,
    share_by_node,
)
from paceline.engine.scheduler import StealingPartition
from paceline.engine.tasks_and_results import FunctionJob, FunctionTask, Task
from paceline.errors import PacelineWarning, UnsupportedError
from paceline.performance.report import page_of
from paceline.performance.time_breakdown_and_stragglers import report_of
from paceline.timing import Timings

BLOCK = _core.CACHE_BLOCK
#: Number of copies of the frames of AdK in the file: about 12 MB.
COPIES = 3


@pytest.fixture(scope="module")
def files(adk, tmp_path_factory):
    """A topology, and a trajectory of 294 frames in 12 blocks."""
    path = tmp_path_factory.mktemp("shared") / "md.dcd"
    source = MDAnalysis.Universe(*adk)
    with MDAnalysis.Writer(str(path), len(source.atoms)) as writer:
        for copy in range(COPIES):
            for _ in source.trajectory:
                source.atoms.positions += copy
                writer.write(source.atoms)
    paceline.open(path)  # saves the index
    return adk.topology, path


def run(files, cache, backend="serial", **options):
    """Run an analysis; return the bytes from the file and from the cache, and the result."""
    u = paceline.Universe(*files, cache=cache, **options)
    workers = {} if backend == "serial" else {"n_workers": 2}
    rmsd = RMSD(u.select_atoms("name CA")).run(backend=backend, **workers)
    report = report_of(rmsd.timings)
    return report.bytes_read, report.bytes_cached, rmsd.results.rmsd


@pytest.fixture(scope="module")
def expected(files):
    n_bytes, cached, result = run(files, None)
    assert (n_bytes > 0, cached) == (True, 0)
    return result


@pytest.mark.parametrize("backend", ["serial", "threads", "processes"])
def test_the_second_run_reads_the_cache(files, expected, tmp_path, backend):
    first, _, result = run(files, tmp_path, backend)
    assert first > 0
    np.testing.assert_array_equal(result, expected)
    again, cached, result = run(files, tmp_path, backend, cache_size="1GB")
    assert again == 0
    assert cached >= os.path.getsize(files[1]) - BLOCK
    np.testing.assert_array_equal(result, expected)


def test_arrays_chunks_and_commands(files, tmp_path, capsys):
    h5md = tmp_path / "md.h5md"
    assert main(["convert", str(files[1]), str(h5md)]) == 0
    plain = paceline.open(h5md).positions(atoms=range(7))
    for _ in range(2):
        trajectory = paceline.open(h5md, cache=tmp_path / "a", cache_size=10**9)
        np.testing.assert_array_equal(trajectory.positions(atoms=range(7)), plain)
    command = ["rmsd", *map(str, files), "--cache", str(tmp_path / "b"), "--cache-size", "1GB"]
    report = str(tmp_path / "run.csv")
    for _ in range(2):
        assert (
            main([*command, "-o", str(tmp_path / "x.csv"), "--overwrite", "--report", report]) == 0
        )
    capsys.readouterr()
    timings = Timings.from_csv(report)
    found = report_of(timings)
    assert found.bytes_read == 0
    assert found.bytes_cached > 0
    assert "from the cache" in page_of(timings)


def test_a_chain_sends_its_cache(files, tmp_path):
    chain = paceline.open(files[1], cache=tmp_path).chain
    assert pickle.loads(pickle.dumps(chain)).cache == chain.cache


def test_a_full_cache_warns_and_reads_on(files, expected, tmp_path):
    with pytest.warns(PacelineWarning, match=r"the cache is full \(4000000 bytes\)"):
        run(files, tmp_path, cache_size="4MB")
    (stored,) = tmp_path.glob("*/*")
    assert 0 < stored.stat().st_blocks * 512 <= 4_000_000
    with pytest.warns(PacelineWarning, match="the cache is full"):
        again, cached, result = run(files, tmp_path, cache_size="4MB")
    assert 0 < cached < again
    np.testing.assert_array_equal(result, expected)


def test_a_full_disk_warns_and_reads_on(files, expected, tmp_path):
    u = paceline.Universe(*files, cache=tmp_path)
    shutil.rmtree(tmp_path)
    with full_disk(), pytest.warns(PacelineWarning, match="File too large"):
        result = RMSD(u.select_atoms("name CA")).run(backend="serial").results.rmsd
    np.testing.assert_array_equal(result, expected)


def test_another_users_folder_is_refused(files, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder of another user")
    run(files, tmp_path)
    (folder,) = tmp_path.iterdir()
    os.chown(folder, 12345, 12345)
    with pytest.raises(OSError, match=f"{folder.name}.*belongs to another user"):
        run(files, tmp_path)


def test_a_link_and_a_file_are_refused(files, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot keep a cache there"):
        run(files, tmp_path / "file")


def test_a_stale_or_damaged_cache_is_not_used(files, expected, tmp_path):
    path = tmp_path / "md.dcd"
    shutil.copy(files[1], path)
    run((files[0], path), tmp_path / "cache")
    (stored,) = (tmp_path / "cache").glob("*/*")
    damaged = bytearray(stored.read_bytes())
    damaged[4096 + BLOCK + 5] ^= 1
    stored.write_bytes(damaged)
    again, _, result = run((files[0], path), tmp_path / "cache")
    assert again == BLOCK
    np.testing.assert_array_equal(result, expected)
    # Change bytes that the samples of the fingerprint do not contain.
    with open(path, "r+b") as file:
        file.seek(2 * BLOCK + 1000)
        file.write(bytes(4000))
    changed = run((files[0], path), None)[2]
    again, _, result = run((files[0], path), tmp_path / "cache")
    assert again >= os.path.getsize(path)
    np.testing.assert_array_equal(result, changed)
    assert (result != expected).any()


READ = """
import sys, paceline
for _ in range(int(sys.argv[3])):
    print(paceline.open(sys.argv[1], cache=sys.argv[2]).positions().sum(dtype=float), flush=True)
"""


def start(files, cache, times):
    command = [sys.executable, "-W", "ignore", "-c", READ, files[1], cache, times]
    environment = os.environ | {"PYTHONPATH": str(Path(paceline.__file__).parents[1])}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [str(word) for word in command], env=environment, stdout=pipe, text=True
    )


def test_processes_share_a_cache_and_may_be_killed(files, expected, tmp_path):
    killed = start(files, tmp_path, 10**6)
    until(lambda: any(file.stat().st_blocks for file in tmp_path.glob("*/*")))
    killed.kill()
    killed.communicate()
    processes = [start(files, tmp_path, 1) for _ in range(3)]
    sums = {process.communicate()[0] for process in processes}
    assert sums == {f"{paceline.open(files[1]).positions().sum(dtype=float)}\n"}
    again, _, result = run(files, tmp_path)
    assert again == 0
    np.testing.assert_array_equal(result, expected)


def test_arguments(files, tmp_path, monkeypatch):
    with pytest.raises(UnsupportedError, match=r"cache_size= .* needs cache="):
        paceline.open(files[1], cache_size="1GB")
    with pytest.raises(UnsupportedError, match=r"cache= \(--cache\), found an empty name"):
        paceline.open(files[1], cache="")
    with pytest.raises(ValueError, match="500MB"):
        paceline.open(files[1], cache=tmp_path, cache_size="lots")
    with pytest.raises(ValueError, match="at least 1 byte"):
        Cache.of(tmp_path, 0)
    with pytest.raises(UnsupportedError, match="files only"):
        paceline.open(np.zeros((1, 2, 3), np.float32), cache=tmp_path)
    cache = Cache.of("$SCRATCH_OF_NODE/x", None)
    with pytest.raises(UnsupportedError, match="set on each node"):
        cache.here()
    monkeypatch.setenv("SCRATCH_OF_NODE", str(tmp_path))
    assert cache.here().folder == f"{tmp_path}/x"
    monkeypatch.chdir(tmp_path)
    assert Cache.of("x", None).folder == f"{tmp_path}/x"


def held(*blocks):
    return {(0, 0): np.packbits(np.isin(np.arange(8), blocks))}


def test_blocks_go_to_the_node_that_has_them():
    sizes = np.array([BLOCK], dtype=np.uint64)
    file = np.zeros(1, dtype=np.int64)
    tasks = [
        Task(0, k, k, file, Extents(file, file, sizes * np.uint64(k), sizes, (None,)), None)
        for k in range(8)
    ]
    nodes = [NodeBlocks("a", held(0, 1, 5)), NodeBlocks("b", held(1, 2, 6, 7))]
    homes = homes_of(tasks, nodes)
    assert homes.tolist() == [0, 0, 1, -1, -1, 0, 1, 1]
    shares = StealingPartition(tasks, 3, shares=share_by_node(homes, [0, 0, 1]))
    taken = {worker: [task.number for task in shares.take(worker, 99)] for worker in range(3)}
    assert taken == {0: [0, 1, 3], 1: [5, 4], 2: [2, 6, 7]}
    # An idle worker first takes blocks of its own node, and blocks that are in no cache.
    shares = StealingPartition(tasks, 3, shares=share_by_node(homes, [0, 0, 1]))
    assert [task.number for task in shares.take(1, 99)] == [5, 4]
    assert [task.number for task in shares.take(1, 99)] == [1, 3]
    assert homes_of(tasks, [NodeBlocks("a", {})]).tolist() == [-1] * 8
    # Node a has all blocks, and the others have one or half of them; shared blocks go to the least
    # busy node.
    nodes = [
        NodeBlocks("a", held(*range(8))),
        NodeBlocks("b", held(4)),
        NodeBlocks("c", held(*range(4))),
    ]
    assert homes_of(tasks, nodes).tolist() == [2, 2, 2, 2, 1, 0, 0, 0]
    nodes = [NodeBlocks(name, held(*range(8))) for name in "abcd"]
    assert homes_of(tasks, nodes).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert homes_of([], nodes).tolist() == []
    # If there are several hosts, blocks in no cache go to the host that has them in memory.
    nodes = [NodeBlocks("a:", held(7), held(0, 1, 6)), NodeBlocks("b:", held(6), held(1, 2, 7))]
    assert homes_of(tasks, nodes).tolist() == [0, 1, 1, -1, -1, -1, 1, 0]
    nodes[1] = replace(nodes[1], node="a:x")
    assert homes_of(tasks, nodes).tolist() == [-1] * 6 + [1, 0]


def test_blocks_in_the_memory_of_a_node_are_found(files, tmp_path):
    path = Path(shutil.copy(files[1], tmp_path / "md.dcd"))
    n_blocks = -(-path.stat().st_size // BLOCK)
    if blocks_in_memory(path, BLOCK) is None:
        pytest.skip("this system does not report what is in memory")
    fingerprint = _core.fingerprint_of(paceline.open(path).chain.specs[0].samples)
    wanted = CachedFiles(0, Cache.of(tmp_path / "cache", None), [(str(path), fingerprint)])
    path.read_bytes()
    there = blocks_here([wanted])
    assert np.unpackbits(there.in_memory[0, 0])[:n_blocks].all()
    assert there.held == {}
    drop_from_cache(path)
    if blocks_in_memory(path, BLOCK).any():
        pytest.skip("files are kept in memory here")
    assert blocks_here([wanted]).in_memory == {}
    missing = wanted._replace(files=[(str(tmp_path / "none"), fingerprint)])
    assert blocks_here([missing]).in_memory == {}


def exchange(caches):
    """Exchange the caches of nodes 0 and 1, by renaming folders."""
    (caches / "0").rename(caches / "x")
    (caches / "1").rename(caches / "0")
    (caches / "x").rename(caches / "1")


def test_dask_workers_read_the_caches_of_their_nodes(files, expected, tmp_path):
    distributed = pytest.importorskip("distributed")
    u = paceline.Universe(*files, cache=tmp_path / "$CACHE_OF_NODE")
    worker = {"cls": distributed.Nanny, "options": {"nthreads": 1}}
    workers = {k: worker | {"options": {"env": {"CACHE_OF_NODE": str(k)}}} for k in range(2)}
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard": False}}
    with (
        distributed.SpecCluster(workers=workers, scheduler=scheduler, silence_logs=50) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        for _ in range(5):
            for again in (False, True):
                if again:
                    exchange(tmp_path)
                rmsd = RMSD(u.select_atoms("name CA")).run(backend=client, block_frames=16)
                np.testing.assert_array_equal(rmsd.results.rmsd, expected)
            report = report_of(rmsd.timings)
            if report.bytes_read <= 2 * BLOCK:
                break
            # On a busy machine, Dask moves batches to the other node.
            for node in "01":
                shutil.rmtree(tmp_path / node)
    assert report.bytes_read <= 2 * BLOCK
    assert report.bytes_cached >= 9 * BLOCK


def test_batches_of_nodes_take_turns():
    jobs = [FunctionJob("f", b"")]
    nodes = [NodeTasks(calls(range(3)), ["a"], 1), NodeTasks(calls(range(3, 9)), ["b", "c"], 2)]
    batches = NodeBatcher(jobs, nodes)
    found = [(batch.number, batches.addresses_of(batch)) for batch in batches]
    assert [number for number, _ in found] == [0, 3, 4, 1, 5, 6, 2, 7, 8]
    assert [addresses for number, addresses in found if number < 3] == [["a"]] * 3
    one = NodeBatcher(jobs, [NodeTasks(calls(range(4)), [], 4)])
    assert [(batch.number, one.addresses_of(batch)) for batch in one] == [(k, []) for k in range(4)]


def calls(numbers):
    return [FunctionTask(0, k, k, k, 1, f"item {k}", None) for k in numbers]


@needs_mpi
def test_ranks_read_the_caches_of_their_nodes(files, expected, tmp_path):
    """Let two nodes read slow files, exchange their caches, and read the files again."""
    try:
        library()
    except Unavailable as reason:
        pytest.skip(str(reason))
    shared = tmp_path / "shared"
    shared.mkdir()
    copies = [shutil.copy(files[1], shared / f"{k}.dcd") for k in range(6)]
    size = sum(map(os.path.getsize, copies))
    for copy in copies:
        paceline.open(copy)  # saves the index

    def on_ranks():
        with SlowFileSystem(shared, latency=1e-3, bandwidth=200e6) as slow:
            arguments = SCRIPTS / "cached.py", tmp_path, tmp_path / "result", files[0], *copies
            script = "-m", "paceline.mpi", *arguments
            status, out, err = mpirun(2, *script, **slow.environment())
            assert status == 0, err
            result = np.fromfile(tmp_path / "result").reshape(-1, 3)[:, 2]
            np.testing.assert_array_equal(result, np.tile(expected[:, 2], len(copies)))
            return np.array(sorted(json.loads(out))).T, total(slow.counts()).bytes_read

    for _ in range(4):
        (_, before, read, _), counted = on_ranks()
        first = read.sum()
        assert size - BLOCK * len(copies) <= first <= counted
        exchange(tmp_path)
        (_, after, read, cached), counted = on_ranks()
        # On a busy machine, an idle rank takes over blocks that are in the cache of the other one.
        at_home = before != after
        if at_home.mean() > 0.5:
            break
        shutil.rmtree(tmp_path / "0")
        shutil.rmtree(tmp_path / "1")
    assert read[at_home].sum() <= 0.05 * first
    assert cached[at_home].sum() >= 0.9 * first * at_home.mean()
    # The counted bytes include the samples that identify the files.
    assert read.sum() <= counted <= read.sum() + 0.02 * first
