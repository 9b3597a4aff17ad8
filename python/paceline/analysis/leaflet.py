"""Leaflets of membranes in every frame; MDAnalysis.analysis.leaflet finds them in one frame."""

from dataclasses import replace

import numpy as np

from paceline._util.arguments import length, whole_number
from paceline._util.option_values_and_selections import LIPIDS
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, table_in_time
from paceline.analysis.functions import TimeSeries
from paceline.analysis.kernels import CoreRows
from paceline.analysis.results import Results
from paceline.analysis.results_in_sentences import describe_columns
from paceline.analysis.table import with_gaps
from paceline.block import Block
from paceline.contract.analysis_declaration import PBC, Declaration, Member
from paceline.contract.analysis_kinds import PerFrame
from paceline.contract.system_interface import Atoms, System
from paceline.performance.number_format import many
from paceline.transform.selections_and_weights import choose_atoms


class LeafletSeries(AnalysisBase):
    """Leaflets of a membrane in each frame, as MDAnalysis's `LeafletFinder` finds them.

    Two headgroups are connected if they are within the cutoff (Michaud-Agrawal, Denning, Woolf &
    Beckstein 2011, J. Comput. Chem. 32, 2319). Connected components are numbered by their first
    atoms, as `LeafletFinder.components` are (not by size, as the manual of MDAnalysis says).

    Leaflets 0 and 1 are the two largest components in the first frame with two components, in the
    order of their first atoms. The table names them upper and lower, by the z direction from tails
    to heads. In later frames, the two largest components are these leaflets if each component has
    more than half of its atoms, and more than half of a leaflet's atoms, in common with one
    leaflet. In all other frames, such as those with a lipid that connects the leaflets, no atom is
    in a leaflet.

    Parameters
    ----------
    universe : Universe or AtomGroup
        System.
    select : str or AtomGroup
        Headgroup atoms, one per lipid, such as "name P" or "name PO4".
    cutoff : float
        Maximum distance between connected atoms, Å.
        `MDAnalysis.analysis.leaflet.optimize_cutoff` tries several values.
    pbc : bool
        Use the nearest periodic images in the cell of each frame, if the frame has a cell.
        `LeafletFinder` does not do this by default.

    Attributes
    ----------
    results.components : numpy.ndarray of int32, shape (n_frames, n_atoms)
        Number of the component of each atom, from 0; -1 in damaged frames that were left out.
    results.n_components : numpy.ndarray of int64, shape (n_frames,)
        Number of components; 0 for frames that were left out.
    results.sizes : numpy.ndarray of int64, shape (n_frames, n_most)
        Number of atoms in each component; 0 beyond the last component of a frame.
    results.leaflets : numpy.ndarray of int8, shape (n_frames, n_atoms)
        Leaflet of each atom, 0 or 1; -1 for atoms in no leaflet.
    results.flip_flops : numpy.ndarray of int64, shape (n_atoms,)
        Number of times that each atom was in another leaflet than at its previous assignment.
    results.frames : numpy.ndarray of int64, shape (n_frames,)
        Frame numbers.
    results.times : numpy.ndarray of float64, shape (n_frames,)
        Times of these frames, ps.

    Raises
    ------
    SelectionError
        The selection is empty.
    UnsupportedError
        A group is an UpdatingAtomGroup.
    ValueError
        The cutoff is not a length. In the run, as `AnalysisError`: a position is NaN, or a cell is
        invalid or smaller than the cutoff.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import Martini_membrane_gro
    >>> from paceline.analysis.leaflet import LeafletSeries
    >>> leaflets = LeafletSeries(paceline.Universe(Martini_membrane_gro), "name PO4").run()
    >>> leaflets.results.sizes
    array([[180, 180]])
    >>> upper, lower = leaflets.groups(0)
    >>> upper
    <AtomGroup with 180 atoms>
    """

    declaration = Declaration(
        name="leaflets",
        summary="leaflets of a membrane, and lipids that change them",
        description=(
            "Number of headgroups in each leaflet, in each frame. Leaflets are the two largest "
            "connected components of headgroups within --cutoff. A .npz file also contains the "
            "component and the leaflet of each headgroup, and its number of flip-flops."
        ),
        section="distributions.md#leaflets",
        select=LIPIDS,
        examples=(
            'md.tpr md.xtc --select "name P" -o leaflets.csv --plot leaflets.png',
            'martini.gro martini.xtc --select "name PO4 ROH" --cutoff 12 -o leaflets.npz',
        ),
        options=(
            "cutoff",
            PBC,
        ),
        batteries=(Member("membrane", {"select": LIPIDS}, place=1),),
        counterpart="leaflet.LeafletFinder",
    )

    def __init__(
        self,
        universe: Atoms | System,
        select: str | Atoms = "all",
        cutoff: float = 15.0,
        pbc: bool = True,
        *,
        verbose: bool = False,
    ):
        group, text = (universe, select) if isinstance(select, str) else (select, None)
        atoms = choose_atoms(group, text, "select")
        super().__init__(atoms, verbose=verbose)
        self.cutoff, self.pbc = length("cutoff", cutoff, 2.0), bool(pbc)
        self.row_bytes = 5 * len(atoms)

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {**super().parameters(), "cutoff": self.cutoff, "pbc": self.pbc}

    def prepare(self) -> PerFrame:
        """Make the worker part that numbers the components."""
        given = len(self.atomgroup), self.cutoff, self.pbc
        return CoreRows("components", *given, dtype=np.int32)

    def finish(self, value: np.ndarray) -> None:
        """Count the atoms of the components, and follow the leaflets over time."""
        left_out = np.isnan(value[:, 0])
        components = value
        if value.dtype != np.int32:
            components = np.where(left_out[:, np.newaxis], -1, value).astype(np.int32)
        n_components = components.max(axis=1).astype(np.int64) + 1
        sizes = np.zeros((len(components), max(1, n_components.max())), dtype=np.int64)
        for row, of_frame in zip(sizes, components, strict=True):
            known = np.bincount(of_frame[of_frame >= 0])
            row[: len(known)] = known
        leaflets, flip_flops = follow_leaflets(components, sizes)
        columns = {"components": with_gaps(n_components, left_out)}
        in_none = np.all(leaflets < 0, axis=1)
        names = self._names(leaflets, np.flatnonzero(~in_none))
        titles = {f"{name} leaflet (atoms)": f"{name} leaflet" for name in names}
        for k, title in enumerate(titles):
            columns[title] = with_gaps((leaflets == k).sum(axis=1), in_none)
        if in_none.all():
            self.remark(
                "leaflets",
                f"LeafletSeries: no frame has two leaflets: within {self.cutoff:g} Å all "
                "headgroups are connected; use a smaller cutoff, or other headgroups",
            )
        in_leaflets = int(np.sort(sizes, axis=1)[:, -2:].sum(axis=1).max())
        if in_leaflets < len(self.atomgroup) / 2:
            self.remark(
                "headgroups",
                f"LeafletSeries: both leaflets have at most {in_leaflets:,} of "
                f"{len(self.atomgroup):,} headgroups: few are within {self.cutoff:g} Å of another; "
                "use a larger cutoff, or other headgroups",
            )
        table = table_in_time(
            *(self, columns, titles, "atoms of a leaflet"), partial=True, counts=[*columns]
        )
        n_headgroups = int(np.count_nonzero(flip_flops))
        changes = f"{flip_flops.sum()}, by {many(n_headgroups, 'headgroup')}"
        changes = changes if n_headgroups else "none"
        facts = {
            "frames with two leaflets": f"{np.sum(~in_none)} of {len(components)}",
            "flip-flops": changes,
            "leaflets 0 and 1": " and ".join(names),
        }
        self.results = Results(
            table=replace(table, notes=describe_columns(table) | {"flip-flops": changes}),
            provenance={**self.record(), **facts},
            components=components,
            n_components=n_components,
            sizes=sizes,
            leaflets=leaflets,
            flip_flops=flip_flops,
            frames=self.frames,
            times=self.times,
        )

    def _names(self, leaflets: np.ndarray, rows: np.ndarray) -> tuple[str, str]:
        """Name leaflets 0 and 1 by the z direction from tails to heads, or by z of the heads."""
        names = "upper", "lower"
        if len(rows) == 0:
            return names
        heads, of_heads = self.atomgroup, leaflets[rows[0]]
        lipids = heads.residues
        has_tails = len(lipids) == len(heads) < len(lipids.atoms)
        atoms = lipids.atoms if has_tails else heads
        frame = {"frames": self.frames[rows[:1]], "transforms": self.transforms}
        run = TimeSeries(_heights, atoms).run(**frame, backend="serial", progress=False)
        *heights, cell = run.results.timeseries[0].astype(float)
        above, labels = np.array(heights), of_heads
        if has_tails:
            order = np.argsort(heads.resindices)
            places = np.searchsorted(heads.resindices[order], atoms.resindices)
            labels = of_heads[order][places]
            above = above[np.searchsorted(atoms.indices, heads.indices)][order][places] - above
            above -= cell * np.round(above / cell) if cell > 0 else 0
        is_upper = above[labels == 0].mean() >= above[labels == 1].mean()
        return names if is_upper else names[::-1]

    def groups(self, row: int) -> list[Atoms]:
        """Return the atoms of each component in a frame.

        Parameters
        ----------
        row : int
            Index of a frame in the run.

        Returns
        -------
        list of AtomGroup
            Groups as from `LeafletFinder.groups()` in this frame.
        """
        row = whole_number("row", row)
        of_frame = self.results.components[row]
        return [self.atomgroup[of_frame == k] for k in range(self.results.n_components[row])]


def _heights(block: Block) -> np.ndarray:
    """Return z of each atom, and the length of the cell along z, 0 without a cell."""
    return np.column_stack([block.positions[:, :, 2], block.dimensions[:, 2]])


def follow_leaflets(components: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the leaflet of each atom in each frame, int8, and its number of flip-flops, int64.

    Examples
    --------
    >>> components = np.array([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, 1], [0, 1, 1, 0, 0, 0]])
    >>> sizes = np.array([[3, 3], [1, 5], [4, 2]])
    >>> leaflets, flip_flops = follow_leaflets(components, sizes)
    >>> leaflets
    array([[ 0,  0,  0,  1,  1,  1],
           [-1, -1, -1, -1, -1, -1],
           [ 1,  0,  0,  1,  1,  1]], dtype=int8)
    >>> flip_flops
    array([1, 0, 0, 0, 0, 0])
    """
    n_atoms = components.shape[1]
    leaflets = np.full(components.shape, -1, dtype=np.int8)
    flip_flops = np.zeros(n_atoms, dtype=np.int64)
    last = np.full(n_atoms, -1, dtype=np.int8)
    for row, of_frame, of_sizes in zip(leaflets, components, sizes, strict=True):
        largest = np.sort(np.argsort(-of_sizes, kind="stable")[:2])
        if len(largest) < 2 or of_sizes[largest[1]] == 0:
            continue
        new = np.where(of_frame == largest[0], 0, np.where(of_frame == largest[1], 1, -1))
        if (last >= 0).any():
            # Row: leaflet in earlier frames; column: component in this frame; value: number of
            # common atoms.
            both = (last >= 0) & (new >= 0)
            shared = np.bincount(2 * last[both] + new[both], minlength=4).reshape(2, 2)
            before = np.bincount(last[last >= 0], minlength=2)
            now = np.bincount(new[new >= 0], minlength=2)
            if _has_majority(shared[::-1], before[::-1], now):
                new = np.where(new < 0, -1, 1 - new)
            elif not _has_majority(shared, before, now):
                continue
        flip_flops += (new >= 0) & (last >= 0) & (new != last)
        last = np.where(new >= 0, new, last).astype(np.int8)
        row[:] = new
    return leaflets, flip_flops


def _has_majority(shared: np.ndarray, before: np.ndarray, now: np.ndarray) -> bool:
    """True if leaflet k and component k share more than half of the atoms of both (k = 0, 1).

    `shared` contains numbers of common atoms; `before` are the sizes of the leaflets, and `now`
    those of the components.
    """
    same = 2 * np.diagonal(shared)
    return bool((same > before).all() and (same > now).all())


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
