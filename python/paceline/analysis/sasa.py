"""Solvent-accessible surface area (SASA)."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from paceline._util.arguments import length, one_of, whole_number
from paceline._util.option_values_and_selections import SOLUTE
from paceline.analysis.base import AnalysisBase, table_in_time
from paceline.analysis.groups import map_table
from paceline.analysis.guess_elements_and_donors import elements_of
from paceline.analysis.kernels import CoreRows
from paceline.analysis.results import Results
from paceline.analysis.table import Table, along_residues, residue_labels
from paceline.analysis.values_on_structure import StructureValues, spread_over_atoms
from paceline.contract.analysis_declaration import Declaration, Member, Option
from paceline.contract.analysis_kinds import PerFrame
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms, System, has_attribute
from paceline.errors import SelectionError, warn
from paceline.performance.number_format import joined
from paceline.transform.selections_and_weights import check_not_empty, check_static

#: Van der Waals radii of elements, Å.
RADII: dict[str, dict[str, float]] = {
    # Bondi 1964, J. Phys. Chem. 68, 441.
    "bondi": {
        **{"H": 1.20, "HE": 1.40, "LI": 1.82, "C": 1.70, "N": 1.55, "O": 1.52, "F": 1.47},
        **{"NE": 1.54, "NA": 2.27, "MG": 1.73, "SI": 2.10, "P": 1.80, "S": 1.80, "CL": 1.75},
        **{"AR": 1.88, "K": 2.75, "NI": 1.63, "CU": 1.40, "ZN": 1.39, "GA": 1.87, "AS": 1.85},
        **{"SE": 1.90, "BR": 1.85, "KR": 2.02, "PD": 1.63, "AG": 1.72, "CD": 1.58, "IN": 1.93},
        **{"SN": 2.17, "TE": 2.06, "I": 1.98, "XE": 2.16, "PT": 1.72, "AU": 1.66, "HG": 1.55},
        **{"TL": 1.96, "PB": 2.02, "U": 1.86},
    },
    # Rowland & Taylor 1996, J. Phys. Chem. 100, 7384.
    "rowland": {
        **{"H": 1.10, "C": 1.77, "N": 1.64, "O": 1.58, "F": 1.46, "S": 1.81, "CL": 1.76},
        **{"BR": 1.87, "I": 2.03},
    },
}
#: If all radii are smaller, they may be in nm instead of Å.
SMALLEST = 0.5
#: Maximum distance of bonded atoms, Å; in biomolecules, the bonds of sulfur are the longest.
FARTHEST_BONDED = 2.3
#: Maximum number of residues that are checked for coarse-grained beads.
LOOKED_AT = 100
#: Maximum number of atoms that an error message names.
SOME = 5
COMPOUNDS = ("group", "residues", "atoms")


class SASA(AnalysisBase):
    r"""Solvent-accessible surface area, by points on spheres (Shrake & Rupley 1973).

    $$A_i = 4\pi (r_i + r_\mathrm{probe})^2 \frac{n_i}{n}$$

    where $n_i$ of the $n$ points on the sphere of atom $i$ are outside the spheres of all other
    atoms (J. Mol. Biol. 79, 351). The points are on a golden spiral, the same for all atoms and
    frames, as in MDTraj. Periodic images in the cell of each frame are included, if the frame has a
    cell.

    Parameters
    ----------
    atomgroup : AtomGroup or Universe
        Atoms for which the area is reported.
    probe_radius : float
        Radius of the solvent, Å.
    n_points : int
        Number of points on each sphere, 1 to 65,536.
    radii : None, str, mapping or array of float, shape (n_surface_atoms,)
        Radii of the atoms of `surface`, Å: an array, or a mapping of elements, such as {"C": 1.7}.
        "bondi" (None) and "rowland" are predefined mappings. Elements are taken from the topology,
        or else found by masses. A warning reports residues that seem to be coarse-grained, because
        radii of elements are too small for beads.
    surface : AtomGroup or Universe, optional
        Atoms that form the surface and bury each other; by default only those of `atomgroup`. They
        must include `atomgroup`. For example, `SASA(ligand, surface=protein | ligand)` computes the
        area of a ligand that a protein leaves exposed.
    compound : {"group", "residues", "atoms"}
        Report the total area, or the area of each residue or of each atom.

    Attributes
    ----------
    results.sasa : numpy.ndarray of float64
        Areas, Å²; shape (n_frames,) for the group, otherwise (n_frames, n_residues) or (n_frames,
        n_atoms), in the order of `atomgroup` and its residues. NaN in a damaged frame that was left
        out, and in a frame with a NaN position in the surface.
    results.total : numpy.ndarray of float64, shape (n_frames,)
        Sum of the reported areas, Å².

    Raises
    ------
    SelectionError
        A group is empty, an atom is not in `surface`, or the radius of an atom is unknown.
    UnsupportedError
        A group is an UpdatingAtomGroup.
    ValueError
        A parameter is out of range.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> SASA(u, n_points=100).run(stop=2).results.sasa.round()
    array([10377., 10213.])
    >>> lysines = u.select_atoms("resname LYS")
    >>> exposed = SASA(lysines, surface=u, compound="residues").run(stop=2)
    >>> exposed.results.sasa.shape
    (2, 18)
    """

    declaration = Declaration(
        name="sasa",
        summary="solvent-accessible surface area",
        description=(
            "Solvent-accessible surface area (Å²) of each frame, by points on spheres (Shrake & "
            "Rupley). By default all other atoms are ignored. With --surface, the contribution of "
            "the selected atoms to a larger surface is computed."
        ),
        section="structure.md#solvent-accessible-surface",
        select=SOLUTE,
        examples=(
            "adk.psf adk.dcd -o sasa.csv --plot sasa.png",
            "md.tpr md.xtc --select protein --unwrap --compound residues -o sasa.npz",
            "md.tpr md.xtc --select protein --unwrap --compound residues -o sasa.cxc",
            'md.tpr md.xtc --select "resname LIG" --surface "protein or resname LIG" -o free.csv',
        ),
        options=(
            "n_points",
            "probe_radius",
            "compound",
            Option(
                "surface",
                "atoms that form the surface and bury each other; must include the atoms of "
                "--select [only the atoms of --select]",
                metavar="TEXT",
            ),
        ),
        further={
            "residues": "write the area of each residue in each frame, with --compound residues; "
            "as a figure, a map of residues and time"
        },
        on_structure="mean SASA of each residue or atom over frames",
        batteries=(
            Member(
                "protein", {"select": "protein", "n_points": 100, "compound": "residues"}, place=4
            ),
        ),
    )

    needs_one_location = True

    def __init__(
        self,
        atomgroup: Atoms | System,
        *,
        probe_radius: float = 1.4,
        n_points: int = 960,
        radii: str | Mapping[str, float] | Sequence[float] | np.ndarray | None = None,
        surface: Atoms | None = None,
        compound: Literal["group", "residues", "atoms"] = "group",
        verbose: bool = False,
    ):
        if surface is not None:
            check_static(surface, "surface")
        super().__init__(atomgroup, verbose=verbose)
        self.surface = self.atomgroup.unique if surface is None else surface.atoms.unique
        check_not_empty(self.atomgroup, "SASA: the group")
        outside = np.setdiff1d(self.atomgroup.indices, self.surface.indices)
        if len(outside) or self.surface.universe is not self.atomgroup.universe:
            raise SelectionError(
                f"SASA: {len(outside) or 'all'} atoms of the group are not in surface: it must "
                "belong to the same Universe, and include them"
            )
        one_of("compound", compound, *COMPOUNDS)
        self.n_points = whole_number("n_points", n_points, 1, 2**16)
        if not 0 <= probe_radius < 1000:
            raise ValueError(f"probe_radius must be at least 0 Å, not {probe_radius!r}")
        if probe_radius:
            length("probe_radius", probe_radius, 0.5)
        self.probe_radius = float(probe_radius)
        self.compound, self.radii = compound, radii
        self.atom_radii = _radii_of(self.surface, radii, atomgroup if surface is None else surface)
        if radii is None or isinstance(radii, str | Mapping):
            label = _coarse_grained(self.surface)
            beads = (
                f"SASA: residues such as {label} seem to be coarse-grained, because none of their "
                f"atoms are within {FARTHEST_BONDED:g} Å of each other, but they have the radii of "
                "elements: the area is too small; set radii= of the beads"
            )
            self.remark("beads", None if label is None else beads)

    @property
    def indices(self) -> np.ndarray:
        """Indices of the atoms that form the surface."""
        return self.surface.indices

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        named = self.radii is None or isinstance(self.radii, str)
        return {
            "atoms": describe_atoms(self.atomgroup),
            "surface": describe_atoms(self.surface),
            "compound": self.compound,
            "probe_radius": self.probe_radius,
            "n_points": self.n_points,
            "radii": (self.radii or "bondi") if named else "given",
        }

    def prepare(self) -> PerFrame:
        """Number the atoms or residues whose areas are reported, and make the worker part."""
        atoms = self.atomgroup if self.compound == "atoms" else self.atomgroup.unique
        if self.compound == "atoms":
            parts = np.arange(len(atoms))
        elif self.compound == "residues":
            _, parts = np.unique(atoms.resindices, return_inverse=True)
        else:
            parts = np.zeros(len(atoms), dtype=np.int64)
        places = np.searchsorted(self.surface.indices, atoms.indices)
        output = np.column_stack([places, parts]).astype(np.uint32)
        n_parts = int(parts.max()) + 1
        return CoreRows("sasa", self.atom_radii, self.probe_radius, self.n_points, output, n_parts)

    def finish(self, value: np.ndarray) -> None:
        """Store the areas and their sum as results."""
        is_group = self.compound == "group"
        total = value[:, 0] if is_group else value.sum(axis=1)
        profile, label = None, "SASA (Å²)"
        if self.compound == "residues":
            read = value[~self.left_out]
            means = read.mean(axis=0) if len(read) else np.full(value.shape[1], np.nan)
            title = "SASA of residue (Å²)"
            profile = along_residues(self.atomgroup.residues, {title: means}, title)
        table = table_in_time(self, {label: total}, {label: "SASA"}, label, profile=profile)
        sasa = total.copy() if is_group else value
        self.results = Results(table=table, provenance=self.record(), sasa=sasa, total=total)
        if not is_group:
            self.results.with_values(self._on_structure(value))

    #: True if `further_tables` returns a map of the areas of residues in each frame; this needs
    #: compound "residues".
    maps_residues = False

    def further_tables(self) -> dict[str, Table]:
        """Return a map of the areas of residues against time, if `maps_residues` is True."""
        if not self.maps_residues:
            return {}
        residues = self.atomgroup.unique.residues
        return {"residues": map_table(self, residues, self.results.sasa, "SASA (Å²)")}

    def _on_structure(self, value: np.ndarray) -> StructureValues | None:
        """Attach means over frames to the atoms; each atom of a residue gets the residue's mean."""
        read = value[~self.left_out]
        means = read.mean(axis=0) if len(read) else np.full(value.shape[1], np.nan)
        if self.compound == "atoms":
            return self.on_first_frame("SASA of atom (Å²)", self.atomgroup, means)
        atoms = self.atomgroup.unique
        return self.on_first_frame("SASA of residue (Å²)", atoms, spread_over_atoms(atoms, means))


def _coarse_grained(atoms: Atoms) -> str | None:
    """Return the label of the first residue that seems to be coarse-grained.

    None if this is at most half of the checked residues. A residue counts as coarse-grained in two
    cases: no two of its atoms are as close as bonded atoms in the current frame, or it belongs to a
    protein and has only one atom.
    """
    from MDAnalysis.lib.distances import self_distance_array

    residues = atoms.residues[:LOOKED_AT]
    sizes = np.array([len(one.atoms) for one in residues])
    try:
        alone = np.isin(residues.resindices, atoms.select_atoms("protein").resindices)
    except AttributeError:  # topology without residue names
        alone = np.zeros(len(residues), bool)
    coarse = [
        is_protein if n == 1 else self_distance_array(one.atoms.positions).min() > FARTHEST_BONDED
        for one, n, is_protein in zip(residues, sizes, alone, strict=True)
    ]
    # Ignore residues of one atom, such as ions, unless they belong to a protein.
    n_telling = np.count_nonzero((sizes > 1) | alone)
    if 2 * sum(coarse) <= n_telling or not n_telling:
        return None
    first = residues[int(np.argmax(coarse))]
    return residue_labels(atoms.universe.residues, np.array([first.resindex]))[first.resindex]


def _radii_of(
    atoms: Atoms,
    radii: str | Mapping[str, float] | Sequence[float] | np.ndarray | None,
    given: Atoms | System,
) -> np.ndarray:
    """Return the radius of each of `atoms`, Å.

    If `radii` is an array, it has one radius per atom of `given`, in the order of that group.
    """
    if radii is None or isinstance(radii, str):
        name = "bondi" if radii is None else radii
        if name not in RADII:
            raise ValueError(
                f"radii must be one of {', '.join(RADII)}, a mapping of elements or an array, not "
                f"{radii!r}"
            )
        radii = RADII[name]
    if isinstance(radii, Mapping):
        known = {f"{element}".upper(): float(radius) for element, radius in radii.items()}
        elements = elements_of(atoms)
        unknown = sorted({one for one in elements if one not in known})
        if unknown:
            if (label := _coarse_grained(atoms)) is not None:
                raise SelectionError(
                    f"SASA: residues such as {label} seem to be coarse-grained, and radii of beads "
                    "are unknown: pass an array of radii, Å, in a script"
                )
            names = [one.capitalize() or "atoms without an element" for one in unknown]
            some = atoms[np.isin(elements, unknown)]
            known_by = some.names if has_attribute(some, "names") else some.indices
            few = ", ".join(dict.fromkeys(map(str, known_by[:SOME])))
            raise SelectionError(
                f"SASA: radii of {joined(names)} are unknown ({few}): set radii as "
                'an array with one per atom or a mapping such as {"C": 1.7}, add elements to the '
                "topology, or exclude these atoms"
            )
        values = np.array([known[one] for one in elements])
    else:
        values = np.asarray(radii, dtype=np.float64)
        indices = given.atoms.indices
        if values.shape != indices.shape:
            raise ValueError(
                f"radii must be one number for each of {len(indices)} atoms of the surface, not of "
                f"shape {values.shape}"
            )
        _, first = np.unique(indices, return_index=True)
        values = values[first]
    if not (np.isfinite(values).all() and (values > 0).all() and (values < 1000).all()):
        raise ValueError("radii must be finite and above 0 Å")
    if (largest := values.max()) < SMALLEST:
        warn(
            f"radii are in Å, and the largest is {largest:g}: did you mean {10 * largest:g} "
            f"({largest:g} nm)?"
        )
    return values
