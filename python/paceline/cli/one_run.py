"""One run of an analysis that `paceline bench scaling` measures, in a process of its own."""

import argparse
import json
import time
from typing import Any


def one_run(args: argparse.Namespace) -> None:
    """Run the analysis, and tell in one line of JSON what it took."""
    begun = time.time()
    from paceline.backends import make_backend
    from paceline.cli.common import run_analysis
    from paceline.digest import digest
    from paceline.scaling import quantities

    asked = json.loads(args.one_run)
    args.output = args.plot = args.checkpoint = args.report = None
    args.timings, args.n_workers = False, None
    args.trajectory = asked["trajectory"] or args.trajectory
    # The number of ranks is the launcher's.
    is_mpi = args.backend == "mpi"
    args.backend = make_backend(args.backend, None if is_mpi else asked["workers"])
    n_workers = args.backend.n_workers
    universe, analysis = args.analysis_of(args)
    run_analysis(args, universe, analysis, most_frames=asked["frames"])
    timings = analysis.timings
    told: dict[str, Any] = {
        "begun": begun,
        "backend": timings.backend,
        "values": quantities(timings, n_workers),
        "digest": digest(dict(analysis.results)),
        "hosts": sorted({block.worker.rsplit(":", 2)[0] for block in timings.blocks}),
        "n_workers": n_workers,
        "n_atoms": universe.trajectory.n_atoms,
        "n_selected": len(set(analysis.indices.tolist())),
        "n_frames": universe.trajectory.n_frames,
        "mpi": _mpi_library() if is_mpi else None,
    }
    print(json.dumps(told), flush=True)


def _mpi_library() -> str:
    from mpi4py import MPI

    return MPI.Get_library_version().splitlines()[0].strip("\0 ")
