"""Surface area that is buried in the interface of two groups of atoms."""

from typing import Any

import numpy as np

from paceline import _core
from paceline.analysis.base import AnalysisBase, table_in_time
from paceline.analysis.kernels import CorePart, columns_of
from paceline.analysis.results import Results
from paceline.analysis.sasa import SASA
from paceline.analysis.table import along_residues
from paceline.block import Block, check_refused
from paceline.contract.analysis_declaration import Declaration, Member
from paceline.contract.analysis_kinds import PerFrame
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms
from paceline.errors import SelectionError
from paceline.transform.selections_and_weights import check_not_empty, check_static


class BuriedArea(AnalysisBase):
    r"""Solvent-accessible surface area buried in the interface of two groups of atoms.

    $$A_\mathrm{buried} = A_1 + A_2 - A_{12}$$

    where $A_1$ and $A_2$ are the areas of each group without any other atoms, and $A_{12}$ is the
    area of both groups together (Chothia & Janin 1975, Nature 256, 705). All areas are computed as
    by `SASA`. The buried area includes the surfaces of both groups; the area of the interface is
    half of it.

    Parameters
    ----------
    ag1 : AtomGroup
        First group, such as a ligand or a chain.
    ag2 : AtomGroup
        Second group, from the same Universe and without atoms of the first group.
    probe_radius : float
        Radius of a solvent molecule, Å.
    n_points : int
        Number of points on the sphere around each atom, 1 to 65,536.
    radii : None, str or mapping
        Radii of the elements, as for `SASA`.

    Attributes
    ----------
    results.buried : numpy.ndarray of float64, shape (n_frames,)
        Buried area of both groups, Å². NaN in a damaged frame that was left out.
    results.areas : numpy.ndarray of float64, shape (n_frames, 3)
        Areas of the first group, of the second group, and of both together, Å².
    results.buried_of_residues : numpy.ndarray of float64, shape (n_frames, n_residues)
        Area of each residue that the other group buries, Å², for residues of the first group,
        then for those of the second group.
    results.resindices : numpy.ndarray of int64, shape (n_residues,)
        Indices of these residues.

    Raises
    ------
    SelectionError
        A group is empty, the groups share atoms, or the radius of an atom is unknown.
    UnsupportedError
        A group is an UpdatingAtomGroup.
    ValueError
        A parameter is out of range.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> from paceline.analysis.buried_area import BuriedArea
    >>> u = paceline.Universe(PSF, DCD)
    >>> lid, rest = u.select_atoms("resid 122-159"), u.select_atoms("not resid 122-159")
    >>> BuriedArea(lid, rest, n_points=100).run(stop=2).results.buried.round()
    array([1582., 1620.])
    """

    declaration = Declaration(
        name="buried-area",
        summary="surface area buried between two groups of atoms",
        description=(
            "Areas (Å²) of the atoms of --select, of the atoms of --select-2, and of both "
            "together, and the buried area: the sum of the first two areas minus the third."
        ),
        section="structure.md#buried-area",
        examples=(
            'md.tpr md.xtc --select "resname LIG" --select-2 protein -o buried.csv',
            'md.tpr md.xtc --select "segid A" --select-2 "segid B" --plot interface.png',
        ),
        options=(
            "n_points",
            "probe_radius",
        ),
        groups=("atoms of the second group",),
        batteries=(
            Member(
                "ligand",
                {"ag1": "{ligand}", "ag2": "protein", "n_points": 100},
                name="ligand-buried",
                place=4,
            ),
        ),
    )

    needs_one_location = True

    def __init__(
        self,
        ag1: Atoms,
        ag2: Atoms,
        *,
        probe_radius: float = 1.4,
        n_points: int = 960,
        radii: Any = None,
        verbose: bool = False,
    ):
        for name, group in (("ag1", ag1), ("ag2", ag2)):
            check_static(group, name)
            check_not_empty(group.atoms, f"BuriedArea: {name}")
        shared = np.intersect1d(ag1.atoms.indices, ag2.atoms.indices)
        if len(shared) or ag1.universe is not ag2.universe:
            found = (
                f"they share {len(shared)} atoms" if len(shared) else "they belong to two Universes"
            )
            raise SelectionError(
                f"BuriedArea: the groups must belong to one Universe and share no atoms; {found}"
            )
        super().__init__(ag1, verbose=verbose)
        self._groups = ag1.atoms.unique, ag2.atoms.unique
        given = {"probe_radius": probe_radius, "n_points": n_points, "radii": radii}
        both = ag1.universe.atoms[np.union1d(*(group.indices for group in self._groups))]
        self._surfaces = [
            SASA(group, compound="residues", **given) for group in (*self._groups, both)
        ]

    @property
    def indices(self) -> np.ndarray:
        """Indices of the atoms of both groups."""
        return self._surfaces[2].indices

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        of_both = self._surfaces[2].parameters()
        first, second = map(describe_atoms, self._groups)
        kept = {name: of_both[name] for name in ("probe_radius", "n_points", "radii")}
        return {"atoms": first, "atoms 2": second, **kept}

    def prepare(self) -> PerFrame:
        """Number the residues of the three surfaces, and make the worker part."""
        indices = self.indices
        first, second = (group.resindices for group in self._groups)
        parts = [np.unique(one, return_inverse=True)[1].reshape(-1) for one in (first, second)]
        atoms = [np.searchsorted(indices, group.indices) for group in self._groups]
        all_atoms, together = np.concatenate(atoms), [parts[0], parts[1] + parts[0].max() + 1]
        radii = self._surfaces[2].atom_radii
        kernels = []
        for of_surface, reported, numbers in (
            (atoms[0], np.arange(len(atoms[0])), parts[0]),
            (atoms[1], np.arange(len(atoms[1])), parts[1]),
            (np.arange(len(indices)), all_atoms, np.concatenate(together)),
        ):
            output = np.column_stack([reported, numbers]).astype(np.uint32)
            kernels.append((of_surface, radii[of_surface], output, int(numbers.max()) + 1))
        surface = self._surfaces[2]
        return _Surfaces(kernels, surface.probe_radius, surface.n_points)

    def finish(self, value: np.ndarray) -> None:
        """Subtract the area of both groups together from the sum of their separate areas."""
        residues = [group.residues for group in self._groups]
        n_first, n_all = len(residues[0]), len(residues[0]) + len(residues[1])
        alone, both = value[:, :n_all], value[:, n_all:]
        areas = np.column_stack(
            [alone[:, :n_first].sum(axis=1), alone[:, n_first:].sum(axis=1), both.sum(axis=1)]
        )
        buried, of_residues = areas[:, 0] + areas[:, 1] - areas[:, 2], alone - both
        names = "first group", "second group", "both together"
        columns = {"buried area (Å²)": buried}
        columns |= {f"area of {name} (Å²)": one for name, one in zip(names, areas.T, strict=True)}
        read = of_residues[~self.left_out][:, n_first:]
        means = read.mean(axis=0) if len(read) else np.full(n_all - n_first, np.nan)
        title = "buried area of residue (Å²)"
        profile = along_residues(residues[1], {title: means}, title)
        label = "buried area (Å²)"
        table = table_in_time(
            self, columns, {label: "buried"}, label, profile=profile, partial=True
        )
        self.results = Results(
            table=table,
            provenance=self.record(),
            buried=buried,
            areas=areas,
            buried_of_residues=of_residues,
            resindices=np.concatenate([one.resindices for one in residues]),
        )


class _Surfaces(CorePart, PerFrame):
    """Worker part: areas of residues, for each group alone and for both groups together.

    `kernels` has a tuple for each surface. Its items are the columns of the surface's atoms in the
    decoded coordinates; the radii of these atoms, Å; pairs of an atom whose area is reported (its
    index among the surface's atoms) and its residue; and the number of residues.
    """

    splits_frames = True

    def __init__(
        self,
        kernels: list[tuple[np.ndarray, np.ndarray, np.ndarray, int]],
        probe_radius: float,
        n_points: int,
    ):
        self._kernels, self._probe, self._n_points = kernels, probe_radius, n_points

    def compute(self, block: Block) -> np.ndarray:
        """Compute the areas of a block: float64, shape (n_frames, 2 n_residues), Å².

        The first half of the columns is for each group alone, the second for both groups together.
        """
        if self._bound is None:
            columns = columns_of(block)
            self._bound = [
                _core.RowKernel.sasa(
                    np.ascontiguousarray(columns[atoms]),
                    radii,
                    self._probe,
                    self._n_points,
                    output,
                    n_parts,
                )
                for atoms, radii, output, n_parts in self._kernels
            ]
        rows = []
        for kernel in self._bound:
            rows.append(np.empty((len(block), kernel.n_columns)))
            check_refused(block, kernel.compute(block.raw[0], block.cells, rows[-1]))
        return np.concatenate(rows, axis=1)
