"""Hook of MkDocs: run commands of pages on real files, for their figures and answers."""

import gzip
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Frames of each run of the receptor in the trajectory that has all of them.
RUNS = {"run1": (0, 84), "run2": (84, 167), "run3": (167, 250)}
#: Block of commands of a page.
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Folder of the pages that show what their commands print.
TUTORIALS = "tutorials/"
#: Task without a figure that takes longer than all others; another test runs the battery.
_LONG = "paceline battery complex.pdb run1.xtc -o results"
_IMAGE = re.compile(r"!\[.*?\]\((.*?)\)")
#: Progress of a run that takes some seconds, which differs from build to build.
_PROGRESS = re.compile(r"^.* of [\d,]+ frames \(.* left.*\n", re.MULTILINE)
#: Commands of a page in one process, a zero byte after what each of them prints.
_RUN = """
import shlex, sys
from paceline.cli import main
for command in sys.argv[1:]:
    if main(shlex.split(command)[1:]):
        raise SystemExit(f"failed: {command}")
    print(end="\\0")
"""
#: What commands of each page printed, in their order.
_answers: dict[str, list[str]] = {}


def commands(text: str) -> list[list[str]]:
    """Split the commands of a page into words, but for the longest."""
    lines = [line for block in BLOCK.findall(text) for line in block.splitlines()]
    return [shlex.split(line) for line in lines if line != _LONG]


def images(text: str) -> list[str]:
    """List the figures of a page, relative to its folder."""
    return _IMAGE.findall(text)


def has_files() -> bool:
    """Check that the packages with the files are installed."""
    return all(importlib.util.find_spec(name) for name in ("MDAnalysisTests", "prolif"))


def _write_replicas(folder: Path) -> None:
    """Write three runs of a receptor with a ligand, from the trajectory of ProLIF."""
    import paceline

    # ProLIF itself, and RDKit with it, is not imported.
    spec = importlib.util.find_spec("prolif")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the files of this page need: pip install --no-deps prolif")
    of_prolif = Path(spec.origin).parent / "data"
    shutil.copy(of_prolif / "top.pdb", folder / "complex.pdb")
    receptor, part = paceline.open(of_prolif / "traj.xtc"), folder / "part.xtc"
    for name, (start, stop) in RUNS.items():
        paceline.run(paceline.Write(receptor, part, overwrite=True), start=start, stop=stop)
        # Its times are in fs, which XTC files have not.
        paceline.run(paceline.Write(paceline.open(part, dt=6000.0), folder / f"{name}.xtc"))
    part.unlink()


def _write_tasks(folder: Path) -> None:
    """Write a receptor, adenylate kinase alone and in water, a membrane and energies."""
    from MDAnalysisTests import datafiles

    _write_replicas(folder)
    for name, source in {
        "adk.psf": datafiles.PSF,
        "adk.dcd": datafiles.DCD,
        "water.tpr": datafiles.TPR,
        "water.xtc": datafiles.XTC,
        "membrane.xtc": datafiles.XTC_MEMPROT,
        "melt.psf": datafiles.TRZ_psf,
        "melt.trz": datafiles.TRZ,
        "ener.edr": datafiles.AUX_EDR,
    }.items():
        shutil.copy(source, folder / name)
    with gzip.open(datafiles.GRO_MEMPROT) as packed, open(folder / "membrane.gro", "wb") as file:
        shutil.copyfileobj(packed, file)


def _write_gromacs(folder: Path) -> None:
    """Write the files of a GROMACS run: adenylate kinase in water, and energies of lysozyme."""
    from MDAnalysisTests import datafiles

    for name, source in {
        "md.tpr": datafiles.TPR,
        "md.xtc": datafiles.XTC,
        "md.edr": datafiles.AUX_EDR,
    }.items():
        shutil.copy(source, folder / name)


def _write_openmm(folder: Path) -> None:
    """Write a run as OpenMM does: a PDB file without bonds, a DCD file, a table of its state."""
    import numpy as np
    from MDAnalysisTests import datafiles

    import paceline

    u = paceline.Universe(datafiles.TPR, datafiles.TRR)
    water = u.select_atoms("resname SOL")
    water.residues.resnames = "HOH"
    water.names = np.tile(["O", "H1", "H2", "M"], water.n_residues)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a TPR file lacks fields of a PDB file
        u.atoms.write(str(folder / "system.pdb"), bonds=None)
    paceline.run(paceline.Write(u.atoms, folder / "output.dcd"))
    rows = ['#"Step","Time (ps)","Kinetic Energy (kJ/mole)","Box Volume (nm^3)","Density (g/mL)"']
    masses = u.atoms.masses
    for ts in u.trajectory:
        kinetic = 0.5 * (masses * (ts.velocities.astype(float) ** 2).sum(axis=1)).sum() / 100
        density = masses.sum() / ts.volume / 0.602214076
        step = round(ts.time / 0.002)
        rows.append(f"{step},{ts.time},{kinetic},{ts.volume / 1000},{density}")
    (folder / "log.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


#: Pages whose commands run, and what writes their files.
PAGES: dict[str, Callable[[Path], None]] = {
    "how-do-i.md": _write_tasks,
    "tutorials/gromacs.md": _write_gromacs,
    "tutorials/openmm.md": _write_openmm,
    "tutorials/replicas.md": _write_replicas,
}


def with_answers(text: str, answers: list[str]) -> str:
    """Put below each block of commands what they printed."""
    left = iter(answers)

    def add(block: re.Match[str]) -> str:
        printed = "".join(next(left) for _ in block[1].splitlines())
        return f"{block[0]}\n\n```text\n{printed}```" if printed else block[0]

    return BLOCK.sub(add, text)


def on_files(files: Any, config: Any) -> Any:
    """Run the commands of the pages, and add their figures to the site."""
    from mkdocs.structure.files import File

    for page, write_files in PAGES.items():
        text = (Path(config["docs_dir"]) / page).read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve()
            write_files(folder)
            ran = subprocess.run(
                [sys.executable, "-uc", _RUN, *map(shlex.join, commands(text))],
                cwd=folder,
                check=True,
                env=os.environ | {"COLUMNS": "100"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            printed = _PROGRESS.sub("", ran.stdout.replace(f"{folder}/", ""))
            _answers[page] = printed.split("\0")
            for image in images(text):
                content = (folder / image.partition("/")[2]).read_bytes()
                made = str(Path(page).parent / image)
                files.append(File.generated(config, made, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Show the printed answers on the pages of tutorials."""
    name = page.file.src_uri
    return with_answers(markdown, _answers[name]) if name.startswith(TUTORIALS) else markdown
