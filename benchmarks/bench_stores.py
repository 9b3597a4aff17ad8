"""Measure reading from an object store with a latency of 80 to 100 ms, beside the bare transfer.

    python -m benchmarks stores [folder] [--repeats 5] [--only rmsd advise] [--tsv] [--tiny]

A server of this machine delays each request. Each run has a process of its own, which has nothing
in memory. `transfer` fetches the whole files in parts of 4 MiB, eight at a time, without decoding
them, in turn with the run. Results must equal those of the local file bit by bit. Requests of the
process that opens HDF5 files are not counted. zarrtraj is measured if `PACELINE_ZARRTRAJ` is a
Python that has it.
"""

import http.client
import math
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import numpy as np

from benchmarks.compare import options, report
from benchmarks.data import RECIPES, Dataset, prepare_set
from benchmarks.h5md_files import h5md_file
from benchmarks.store_server import store_server
from benchmarks.table import Table

#: Size of a part of the bare transfer, bytes, and number of parts at a time.
PART, AT_ONCE = 4 << 20, 8
#: Number of frames that are read at random.
N_RANDOM = 200
#: Number of frames that zarrtraj reads, one request each.
N_ZARRTRAJ = 50
BUCKET = "bucket"
T = TypeVar("T")
HEADINGS = ("case", "s", "min", "max", "frames/s", "requests", "MB", "times transfer", "target")

_ZARRTRAJ = """
import sys, time, warnings
warnings.simplefilter("ignore")
import MDAnalysis, zarrtraj
topology, address, endpoint, n = sys.argv[1:]
options = dict(anon=True, client_kwargs=dict(endpoint_url=endpoint))
universe = MDAnalysis.Universe(topology, address, storage_options=options)
begun = time.perf_counter()
for _ in universe.trajectory[:int(n)]:
    pass
print(time.perf_counter() - begun)
"""


@dataclass(frozen=True)
class Job:
    """Run in a process of its own."""

    name: str
    topology: str
    trajectory: str
    n_workers: int = 2


@dataclass(frozen=True)
class Done:
    """Cost of a run: time, s; frames; requests and bytes; digest of the result; CPU time, s."""

    seconds: float
    n_frames: int = 0
    n_requests: int = 0
    n_bytes: int = 0
    digest: str = ""
    cpu_seconds: float = math.nan


def transfer(endpoint: str, paths: Sequence[Path]) -> Done:
    """Fetch whole files of a bucket without decoding them."""
    host = urlsplit(endpoint).netloc
    parts = [
        (f"/{BUCKET}/{path.name}", start, min(start + PART, path.stat().st_size))
        for path in paths
        for start in range(0, path.stat().st_size, PART)
    ]
    begun = time.perf_counter()

    def fetch(parts: list[tuple[str, int, int]]) -> int:
        connection, done = http.client.HTTPConnection(host), 0
        for name, start, end in parts:
            connection.request("GET", name, headers={"Range": f"bytes={start}-{end - 1}"})
            buffer = bytearray(PART)
            response = connection.getresponse()
            while n := response.readinto(buffer):
                done += n
        return done

    with ThreadPoolExecutor(AT_ONCE) as threads:
        n_bytes = sum(threads.map(fetch, [parts[k::AT_ONCE] for k in range(AT_ONCE)]))
    size = sum(path.stat().st_size for path in paths)
    if n_bytes != size:
        raise RuntimeError(f"{paths[0]}: {n_bytes} bytes arrived, expected {size}")
    return Done(time.perf_counter() - begun, 0, len(parts), size)


def _counted(call: Callable[[], tuple[int, np.ndarray]]) -> Done:
    """Call a function that returns the number of frames and a result."""
    from paceline import _core

    before, begun = _core.requests_sent(), time.perf_counter()
    n_frames, result = call()
    seconds = time.perf_counter() - begun
    sent, _, n_bytes, *_ = np.subtract(_core.requests_sent(), before).tolist()
    return Done(seconds, n_frames, sent, n_bytes, sha256(result.tobytes()).hexdigest())


def rmsd(job: Job) -> Done:
    """RMSD of the Cα atoms, from opening the trajectory to the result."""
    import paceline
    from paceline.analysis.rms import RMSD

    universe = paceline.Universe(job.topology)

    def run() -> tuple[int, np.ndarray]:
        universe.load_new(job.trajectory)
        analysis = RMSD(universe, select="name CA")
        analysis.run(backend="threads", n_workers=job.n_workers, progress=False)
        return universe.trajectory.n_frames, analysis.results.rmsd

    return _counted(run)


def rdf(job: Job) -> Done:
    """Distances of all pairs of heavy atoms in 100 frames, which need more computing than bytes."""
    import paceline
    from paceline.analysis.rdf import InterRDF

    universe = paceline.Universe(job.topology)

    def run() -> tuple[int, np.ndarray]:
        universe.load_new(job.trajectory)
        atoms = universe.select_atoms("not name H*")
        analysis = InterRDF(atoms, atoms)
        n_frames = min(100, universe.trajectory.n_frames)
        analysis.run(backend="threads", n_workers=job.n_workers, progress=False, stop=n_frames)
        return n_frames, analysis.results.rdf

    return _counted(run)


def random_frames(job: Job) -> Done:
    """Read frames at random, all at once, with an index."""
    import paceline

    with paceline.open(job.trajectory) as trajectory:
        n = min(N_RANDOM, trajectory.n_frames)
        frames = np.sort(np.random.default_rng(1).choice(trajectory.n_frames, n, replace=False))
        return _counted(lambda: (n, trajectory.positions(frames=frames)))


def info(job: Job) -> Done:
    """Facts about the trajectory, as `paceline info` finds them."""
    from paceline.cli.facts_for_info import facts_of

    return _counted(lambda: (0, np.array([fact.text for fact in facts_of(job.trajectory)][1:5])))


def many(job: Job) -> Done:
    """Open many objects as one trajectory."""
    import paceline

    def run() -> tuple[int, np.ndarray]:
        with paceline.open(job.trajectory) as trajectory:
            return trajectory.n_frames, np.array([len(trajectory.chain.files)])

    begun = time.process_time()
    done = _counted(run)
    return replace(done, cpu_seconds=time.process_time() - begun)


def _in_process(function: Callable[[Job], T], job: Job, cache: str, endpoint: str) -> T:
    """Run a job in a new process, whose index files are in the folder `cache`."""
    os.environ.update(
        XDG_CACHE_HOME=cache,
        AWS_ENDPOINT_URL=endpoint,
        PACELINE_ANONYMOUS="1",
        PYTHONWARNINGS="ignore",
    )
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(function, (job,))


def advice(job: Job) -> tuple[float, ...]:
    """Predict the time of an RMSD and its range, and measure it, with one worker and with two.

    Returns latency and rate of the store, and for each number of workers time, range and result.
    """
    import paceline
    from paceline.analysis.rms import RMSD

    universe = paceline.Universe(job.topology, job.trajectory)
    found = paceline.advise(RMSD(universe, select="name CA"))
    times = [found.store.latency, found.store.rate]
    for n_workers in (1, 2):
        begun = time.perf_counter()
        RMSD(universe, select="name CA").run(backend="threads", n_workers=n_workers, progress=False)
        measured = time.perf_counter() - begun
        times += [found.t_total(n_workers), *found.t_range(n_workers), measured]
    return tuple(times)


def measure_advice(data: Dataset, folder: Path, repeats: int) -> Table:
    """Compare predicted and measured times for servers of several speeds."""
    path = data.trajectory("xtc")
    bucket = folder / BUCKET
    bucket.mkdir(exist_ok=True)
    if not (bucket / path.name).exists():
        (bucket / path.name).symlink_to(path.resolve())
    job = Job("advise", str(data.topology), f"s3://{BUCKET}/{path.name}")
    table = Table("RMSD of Cα predicted and measured", ADVICE)
    for latency, rate in SERVERS:
        with store_server(folder, latency=latency, jitter=latency / 4, rate=rate) as endpoint:
            cache = str(folder / "cache")
            runs = [_in_process(advice, job, cache, endpoint) for _ in range(repeats)]
        found = np.median(runs, axis=0).tolist()
        server = (f"{latency * 1e3:.0f} ms, {rate / 1e6:.0f} MB/s",)
        speed = (f"{found[0] * 1e3:.0f}", f"{found[1] / 1e6:.1f}")
        for n_workers, first in ((1, 2), (2, 6)):
            times = (f"{value:.2f}" for value in found[first : first + 4])
            table.rows.append((*server, *speed, str(n_workers), *times))
    return table


def measure_many(data: Dataset, folder: Path, n_objects: int) -> Table:
    """Open many short trajectories that a pattern names: for the first time, and again."""
    bucket = folder / "many"
    bucket.mkdir(exist_ok=True)
    head = _first_frames(data.trajectory("xtc"), FRAMES_OF_MANY)
    for k in range(n_objects):
        (bucket / f"run{k:05}.xtc").write_bytes(head)
    job = Job("many", "", "s3://many/run*.xtc")
    table = Table(f"{n_objects:,} objects of {len(head):,} bytes, opened together", OF_MANY)
    with store_server(folder) as endpoint:
        for case in ("first time", "again"):
            done = _in_process(many, job, str(folder / "cache-many"), endpoint)
            each = (done.seconds * 1e3 / n_objects, done.cpu_seconds * 1e3 / n_objects)
            sent = f"{done.n_requests / n_objects:.3f}"
            row = (case, f"{done.seconds:.2f}", *(f"{one:.2f}" for one in each), sent)
            table.rows.append(row)
    return table


def _first_frames(path: Path, n_frames: int) -> bytes:
    """Return the bytes of the first frames of a trajectory."""
    from paceline.trajectory.open import open_file

    file = open_file(path, progress=False)
    offsets, sizes = file.extents(np.array([n_frames - 1], dtype=np.uint64))
    with path.open("rb") as opened:
        return opened.read(int(offsets[0] + sizes[0]))


def zarrtraj(data: Dataset, endpoint: str) -> float | None:
    """Frames per second of zarrtraj from H5MD with a frame per chunk; None without zarrtraj."""
    python = os.environ.get("PACELINE_ZARRTRAJ")
    if python is None:
        report("zarrtraj is not measured: PACELINE_ZARRTRAJ names no Python with it")
        return None
    n = min(N_ZARRTRAJ, data.n_frames)
    address = f"s3://{BUCKET}/{h5md_file(data, 'frame').name}"
    command = [python, "-c", _ZARRTRAJ, str(data.topology), address, endpoint, str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return n / float(done.stdout)


#: Function, file, whether the index was made before, and error rate of each case. "water" is a
#: protein in water, of which the Cα atoms are a small part, and "chain" such files in a row.
CASES = {
    "rmsd, in water": (rmsd, "water", True, 0.0),
    "rmsd, chain": (rmsd, "chain", True, 0.0),
    "rmsd": (rmsd, "xtc", True, 0.0),
    "rmsd, no index": (rmsd, "xtc", False, 0.0),
    "rmsd, 5 % errors": (rmsd, "xtc", True, 0.05),
    "rmsd, H5MD": (rmsd, "h5md", True, 0.0),
    "rdf": (rdf, "xtc", True, 0.0),
    "200 frames": (random_frames, "xtc", True, 0.0),
    "info": (info, "xtc", True, 0.0),
    "info, no index": (info, "xtc", False, 0.0),
}
#: Latency, s, and rate, bytes per second, of the servers of which runs are predicted.
SERVERS = ((0.08, 10e6), (0.08, 40e6), (0.02, 100e6), (0.3, math.inf))
ADVICE = (
    *("server", "latency ms", "MB/s", "workers"),
    *("predicted s", "at least", "at most", "measured s"),
)
#: Number of files of the chain.
N_CHAIN = 4
#: Number of objects that a pattern names, and of frames in each.
N_OBJECTS, FRAMES_OF_MANY = 10_000, 3
OF_MANY = ("case", "s", "ms an object", "CPU ms an object", "requests an object")
#: Maximum time of each case: relative to the transfer of the file, or in seconds.
TARGETS = {
    "rmsd": "1.5 transfer",
    "rmsd, in water": "1.5 transfer",
    "rmsd, chain": "1.5 transfer",
    "200 frames": "0.5 s",
    "info": "1 s",
    "info, no index": "1.3 transfer",
}


def measure(case: str, data: Dataset, folder: Path, repeats: int) -> tuple[str, ...]:
    """Measure one case beside the transfer, in turn."""
    function, kind, has_index, error_rate = CASES[case]
    if kind == "h5md":
        path = h5md_file(data, "frame")
    else:
        path = data.trajectory("xtc" if kind in ("water", "chain") else kind)
    n_files, stem = (N_CHAIN, "chain") if kind == "chain" else (1, path.stem)
    names = [f"{stem}{k or ''}{path.suffix}" for k in range(n_files)]
    pattern = names[0] if n_files == 1 else f"{stem}*{path.suffix}"
    # Indexes beside the local files are not in the bucket.
    for place in (folder / "local", folder / BUCKET):
        place.mkdir(exist_ok=True)
        paths = [place / name for name in names]
        for one in paths:
            if not one.exists():
                one.symlink_to(path.resolve())
    of_local = Job(case, str(data.topology), str(folder / "local" / pattern))
    local = _in_process(function, of_local, str(folder), "")
    job = Job(case, str(data.topology), f"s3://{BUCKET}/{pattern}")
    times, bare, done = [], [], local
    with (
        store_server(folder, error_rate=error_rate) as endpoint,
        store_server(folder) as without_errors,
    ):
        for number in range(repeats + has_index):
            bare.append(transfer(without_errors, paths).seconds)
            # The first run makes the index.
            cache = folder / (f"cache-{case}" if has_index else f"cache-{case}-{number}")
            done = _in_process(function, job, str(cache), endpoint)
            if done.digest != local.digest:
                raise RuntimeError(f"{case}: the results differ from those of the local file")
            times.append(done.seconds)
    times, bare = times[has_index:], bare[has_index:]
    ratio = statistics.median(np.divide(times, bare).tolist())
    seconds = statistics.median(times)
    rate = f"{done.n_frames / seconds:.0f}" if done.n_frames else "-"
    spread = (f"{value:.2f}" for value in (seconds, min(times), max(times)))
    cost = (str(done.n_requests), f"{done.n_bytes / 1e6:.1f}", f"{ratio:.2f}")
    return (case, *spread, rate, *cost, TARGETS.get(case, "-"))


def main() -> None:
    asked = options(__doc__, [*CASES, "advise", "many", "zarrtraj"])
    asked.print_head()
    scale = 0.001 if asked.tiny else 1.0
    data = prepare_set(RECIPES[0], asked.folder, scale)
    size = data.trajectory("xtc").stat().st_size / 1e6
    title = f"XTC of {data.n_frames} frames, {size:.0f} MB; responses begin after 80 to 100 ms"
    table = Table(title, HEADINGS)
    tables = [table]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in CASES:
            if asked.wants(case):
                report(case)
                in_water = CASES[case][1] in ("water", "chain")
                of_case = prepare_set(RECIPES[1], asked.folder, scale) if in_water else data
                table.rows.append(measure(case, of_case, folder, asked.effort.repeats))
        (folder / BUCKET).mkdir(exist_ok=True)
        if asked.wants("advise"):
            report("advise")
            tables.append(measure_advice(data, folder, asked.effort.repeats))
        if asked.wants("many"):
            report("many")
            tables.append(measure_many(data, folder, 50 if asked.tiny else N_OBJECTS))
        if asked.wants("zarrtraj"):
            path = h5md_file(data, "frame")
            if not (folder / BUCKET / path.name).exists():
                (folder / BUCKET / path.name).symlink_to(path.resolve())
            with store_server(folder) as endpoint:
                rate = zarrtraj(data, endpoint)
            if rate is not None:
                blank = ("-",) * 3
                table.rows.append(("zarrtraj, H5MD", *blank, f"{rate:.1f}", *blank, "-"))
    asked.print_tables(tables)


if __name__ == "__main__":
    main()
