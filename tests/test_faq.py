"""Tests that commands print the messages that the page "FAQ and troubleshooting" quotes."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import MDAnalysis
import pytest
from MDAnalysisTests import datafiles

ROOT = Path(__file__).parents[1]
QUOTED = [
    line
    for block in re.findall(
        r"^```text\n(.*?)^```$", (ROOT / "docs/faq.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    for line in block.splitlines()
]
#: Messages that cannot be provoked in a test, and the source file that contains them.
IN_SOURCE = {
    "paceline: interrupted": "python/paceline/cli/command_line.py",
    "the file changed since it was opened": "crates",
}
#: Commands run in one process, as by a shell.
RUN = """
import contextlib, shlex, sys
from paceline.cli.command_line import main
for command in sys.argv[1:]:
    with contextlib.suppress(SystemExit):
        main(shlex.split(command))
"""
#: Commands that print the messages.
PROVOKING = [
    "rmsd md.tpr md.xtc --select backbone -o broken.csv",
    "rmsd nobonds.pdb adk.dcd --unwrap --select all -o a.csv",
    "hbonds md.tpr md.xtc --select protein -o a.npz",
    "rmsd md.tpr adk.dcd -o b.csv",
    "rmsd adk.psf md.xtc -o c.csv",
    "rmsd adk.psf adk.dcd --select 'resname XYZ' -o d.csv",
    "rmsd adk.psf adk.dcd --select protien -o e.csv",
    "rmsd adk.psf zero.dcd -o f.csv",
    "msd adk.psf same.xtc --select 'name CA' -o g.csv",
    "gyration beads.pdb --select all -o h.csv",
    "dielectric nobonds.pdb adk.dcd -o i.csv",
    "velocity-autocorrelation md.tpr md.xtc -o j.csv",
    "rmsd md.tpr cut.xtc --unwrap -o k.csv",
    "rmsd md.tpr bad.xtc --unwrap -o l.csv",
    "rmsd md.tpr md.xtc md.xtc --unwrap -o m.csv",
    "rmsd md.tpr md.xtc --unwrap --select backbone -o rmsd.csv",
    "rmsd md.tpr md.xtc --unwrap --select backbone -o rmsd.csv",
    "rmsd adk.psf adk.dcd --plot rmsd.foo",
    "rmsd adk.psf adk.dcd -o rmsd.foo",
]


def write_files(folder: Path) -> None:
    """Write files with the faults described on the page."""
    for name, source in {
        "md.tpr": datafiles.TPR,
        "md.xtc": datafiles.XTC,
        "adk.psf": datafiles.PSF,
        "adk.dcd": datafiles.DCD,
    }.items():
        shutil.copy(source, folder / name)
    whole = (folder / "md.xtc").read_bytes()
    (folder / "cut.xtc").write_bytes(whole[:1_000_000])
    (folder / "bad.xtc").write_bytes(whole[:170_000] + bytes(200) + whole[170_200:])
    u = MDAnalysis.Universe(datafiles.PSF, datafiles.DCD)
    with (
        MDAnalysis.Writer(str(folder / "zero.dcd"), len(u.atoms), dt=0) as zero,
        MDAnalysis.Writer(str(folder / "same.xtc"), len(u.atoms)) as same,
    ):
        for ts in u.trajectory[:10]:
            ts.time = 0.0
            ts.dimensions = [90, 90, 90, 90, 90, 90]
            zero.write(u.atoms)
            same.write(u.atoms)
    u.trajectory[0]
    u.select_atoms("resid 10").residues.resnames = "LIG"
    u.atoms.write(str(folder / "nobonds.pdb"), bonds=None)
    beads = u.atoms[:60]
    beads.names = ["QX"] * 20 + ["C"] * 40
    beads.write(str(folder / "beads.pdb"), bonds=None)


@pytest.mark.filterwarnings("ignore")
def test_quoted_messages_are_printed(tmp_path):
    write_files(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *PROVOKING], cwd=tmp_path, capture_output=True, text=True
    )
    printed = ran.stderr.replace(f"{tmp_path}/", "")
    lines = printed.splitlines()
    missing = [line for line in QUOTED if line not in lines and line not in IN_SOURCE]
    assert not missing, printed


def test_other_messages_are_in_the_code():
    for message, name in IN_SOURCE.items():
        assert message in QUOTED
        path = ROOT / name
        sources = [path] if path.is_file() else path.rglob("*.rs")
        assert any(message in source.read_text(encoding="utf-8") for source in sources), message
