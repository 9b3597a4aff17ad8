"""Values of atoms or residues on a structure: B-factors, scripts for colours, and views."""

import os
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from paceline._core import __version__
from paceline._util.files import new_file, new_files, saved_together, writing_to
from paceline.analysis.structure_writer import (
    StructureFrame,
    check_positions,
    check_structure,
    format_of,
    structure_file,
)
from paceline.contract.system_interface import Atoms
from paceline.contract.transform_interface import Transform
from paceline.errors import UnsupportedError, warn
from paceline.performance.number_format import many
from paceline.transform.apply_transforms import first_positions

#: Minimum B-factor in a PDB file: its column has six characters and two decimals.
LEAST = -99.99
#: Maximum B-factor in a PDB file.
LARGEST = 999.99
#: Maximum length of the text of a REMARK record, characters.
REMARK = 66


class StructureValues:
    """Values of atoms, with the structure on which they are shown.

    Parameters
    ----------
    title : str
        Title of the values with unit, such as "RMSF (Å)".
    atoms : AtomGroup
        Atoms with values.
    values : array of float, shape (n_atoms,)
        One value per atom; NaN for an atom without a value.
    positions : callable
        Function that returns the positions of the atoms, Å, shape (n_atoms, 3).
    """

    def __init__(
        self, title: str, atoms: Atoms, values: np.ndarray, positions: Callable[[], np.ndarray]
    ):
        self.title, self.atoms = title, atoms
        self.values = np.asarray(values, dtype=np.float64)
        self._positions = positions

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle a copy of the atoms, because their Universe has open files."""
        from MDAnalysis import Merge

        atoms = Merge(self.atoms).load_new(self.positions[np.newaxis]).atoms
        return _restore, (self.title, atoms, self.values, self.positions)

    @property
    def positions(self) -> np.ndarray:
        """Positions, float32, shape (n_atoms, 3), Å."""
        return np.asarray(self._positions(), dtype=np.float32)

    @property
    def scale(self) -> float:
        """Power of ten by which values are multiplied, so that they fit into B-factor columns."""
        known = self.values[np.isfinite(self.values)]
        if len(known) == 0 or not known.any():
            return 1.0
        if 0 < np.abs(known).max() < 1 and known.min() >= 0:
            return 100.0
        power = 0
        while known.max() / 10**power > LARGEST or known.min() / 10**power < LEAST:
            power += 1
        return 10.0**-power

    @property
    def b_factors(self) -> np.ndarray:
        """Values times the scale, float64, shape (n_atoms,); 0 for atoms without a value."""
        return np.nan_to_num(self.values * self.scale)

    def limits(self) -> tuple[float, float]:
        """Smallest and largest B-factor of atoms with a value; they always differ."""
        known = self.b_factors[np.isfinite(self.values)]
        low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
        return float(low), float(high if high > low else low + 1)

    def remarks(self, facts: Mapping[str, object]) -> list[str]:
        """Return lines about the values: quantity, unit, scale, and origin."""
        scale, missing = self.scale, int(np.count_nonzero(~np.isfinite(self.values)))
        factor = "" if scale == 1 else f" times {scale:g}"
        lines = [f"B-FACTORS: {self.title}{factor}"]
        if missing:
            lines.append(f"{many(missing, 'atom')} WITHOUT A VALUE: 0.00")
        known = ("analysis", "topology", "trajectory", "frames analysed", "transforms", "command")
        lines += [f"{key}: {facts[key]}" for key in known if key in facts]
        lines.append(f"paceline {__version__}")
        return [part for line in lines for part in _wrap_line(" ".join(line.split()))]

    def check(self, path: str | os.PathLike) -> None:
        """Raise an error if the atoms cannot be written; warn of scaled-down or missing values."""
        check_structure(path, self.atoms)
        if self.scale < 1:
            warn(
                f"{os.fspath(path)}: B-factors range from {LEAST:g} to {LARGEST:g}: values "
                f"of {self.title} are multiplied by {self.scale:g}, as a REMARK states"
            )
        if missing := int(np.count_nonzero(~np.isfinite(self.values))):
            warn(
                f"{os.fspath(path)}: {many(missing, 'atom')} without a value of {self.title}: "
                "their B-factors are 0"
            )

    def save(
        self, path: str | os.PathLike, facts: Mapping[str, object], *, overwrite: bool = False
    ) -> None:
        """Write a PDB file; for .pml, .cxc and .tcl, write a script and its PDB file."""
        script, pdb = Path(path), Path(path).with_suffix(".pdb")
        self.check(pdb)
        with saved_together():
            with new_files([pdb], overwrite=overwrite) as [made], writing_to(pdb):
                self._write(made, facts, pdb)
            if script.suffix.lower() in SCRIPTS:
                with new_file(script, overwrite=overwrite) as file:
                    file.write(self.script(script.suffix.lower(), pdb.name))

    def _write(
        self, target: str | os.PathLike, facts: Mapping[str, object], named: str | os.PathLike
    ) -> None:
        """Write a PDB file to `target`; errors contain its final name, `named`."""
        kind, positions = format_of("a.pdb"), self.positions
        check_positions(os.fspath(named), kind, positions, 0)
        with structure_file(
            target,
            self.atoms,
            kind=kind,
            title=f"{self.title} as B-factors",
            b_factors=self.b_factors,
            remarks=self.remarks(facts),
        ) as write:
            write(StructureFrame(positions, None))

    def pdb(self, facts: Mapping[str, object]) -> str:
        """Return the PDB file as a text."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "values.pdb"
            self._write(path, facts, path)
            return path.read_text(encoding="utf-8")

    @property
    def is_trace(self) -> bool:
        """True for one atom per residue, such as CA, because cartoons then need an option."""
        return len(self.atoms) == len(self.atoms.residues)

    @property
    def is_polymer(self) -> bool:
        """True if all atoms belong to proteins or nucleic acids, so that cartoons show them all."""
        try:
            return len(self.atoms.select_atoms("protein or nucleic")) == len(self.atoms)
        except AttributeError:  # topology without residue names
            return False

    def script(self, ending: str, pdb: str) -> str:
        """Return a script that shows a PDB file in the same folder, coloured by B-factor."""
        low, high = self.limits()
        name = re.sub(r"\W", "_", Path(pdb).stem)
        lines = SCRIPTS[ending](name, pdb, low, high, self.is_trace)
        factor = "" if self.scale == 1 else f" times {self.scale:g}"
        about = f"# {self.title}{factor}, from {low:.6g} (blue) to {high:.6g} (red)"
        return "\n".join([about, *lines]) + "\n"

    def view(self, facts: Mapping[str, object]) -> Any:
        """Show the structure in a notebook, coloured by value, with py3Dmol or nglview."""
        low, high = self.limits()
        if find_spec("py3Dmol") is not None:
            import py3Dmol

            shown = py3Dmol.view()
            shown.addModel(self.pdb(facts), "pdb")
            # The gradient runs from red over white to blue, so exchange its limits.
            colours = {"prop": "b", "gradient": "rwb", "min": high, "max": low}
            trace = {"style": "trace"} if self.is_trace else {}
            style = {"cartoon": {"colorscheme": colours, **trace}}
            if not self.is_polymer:
                style["stick"] = {"colorscheme": colours}
            shown.setStyle({}, style)
            shown.zoomTo()
            return shown
        if find_spec("nglview") is not None:
            import nglview

            shown = nglview.show_text(self.pdb(facts), ext="pdb")
            shown.clear_representations()
            how = {"color_scheme": "bfactor", "color_scale": "bwr", "color_domain": [low, high]}
            shown.add_representation("trace" if self.is_trace else "cartoon", **how)
            if not self.is_polymer:
                shown.add_representation("licorice", selection="not polymer", **how)
            return shown
        raise UnsupportedError(
            "showing structures in a notebook needs py3Dmol or nglview: install one, for example "
            "with 'pip install py3Dmol'"
        )


def _restore(
    title: str, atoms: Atoms, values: np.ndarray, positions: np.ndarray
) -> StructureValues:
    return StructureValues(title, atoms, values, lambda: positions)


def values_on_first_frame(
    title: str,
    atoms: Atoms,
    values: np.ndarray,
    frames: np.ndarray,
    transforms: Sequence[Transform],
    skip_damaged: bool,
) -> StructureValues:
    """Attach values of atoms to their positions in the first analysed frame, read when needed."""
    return StructureValues(
        title, atoms, values, lambda: first_positions(atoms, frames, transforms, skip_damaged)
    )


def spread_over_atoms(atoms: Atoms, values: np.ndarray) -> np.ndarray:
    """Values of atoms from values of their residues, which are in the order of the topology."""
    return np.asarray(values)[np.unique(atoms.resindices, return_inverse=True)[1]]


def _wrap_line(line: str) -> list[str]:
    """Break a line at the maximum length of remarks."""
    return textwrap.wrap(line, REMARK, break_on_hyphens=False)


def _pymol(name: str, pdb: str, low: float, high: float, is_trace: bool) -> list[str]:
    # File names are written without quotes, because PyMOL's commands do not accept quotes. A comma
    # ends an argument of a command.
    trace = [f"set cartoon_trace_atoms, 1, {name}"] if is_trace else []
    return [
        f"load {pdb}, {name}",
        *trace,
        f"hide everything, {name}",
        f"show cartoon, {name}",
        *([] if is_trace else [f"show sticks, {name} and not polymer"]),
        f"spectrum b, blue_white_red, {name}, minimum={low:.6g}, maximum={high:.6g}",
    ]


def _chimerax(name: str, pdb: str, low: float, high: float, is_trace: bool) -> list[str]:
    middle = (low + high) / 2
    return [
        f'open "{pdb}" name "{name}"',
        f"color byattribute bfactor palette blue:white:red range {low:.6g},{high:.6g}",
        f"key blue:{low:.4g} white:{middle:.4g} red:{high:.4g}",
    ]


def _vmd(name: str, pdb: str, low: float, high: float, is_trace: bool) -> list[str]:
    shown = (
        {"Trace 0.6 12": "all"} if is_trace else {"NewCartoon": "all", "Licorice": "not protein"}
    )
    lines = [
        f"set molecule [mol new [file join [file dirname [info script]] {{{pdb}}}] waitfor all]",
        "mol delrep 0 $molecule",
        "color scale method BWR",
    ]
    for k, (style, atoms) in enumerate(shown.items()):
        lines += [
            f"mol representation {style}",
            f"mol selection {{{atoms}}}",
            "mol color Beta",
            "mol addrep $molecule",
            f"mol scaleminmax $molecule {k} {low:.6g} {high:.6g}",
        ]
    return lines


#: Functions that return scripts, by filename extension: PyMOL, ChimeraX and VMD.
SCRIPTS = {".pml": _pymol, ".cxc": _chimerax, ".tcl": _vmd}
