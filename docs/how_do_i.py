"""Hook of MkDocs: make the figures of the page "How do I …?" by its own commands, on real files."""

import gzip
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: The page, and the folder of its figures.
PAGE, FIGURES = "how-do-i.md", "how-do-i/"
#: Frames of each run of the receptor in the trajectory that has all of them.
RUNS = {"run1": (0, 84), "run2": (84, 167), "run3": (167, 250)}
#: Command without a figure on the page, which takes longer than all others; another test runs it.
_LONG = "battery"
_BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_IMAGE = re.compile(r"!\[.*?\]\(how-do-i/(.*?)\)")


def commands(text: str) -> list[list[str]]:
    """Split the page's commands into words, but for the longest."""
    lines = [line for block in _BLOCK.findall(text) for line in block.splitlines()]
    return [words for words in map(shlex.split, lines) if words[1] != _LONG]


def images(text: str) -> list[str]:
    """List the figures of the page by the names of their files."""
    return _IMAGE.findall(text)


def has_files() -> bool:
    """Check that the packages with the files are installed."""
    return all(importlib.util.find_spec(name) for name in ("MDAnalysisTests", "prolif"))


def write_files(folder: Path) -> None:
    """Put the files of the page into a folder: those of MDAnalysisTests and of ProLIF."""
    from MDAnalysisTests import datafiles

    import paceline

    # ProLIF itself, and RDKit with it, is not imported.
    spec = importlib.util.find_spec("prolif")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the page's files need: pip install --no-deps prolif")
    of_prolif = Path(spec.origin).parent / "data"
    for name, source in {
        "complex.pdb": of_prolif / "top.pdb",
        "adk.psf": datafiles.PSF,
        "adk.dcd": datafiles.DCD,
        "water.tpr": datafiles.TPR,
        "water.xtc": datafiles.XTC,
        "membrane.xtc": datafiles.XTC_MEMPROT,
        "ener.edr": datafiles.AUX_EDR,
    }.items():
        shutil.copy(source, folder / name)
    with gzip.open(datafiles.GRO_MEMPROT) as packed, open(folder / "membrane.gro", "wb") as file:
        shutil.copyfileobj(packed, file)
    receptor, part = paceline.open(of_prolif / "traj.xtc"), folder / "part.xtc"
    for name, (start, stop) in RUNS.items():
        paceline.run(paceline.Write(receptor, part, overwrite=True), start=start, stop=stop)
        # Its times are in fs, which XTC files have not.
        paceline.run(paceline.Write(paceline.open(part, dt=6000.0), folder / f"{name}.xtc"))
    part.unlink()


def on_files(files: Any, config: Any) -> Any:
    """Run the page's commands, and add its figures to the site."""
    from mkdocs.structure.files import File

    text = (Path(config["docs_dir"]) / PAGE).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        main = "from paceline.cli import main; raise SystemExit(main())"
        for words in commands(text):
            command = [sys.executable, "-c", main, *words[1:]]
            subprocess.run(command, cwd=folder, check=True, env=os.environ, capture_output=True)
        for image in images(text):
            content = (folder / image).read_bytes()
            files.append(File.generated(config, FIGURES + image, content=content))
    return files
