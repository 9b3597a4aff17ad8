"""Tests of templates for batch systems: a stand-in for srun, PBS's variables, and Slurm."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.mpi import MPIEXEC, environment, needs_mpi
from helpers.programs import needs_program

import paceline
from paceline.analysis.rms import RMSD

TEMPLATES = Path(__file__).parents[1] / "examples" / "slurm"
#: Stand-in for srun, with the MPI of the tests.
SRUN = """#!/bin/bash
while [[ "$1" == --* ]]; do shift; done
exec {mpiexec} -n "$SLURM_NTASKS" "$@"
"""


def run_by_stand_in(template, files, folder):
    """Run a template like Slurm's batch shell."""
    srun = folder / "srun"
    srun.write_text(SRUN.format(mpiexec=" ".join(MPIEXEC)))
    srun.chmod(0o755)
    variables = environment() | {"SLURM_NTASKS": "2", "SLURM_CPUS_PER_TASK": "2"}
    variables["PATH"] = f"{folder}:{Path(sys.executable).parent}:{variables['PATH']}"
    subprocess.run(["bash", str(template), *files], cwd=folder, env=variables, check=True)


def run_by_slurm(template, files, folder):
    """Run a template with Slurm, on two cores."""
    options = ["--wait", "--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["sbatch", *options, str(template), *files],
        cwd=folder,
        env=environment() | {"PATH": path},
        check=True,
    )


def run_as_in_pbs(template, files, folder):
    """Run a PBS template like the shell of its job, with two chunks on this machine."""
    template = TEMPLATES.parent / "pbs" / template.name
    (folder / "nodes").write_text("localhost\nlocalhost\n")
    mpiexec = folder / "mpiexec"
    mpiexec.write_text(f'#!/bin/bash\nexec {" ".join(MPIEXEC)} "$@"\n')
    mpiexec.chmod(0o755)
    variables = {"PBS_O_WORKDIR": str(folder), "PBS_NODEFILE": str(folder / "nodes")}
    variables |= {"TOPOLOGY": files[0], "TRAJECTORY": files[1], "NCPUS": "2"}
    variables["PATH"] = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["bash", str(template)], cwd="/", env=environment() | variables, check=True)


def takes_jobs():
    """Return whether Slurm has queues that accept jobs."""
    asked = subprocess.run(["sinfo", "--noheader"], capture_output=True, timeout=60)
    return asked.returncode == 0


@pytest.mark.one_in(3)
@needs_mpi
@needs_program("bash")
@pytest.mark.parametrize("name", ["rank-per-core.sh", "rank-per-node.sh"])
@pytest.mark.parametrize(
    "run",
    [run_by_stand_in, run_as_in_pbs, pytest.param(run_by_slurm, marks=needs_program("sinfo"))],
)
def test_a_template_gives_the_table_of_a_plain_run(run, name, adk, tmp_path):
    if run is run_by_slurm and not takes_jobs():
        pytest.skip("Slurm takes no jobs here")
    run(TEMPLATES / name, adk, tmp_path)
    lines = (tmp_path / "rmsd.csv").read_text().splitlines()
    rows = [line for line in lines if line[0].isdigit()]
    table = np.loadtxt(rows, delimiter=",")
    universe = paceline.Universe(*adk)
    alone = RMSD(universe, select="protein and name CA").run(backend="serial")
    np.testing.assert_array_equal(table, alone.results.rmsd)
    assert not (tmp_path / "rmsd.checkpoint").exists()


@needs_program("bash")
@pytest.mark.parametrize(
    "path", sorted(TEMPLATES.parent.glob("*/*.sh")), ids=lambda path: path.stem
)
def test_templates_are_valid_for_bash(path):
    subprocess.run(["bash", "-n", str(path)], check=True)


def test_a_script_for_dask_needs_only_its_cluster_changed(adk, tmp_path):
    """Check a script in which a local cluster replaces that of the queue."""
    script = (TEMPLATES / "dask_cluster.py").read_text()
    queue = re.search(r"SLURMCluster\(.*\) as", script).group()
    assert "from dask_jobqueue.slurm import SLURMCluster" in script
    script = script.replace("from dask_jobqueue.slurm import SLURMCluster", "").replace(
        queue, "LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as"
    )
    script = script.replace("import Client", "import Client, LocalCluster")
    script = script.replace("cluster.scale(jobs=2)", "cluster.scale(1)")
    body = "\n".join(f"    {line}" for line in script.splitlines())
    (tmp_path / "script.py").write_text(f'if __name__ == "__main__":\n{body}\n')
    command = [sys.executable, "script.py", *adk]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "dask: 98 frames" in done.stdout
    assert (tmp_path / "rmsd.csv").exists()
