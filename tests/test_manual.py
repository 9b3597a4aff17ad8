"""Tests that the code blocks of the README and the manual run, on small files with the pages'
names.
"""

import contextlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from functools import partial
from glob import glob
from importlib.util import find_spec
from pathlib import Path

import h5py
import MDAnalysis
import numpy as np
import pandas
import pytest
from helpers.h5md_files import write_simple
from helpers.mpi import MPIEXEC, environment
from MDAnalysis.coordinates.base import Timestep
from MDAnalysisTests import datafiles

import paceline
from benchmarks.plot import read_warm
from paceline import transform
from paceline.analysis.rdf import InterRDF
from paceline.analysis.rms import RMSD, RMSF
from paceline.backends.local_dask_cluster import LocalCluster
from paceline.cli.command_line import main, parser_of

ROOT = Path(__file__).parents[1]
#: A code block: its language, and its lines.
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Beginnings of shell lines that are run.
COMMANDS = ("paceline ", "python -m paceline ", "mpirun -n 64 ", "sed ")
#: Beginnings of other shell lines: installation, and commands that need a cluster.
OTHERS = ("make ", "pip install ", "sudo apt-get ", "python -m venv ", "mpio/bin/", "ln -s ")
OTHERS += (
    "uv pip install ",
    "paceline-environment/bin/pip ",
    "conda ",
    "grep ",
    "podman ",
    "apptainer ",
    "CARGO_TARGET_",
    "python -m paceline.selftest",
)
OTHERS += (
    "PATH=",
    "sbatch ",
    "srun ",
    "mpiexec -hosts ",
    "mpirun --host ",
    "python -m benchmarks",
    "[ $? ",
    "python tests/",
)
#: Commands to which --overwrite is added, because a reader who runs all lines needs it.
OVERWRITE = ("rmsd", "rmsf", "rdf", "convert", "join", "bench", "validate", "predict")
#: Slow commands, which run on one page. On other pages only their arguments are parsed.
ONCE = {"advise": "docs/advise.md", "battery": "README.md", "bench": "docs/scaling.md"}
#: Lines that start processes, by page, and another page where the same line runs.
RUN_ELSEWHERE = {
    ("packaging/pypi.md", "python -m paceline script.py"): "README.md",
    (
        "packaging/pypi.md",
        "mpirun -n 64 paceline rmsd md.tpr md.xtc -o rmsd.csv",
    ): "docs/command-line.md",
}
#: Pages whose blocks take longest; only `make test-all` runs them.
SLOW = ("docs/advise.md", "docs/backends.md", "docs/drop-in.md", "docs/scaling.md")
#: A script for MDAnalysis.
SCRIPT = """
import MDAnalysis as mda
from MDAnalysis.analysis.rms import RMSD

print(RMSD(mda.Universe("adk.psf", "adk.dcd"), select="name CA").run().results.rmsd[-1])
"""
#: Packages that blocks need, but not the tests. Such blocks run only if they are installed.
FURTHER_PACKAGES = ("ase", "freud", "torch")
#: Blocks that are not run, by page and part of their text, and the test that runs the same.
NOT_RUN = {
    ("docs/clusters.md", "--8<-- "): "test_slurm.py",
    ("docs/replay.md", "deposit/"): "test_replay.py::test_a_battery_and_its_further_tables",
    ("docs/live.md", "--8<-- "): "test_live.py",
    ("docs/live.md", "lennard_jones("): "test_live.py::test_units",
    ("docs/live.md", "examples/"): "test_live.py",
    ("docs/live.md", "live-output/"): "test_live.py::test_analyses_run_on_what_was_written",
    ("docs/live.md", "-m mpi4py"): "test_live.py",
    ("docs/live.md", "--follow"): "test_live_page.py",
    ("docs/live.md", "paceline.live("): "test_live_runner.py",
    ("docs/live.md", "imd://"): "test_live_runner.py",
    ("docs/command-line.md", "paceline relay"): "test_relay.py",
    ("docs/developers/experiments/contention.md", "SlowFileSystem"): "test_slowfs.py",
    ("docs/snapshots.md", "Writer(MPI"): "test_snapshot_writer.py",
    ("docs/snapshots.md", "Writer(comm"): "test_snapshot_writer.py",
    ("docs/snapshots-reading.md", "Reader(MPI"): "test_snapshot_reader.py",
    ("docs/snapshots-reading.md", "ghosts=10.0"): "test_snapshot_reader.py",
    ("docs/layouts.md", "driver="): "HDF5 on MPI-IO",
    ("docs/formats/h5md.md", "comm=comm"): "test_mpi.py",
    ("docs/formats/h5md.md", "driver="): "HDF5 on MPI-IO",
    ("docs/backends.md", "backends.MPI(MPI"): "test_mpi.py",
    ("docs/drop-in.md", "-m jupyter"): "test_notebooks.py::test_a_notebook_runs_unchanged",
    ("docs/object-stores.md", "s3://"): "test_stores.py",
    ("docs/scaling.md", "#SBATCH"): "Slurm",
    ("docs/resuming.md", "#SBATCH"): "Slurm",
}


def pages() -> list[str]:
    found = [ROOT / "README.md", ROOT / "packaging/pypi.md", *sorted((ROOT / "docs").rglob("*.md"))]
    # test_run_commands.py runs these pages on other files.
    others = {ROOT / "docs" / "how-do-i.md", *(ROOT / "docs" / "tutorials").iterdir()}
    found = [path for path in found if path not in others]
    return [str(path.relative_to(ROOT)) for path in found if BLOCK.search(path.read_text("utf-8"))]


def end_to_end(block):
    return np.linalg.norm(block.positions[:, -1] - block.positions[:, 0], axis=1)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """Folder of files with the names used on the pages."""
    folder = tmp_path_factory.mktemp("files")
    for name, path in {
        "adk.psf": datafiles.PSF,
        "adk.dcd": datafiles.DCD,
        "melt.psf": datafiles.TRZ_psf,
        "melt.trz": datafiles.TRZ,
        "martini.gro": datafiles.Martini_membrane_gro,
        "md.tpr": datafiles.TPR2020,
        "topol.tpr": datafiles.TPR2020,
        "md.edr": datafiles.AUX_EDR,
        "CONFIG": datafiles.DLP_CONFIG,
        "HISTORY": datafiles.DLP_HISTORY,
        "REVCON": datafiles.DLP_CONFIG,
        "system.data": datafiles.LAMMPS_image_vf,
        "run.lammpstrj": datafiles.LAMMPSDUMP_image_vf,
    }.items():
        shutil.copy(path, folder / name)
    write_protein(folder)
    protein = paceline.Universe(folder / "md.tpr", folder / "md.trr")
    adk = paceline.Universe(folder / "adk.psf", folder / "adk.dcd")
    for universe, name, options in [
        (protein, "a.xtc", {"stop": 40}),
        (protein, "b.xtc", {"start": 40, "stop": 80}),
        (protein, "c.dcd", {"start": 80}),
        (protein, "md.part1.xtc", {"stop": 63}),
        (protein, "md.part2.xtc", {"start": 60}),
        (protein, "md.xtc", {}),
        (protein, "short.xtc", {"stop": 5}),
        (protein, "md.h5md", {}),
        (adk, "adk.xtc", {}),
        (adk, "adk.h5md", {}),
    ]:
        paceline.run(paceline.Write(universe.atoms, folder / name), **options)
    protein.select_atoms("protein").write(folder / "crystal.pdb")
    for name in ("traj.xtc", "run0/md.xtc", "run1/md.xtc", "run2/md.xtc", "run3/md.xtc"):
        (folder / name).parent.mkdir(exist_ok=True)
        os.link(folder / "md.xtc", folder / name)
    for group in ("wt", "mutant"):
        shutil.copy(datafiles.TPR2020, folder / f"{group}.tpr")
        for number in (1, 2):
            (folder / group / f"{number}").mkdir(parents=True)
            os.link(folder / "short.xtc", folder / group / f"{number}" / "md.xtc")
    for number in (1, 2):
        os.link(folder / f"md.part{number}.xtc", folder / f"part{number}.xtc")
        os.link(folder / "md.xtc", folder / f"run-{number}.xtc")
    write_hdf5(folder, adk)
    write_complex(folder, adk)
    rows = [f"wt-{number},wt.tpr,wt/{number}/md.xtc" for number in (1, 2)]
    (folder / "deposit.csv").write_text("\n".join(["id,topology,trajectory", *rows]))
    (folder / "pieces").mkdir()
    (folder / "package").mkdir()
    (folder / "package" / "module.py").write_text(SCRIPT, encoding="utf-8")
    (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def client():
    """Client of a local Dask cluster."""
    with contextlib.closing(LocalCluster(2)) as cluster:
        yield cluster.client


def write_protein(folder: Path) -> None:
    """Write a raw trajectory of GROMACS's topology, with molecules across the cell faces."""
    atoms = MDAnalysis.Universe(datafiles.TPR2020).atoms
    rng = np.random.default_rng(11)
    steps = rng.normal(size=(len(atoms), 3))
    steps *= 1.2 / np.linalg.norm(steps, axis=1, keepdims=True)
    places = rng.uniform(0, 60, (len(atoms), 3))
    for one, other in atoms.bonds.indices:
        # Bonds of a topology begin at the lower index.
        places[other] = places[one] + steps[other]
    system = MDAnalysis.Merge(atoms)
    with MDAnalysis.Writer(str(folder / "md.trr"), len(atoms)) as writer:
        for frame in range(120):
            ts = Timestep(len(atoms), velocities=True)
            ts.positions = (places + rng.normal(0, 0.2, places.shape)) % 60
            ts.velocities = rng.normal(0, 5, places.shape)
            ts.dimensions = [60, 60, 60, 90, 90, 90]
            ts.frame, ts.time, ts.data["step"] = frame, 1000.0 * frame, 500_000 * frame
            system.trajectory.ts = ts
            writer.write(system.atoms)


def write_complex(folder: Path, adk: paceline.Universe) -> None:
    """Write adenylate kinase with a ligand (a copy of one of its residues) and some water."""
    chain = adk.select_atoms("protein")
    water = MDAnalysis.Universe(datafiles.waterPSF, datafiles.waterDCD).atoms
    system = MDAnalysis.Merge(chain, adk.select_atoms("resid 40"), water)
    system.add_TopologyAttr("elements", [name[0] for name in system.atoms.names])
    ligand = system.residues[len(chain.residues)]
    ligand.resname, ligand.resid = "LIG", 900
    frames = adk.trajectory.timeseries(order="fac", stop=12)
    copied = frames[:, adk.select_atoms("resid 40").indices] + [0, 0, 4]
    places = water.positions - water.center_of_geometry() + copied.mean(axis=1, keepdims=True)
    positions = np.concatenate([frames, copied, places], axis=1).astype(np.float32)
    system.load_new(positions, dimensions=np.float32([[90, 90, 90, 90, 90, 90]] * 12))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a PDB file lacks charges
        system.atoms.write(str(folder / "complex.pdb"), bonds="all")
    system.atoms.write(str(folder / "complex.xtc"), frames="all")


def write_hdf5(folder: Path, adk: paceline.Universe) -> None:
    """Write HDF5 files like those of other programs, most of which lack some data."""
    positions = adk.trajectory.timeseries(order="fac", stop=20) / 10
    n_frames = len(positions)
    clock = {"step": np.arange(n_frames), "time": np.arange(n_frames) * 1000.0, "edges": None}
    moves = {"velocity": None, "force": positions}
    held = {"position": positions, **moves, **clock}
    write_simple(folder / "forces.h5", units={}, **held)
    held["force"] = None
    for name in ("dump.h5", "lj.h5"):
        write_simple(folder / name, units={}, **held)
    write_simple(folder / "md.h5", group="solute", **held)
    with h5py.File(folder / "md.h5", "r+") as file:
        file.copy("particles/solute", "particles/solvent")
    with h5py.File(folder / "bare.h5", "w") as file:
        file["pos"] = positions
    with paceline.H5MDWriter(folder / "run.h5md", adk.atoms.n_atoms) as writer:
        for ts in adk.trajectory[:20]:
            ts.data["energy"] = float(ts.frame)
            writer.write(adk.atoms)


#: Names that pages use without a definition, and their values.
PRESET = {
    "np": lambda: np,
    "pandas": lambda: pandas,
    "paceline": lambda: paceline,
    "transform": lambda: transform,
    "RMSD": lambda: RMSD,
    "RMSF": lambda: RMSF,
    "InterRDF": lambda: InterRDF,
    "end_to_end": lambda: end_to_end,
    "u": lambda: paceline.Universe("md.tpr", "md.trr"),
    "ca": lambda: paceline.Universe("md.tpr", "md.trr").select_atoms("name CA"),
    "protein": lambda: paceline.Universe("md.tpr", "md.trr").select_atoms("protein"),
    "rmsd": lambda: RMSD(PRESET["ca"]()).run(),
    "crystal": lambda: MDAnalysis.Universe("crystal.pdb"),
    **{name: partial(getattr, transform, name) for name in ("unwrap", "center", "wrap", "fit")},
}


def run_python(code: str, names: dict, where: str) -> None:
    """Run a Python block. Names that its page does not define are those of other pages."""
    for name, make in PRESET.items():
        if re.search(rf"(?<![.\w\"]){name}\b", code) and name not in names:
            names[name] = make()
    exec(compile(code, where, "exec"), names)


def run_shell(lines: str, page: str) -> None:
    """Run those lines of a shell block that are commands of paceline."""
    for line in lines.replace("\\\n", " ").splitlines():
        line = line.removeprefix("$ ").partition(" #")[0].strip()
        words = shlex.split(line, comments=True) if line.startswith(COMMANDS) else []
        if line.startswith("paceline "):
            # Expand unquoted patterns, like a shell.
            words = [one for word in line.split() for one in sorted(glob(word)) or [word]]
            words = shlex.split(" ".join(words))
            if words[1] in ONCE and page != ONCE[words[1]]:
                parser_of().parse_args(words[1:])
                continue
            if words[1] == "bench":
                words += ["--repeats", "1"]
            if words[1] == "split":
                words += ["-o", tempfile.mkdtemp(dir=".")]
            overwrite = (words[1] in OVERWRITE and "-o" in words) or words[1] == "convert"
            assert main([*words[1:], *["--overwrite"] * overwrite]) in (0, None), line
        elif (page, line) in RUN_ELSEWHERE:
            assert f"\n{line}" in (ROOT / RUN_ELSEWHERE[page, line]).read_text("utf-8")
        elif words:
            line = line.replace("mpirun -n 64", f"{shlex.join(MPIEXEC)} -n 2")
            command = shlex.join(
                [sys.executable, "-c", "from paceline.cli import main; raise SystemExit(main())"]
            )
            line = re.sub(r"\bpaceline (rmsd.*)", rf"{command} \1 --overwrite", line)
            line = line.replace("python -m", f"{sys.executable} -m")
            subprocess.run(line, shell=True, check=True, env=environment())


def with_marks(page):
    return pytest.param(page, marks=pytest.mark.full) if page in SLOW else page


@pytest.mark.parametrize("page", map(with_marks, pages()))
def test_blocks_run(page, files, tmp_path, monkeypatch, request):
    shutil.copytree(files, tmp_path, copy_function=os.link, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    names: dict = {}
    for block in BLOCK.finditer(text):
        language, code = block.groups()
        if any(page == other and part in code for other, part in NOT_RUN):
            continue
        n_before = text.count("\n", 0, block.start()) + 1
        # Parts of an earlier split must not exist.
        for piece in tmp_path.glob("md.0*.xtc"):
            piece.unlink()
        if any(
            re.search(rf"^(import|from) (paceline\.)?{name}\b", code, re.MULTILINE)
            and not find_spec(name)
            for name in FURTHER_PACKAGES
        ):
            continue
        if language == "python":
            if re.search(r"\bclient\b|Client", code):
                client = request.getfixturevalue("client")
                code = re.sub(r"Client\(.*\)", "client", code)
                names["client"] = client
            run_python("\n" * n_before + code, names, page)
        elif language == "bash":
            run_shell(code, page)


@pytest.mark.parametrize("page", pages())
def test_lines_of_the_shell_are_run_or_known(page):
    for block in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")):
        language, code = block.groups()
        skipped = any(page == other and part in code for other, part in NOT_RUN)
        if language != "bash" or skipped or code.startswith("$ "):
            continue
        for line in code.replace("\\\n", " ").splitlines():
            assert not line or line.startswith(("#", *COMMANDS, *OTHERS)), line


def test_names_of_blocks_that_are_not_run_exist():
    for page, part in NOT_RUN:
        blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
        assert any(part in code for _, code in blocks), (page, part)


def test_experiments_of_the_papers_exist():
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    known = {path.stem for path in (ROOT / "docs/developers/experiments").glob("*.tsv")}
    rows = page[page.index("## Khoshlessan 2017") :].splitlines()
    cells = [row.split("|")[3] for row in rows if row.startswith("|") and "ARGS" not in row]
    named = {name for cell in cells for name in re.findall(r"`([a-z_0-9]+)`", cell)}
    named |= {name for some in re.findall(r'ARGS="?([a-z_ 0-9]+)', page) for name in some.split()}
    assert len(named) > 20
    assert named <= known, named - known
    for path in re.findall("`((?:benchmarks|examples)/[^`]+)`", page):
        assert (ROOT / path).exists(), path


def measured() -> dict[str, dict[str, float]]:
    """Return the rows of benchmarks/measured.tsv, µs per frame by tool and case."""
    cases = read_warm(ROOT / "benchmarks" / "measured.tsv")
    return {
        tool: {case: times[tool] for case, times in cases.items() if tool in times}
        for tool in dict.fromkeys(tool for times in cases.values() for tool in times)
    }


def test_times_on_the_first_pages_are_the_measured_ones():
    page = ROOT / "docs/developers/benchmarks.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    tables = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    cells = {row[0].strip("*"): row[1:] for row in tables[:8]}
    cases = [f"{name}.{end}" for name in ("adk", "water") for end in ("xtc", "trr", "dcd", "nc")]
    for tool, times in measured().items():
        for case, cell in zip(cases, cells[tool], strict=True):
            shown = cell.strip("*").replace(",", "")
            decimals = len(shown.partition(".")[2])
            assert shown == (f"{times[case]:.{decimals}f}" if case in times else "–"), (tool, case)
    for page in ("docs/index.md", "packaging/pypi.md", "paper/paper.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for tool, case in itertools.product(("paceline", "MDAnalysis"), ("adk.xtc", "water.xtc")):
            time = measured()[tool][case]
            assert (f"{time:,.0f}" if time > 20 else f"{time:.1f}") in text, (page, tool, case)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for case in ("adk.xtc", "water.xtc"):
        ratio = measured()["MDAnalysis"][case] / measured()["paceline"][case]
        assert f"{ratio:.0f} times" in readme, case


#: Typical queries for the search of the manual.
SEARCHED = (
    "ligand RMSD",
    "equilibration",
    "B-factor",
    "area per lipid",
    "thickness",
    "DCCM",
    "rotamer",
    "movie",
    "periodic boundary",
    "buried area",
    "figure style",
)
#: Reference pages, which a search need not find.
REFERENCE = ("api", "developers", "experiments")


@pytest.mark.parametrize("words", SEARCHED)
def test_search_finds_a_heading_or_the_paragraph_below(words):
    tops = []
    for page in (ROOT / "docs").rglob("*.md"):
        if page.parent.name in REFERENCE:
            continue
        text = BLOCK.sub("", page.read_text(encoding="utf-8"))
        _, *parts = re.split(r"^#+ (.*)$", text, flags=re.MULTILINE)
        for heading, body in zip(parts[::2], parts[1::2], strict=True):
            first = body.strip().partition("\n\n")[0]
            tops.append(f"{heading} {first}".lower())
    assert any(all(word in top for word in words.lower().split()) for top in tops)
