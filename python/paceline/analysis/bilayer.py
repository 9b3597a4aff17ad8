"""Area per lipid and thickness of a flat bilayer, whose normal is along z."""

import numpy as np

from paceline import _core
from paceline._util.arguments import length
from paceline._util.option_values_and_selections import LIPIDS
from paceline.analysis.base import AnalysisBase, table_in_time
from paceline.analysis.kernels import CorePart, columns_of
from paceline.analysis.results import Results
from paceline.block import Block, check_refused, vectors_of
from paceline.contract.analysis_declaration import Declaration, Member
from paceline.contract.analysis_kinds import PerFrame
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms
from paceline.performance.number_format import many
from paceline.transform.bonds_and_compounds import known_bonds
from paceline.transform.selections_and_weights import check_not_empty

#: Maximum standard deviation of the heights of headgroups in a leaflet, relative to thickness.
FLAT = 0.25
#: Maximum number of atoms in a molecule that counts as a lipid.
LARGEST_LIPID = 500
#: Number of values per frame: the numbers of lipids in the upper and the lower leaflet, the
#: standard deviations of the heights of their headgroups, the area of the cell, and the thickness.
COLUMNS = 6


class Bilayer(AnalysisBase):
    r"""Area per lipid and thickness of a bilayer in each frame.

    $$a = \frac{A_{xy}}{n_\mathrm{lipids}}, \qquad
      d = \langle z \rangle_\mathrm{upper} - \langle z \rangle_\mathrm{lower}$$

    where $A_{xy}$ is the area of the cell in the plane of the membrane, $n_\mathrm{lipids}$ the
    number of headgroups in a leaflet, and $\langle z \rangle$ their mean height. If the headgroups
    are phosphorus atoms, $d$ is the distance $D_\mathrm{HH}$ (Nagle & Tristram-Nagle 2000, Biochim.
    Biophys. Acta 1469, 159). The leaflets are the two largest components of headgroups within the
    cutoff, as in `LeafletSeries`. The upper leaflet is the one whose heads are above its tails, so
    that a bilayer may cross the border of the cell. If lipids have no other atoms, or several
    headgroups, the upper leaflet is the higher one of the nearest periodic images.

    The area of a protein in the membrane is not subtracted; a warning reports this.

    Parameters
    ----------
    atomgroup : AtomGroup
        Headgroup atoms, one per lipid, such as "name P" or "name PO4".
    cutoff : float
        Maximum distance between connected headgroups of a leaflet, Å.

    Attributes
    ----------
    results.area_per_lipid : numpy.ndarray of float64, shape (n_frames, 2)
        Area per lipid of the upper and of the lower leaflet, Å². NaN in frames that were left out.
        Also NaN, with a warning, in frames without two leaflets or with leaflets that are not flat.
    results.thickness : numpy.ndarray of float64, shape (n_frames,)
        Distance between the mean heights of the headgroups, Å; NaN in the same frames.
    results.n_lipids : numpy.ndarray of float64, shape (n_frames, 2)
        Number of headgroups in the upper and in the lower leaflet; NaN in the same frames.

    Raises
    ------
    SelectionError
        The group is empty.
    UnsupportedError
        The group is an UpdatingAtomGroup.
    ValueError
        The cutoff is not a length. In the run, as `AnalysisError`: a frame has no cell, or its
        cell does not have two vectors in the xy plane.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import Martini_membrane_gro
    >>> from paceline.analysis.bilayer import Bilayer
    >>> u = paceline.Universe(Martini_membrane_gro)
    >>> bilayer = Bilayer(u.select_atoms("name PO4")).run()
    >>> bilayer.results.area_per_lipid.round(1), bilayer.results.thickness.round(1)
    (array([[72.2, 72.2]]), array([40.5]))
    """

    declaration = Declaration(
        name="bilayer",
        summary="area per lipid and thickness of a membrane",
        description=(
            "Area per lipid (Å²) of each leaflet and thickness (Å) of a flat membrane with its "
            "normal along z. The area per lipid is the area of the cell divided by the number of "
            "headgroups. The thickness is the distance between the mean heights of the headgroups."
        ),
        section="distributions.md#area-per-lipid-and-thickness",
        needs=("a cell",),
        select=LIPIDS,
        examples=(
            "md.tpr md.xtc -o bilayer.csv --plot area.png",
            'martini.gro martini.xtc --select "name PO4" -o bilayer.csv',
        ),
        options=("cutoff",),
        batteries=(Member("membrane", {"select": LIPIDS}, place=2),),
    )

    def __init__(self, atomgroup: Atoms, *, cutoff: float = 15.0, verbose: bool = False):
        super().__init__(atomgroup, verbose=verbose)
        check_not_empty(self.atomgroup, "Bilayer: the group")
        self.cutoff = length("cutoff", cutoff, 2.0)
        self._heads = self.atomgroup.indices
        self._lipids, self._head_of = _lipids_of(self.atomgroup)

    @property
    def indices(self) -> np.ndarray:
        """Indices of the headgroups, and of the other atoms of their lipids."""
        return np.union1d(self._heads, self._lipids)

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {"atoms": describe_atoms(self.atomgroup), "cutoff": self.cutoff}

    def prepare(self) -> PerFrame:
        """Find the headgroups in the decoded atoms, and make the worker part."""
        heads, lipids = (
            np.searchsorted(self.indices, some) for some in (self._heads, self._lipids)
        )
        return _Heights(heads, lipids, self._head_of, self.cutoff)

    def finish(self, value: np.ndarray) -> None:
        """Compute areas per lipid; set NaN in frames without two flat leaflets."""
        n_lipids, spread, area, thickness = value[:, :2], value[:, 2:4], value[:, 4], value[:, 5]
        has_two = ~np.isnan(thickness)
        flat = has_two & (spread.max(axis=1) <= FLAT * thickness)
        n_read = int((~self.left_out).sum())
        n_other, lack = n_read - int(flat.sum()), None
        if n_other:
            lack = self._reason_without_bilayer(has_two)
            if flat.any():
                lack = (
                    f"Bilayer: {many(n_other, 'frame')} of {n_read} do not have two flat leaflets "
                    "normal to z: their areas and thicknesses are NaN"
                )
        self.remark("flat", lack)
        numbers = np.where(flat[:, None], n_lipids, np.nan)
        areas, thickness = area[:, None] / numbers, np.where(flat, thickness, np.nan)
        self._note_protein()
        titles = {f"area per lipid, {one} leaflet (Å²)": one for one in ("upper", "lower")}
        columns = dict(zip(titles, areas.T, strict=True)) | {"thickness (Å)": thickness}
        legends = titles | {"thickness (Å)": "thickness"}
        for k, one in enumerate(titles.values()):
            columns[f"lipids, {one} leaflet"] = numbers[:, k]
        self.results = Results(
            table=table_in_time(
                self, columns, legends, "area per lipid and thickness"
            ).with_panels_of_units({"Å²": "area per lipid (Å²)"}),
            provenance=self.record(),
            area_per_lipid=areas,
            thickness=thickness,
            n_lipids=numbers,
        )

    def _reason_without_bilayer(self, has_two: np.ndarray) -> str:
        """Describe why no frame has a flat bilayer."""
        if has_two.any():
            return (
                "Bilayer: the headgroups of a leaflet are not at the same height: the membrane is "
                "curved or tilted, or its normal is not along z; all "
                "numbers are NaN"
            )
        return (
            "Bilayer: no frame has two leaflets with their heads on opposite sides: within "
            f"{self.cutoff:g} Å headgroups are connected otherwise; set another cutoff "
            "(--cutoff), or other headgroups (--select); all numbers are NaN"
        )

    def _note_protein(self) -> None:
        """Warn of a protein, because its area is included in the area per lipid."""
        try:
            protein = self.atomgroup.universe.select_atoms("protein")
        except AttributeError:  # topology without residue names
            return
        if len(protein):
            self.remark(
                "protein",
                "Bilayer: the system contains a protein; in the membrane, areas per lipid include "
                "the area of the protein",
            )


def _lipids_of(heads: Atoms) -> tuple[np.ndarray, np.ndarray]:
    """Find the atoms of all lipids, and for each of these atoms the index of its headgroup.

    A lipid is a bonded molecule of at most `LARGEST_LIPID` atoms, or else a residue. Both arrays
    are empty if a lipid has several headgroups, or if headgroups are the only atoms.
    """
    universe, bonds = heads.universe, known_bonds(heads.universe)
    molecules = universe.atoms.resindices
    if len(bonds):
        fragments = bonds.fragments
        sizes = np.bincount(fragments, minlength=len(fragments))[fragments[heads.indices]]
        if sizes.max() <= LARGEST_LIPID and sizes.min() > 1:
            molecules = fragments
    labels, places = np.unique(molecules[heads.indices], return_index=True)
    atoms = np.flatnonzero(np.isin(molecules, labels))
    if len(labels) < len(heads) or len(atoms) == len(heads):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return atoms, places[np.searchsorted(labels, molecules[atoms])]


class _Heights(CorePart, PerFrame):
    """Worker part: the `COLUMNS` values of each frame, NaN if there are not two leaflets."""

    def __init__(self, heads: np.ndarray, lipids: np.ndarray, head_of: np.ndarray, cutoff: float):
        self._heads, self._lipids, self._head_of = heads, lipids, head_of
        self._cutoff = cutoff

    def compute(self, block: Block) -> np.ndarray:
        """Compute the rows of a block: float64, shape (n_frames, 6)."""
        columns = columns_of(block)
        if self._bound is None:
            heads = np.ascontiguousarray(columns[self._heads])
            self._bound = _core.RowKernel.components(heads, len(heads), self._cutoff, True)
        components = np.empty((len(block), self._bound.n_columns))
        check_refused(block, self._bound.compute(block.raw[0], block.cells, components))
        rows = np.full((len(block), COLUMNS), np.nan)
        heights = block.raw[0][:, :, 2]
        for row in np.flatnonzero(block.held):
            vectors = vectors_of(block.cells[row : row + 1])[0]
            if not (vectors[2, 2] > 0 and np.abs(vectors[:2, 2]).max() < 1e-3):
                raise ValueError(
                    f"frame {block.frames[row]}: expected a cell with two vectors in the xy plane, "
                    "because the area of the membrane is the area of the cell there"
                )
            if np.isnan(components[row]).any():
                continue
            z = heights[row, columns].astype(np.float64)
            rows[row] = self._compute_frame(components[row].astype(np.int64), z, vectors)
        return rows

    def _compute_frame(
        self, components: np.ndarray, z: np.ndarray, vectors: np.ndarray
    ) -> np.ndarray:
        """Compute the values of one frame from the heights of all atoms and the cell vectors."""
        height, found = vectors[2, 2], np.full(COLUMNS, np.nan)
        sizes = np.bincount(components)
        largest = np.argsort(-sizes, kind="stable")[:2]
        if len(largest) < 2:
            return found
        heads, means, spreads, outward = z[self._heads], [], [], []
        for number in largest:
            members = components == number
            steps = _nearest(heads[members] - heads[members][0], height)
            means.append(heads[members][0] + steps.mean())
            spreads.append(steps.std())
            of_members = members[self._head_of]
            tails = z[self._lipids][of_members] - heads[self._head_of][of_members]
            outward.append(-_nearest(tails, height).mean() if len(self._lipids) else 0.0)
        gap = means[0] - means[1]
        if len(self._lipids):
            if outward[0] * outward[1] >= 0:
                return found
            order = [0, 1] if outward[0] > 0 else [1, 0]
            thickness = (means[order[0]] - means[order[1]]) % height
        else:
            gap = float(_nearest(np.array([gap]), height)[0])
            order, thickness = ([0, 1] if gap > 0 else [1, 0]), abs(gap)
        area = np.linalg.norm(np.cross(vectors[0], vectors[1]))
        found[:2], found[2:4] = sizes[largest][order], np.array(spreads)[order]
        found[4:] = area, thickness
        return found


def _nearest(steps: np.ndarray, height: float) -> np.ndarray:
    """Map displacements along z to those between nearest periodic images."""
    return steps - height * np.round(steps / height)
