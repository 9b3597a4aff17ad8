"""Check each frame of a run for broken or separated molecules and missing superposition."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from paceline import _core
from paceline._util.sorted_unique import sorted_unique
from paceline.block import Block, cell_of
from paceline.contract.analysis import CHECK_NAME, Analysis
from paceline.contract.analysis_kinds import Ragged
from paceline.contract.system_interface import System, residue_name, topology_of
from paceline.contract.transform_interface import Transform, find_scan
from paceline.errors import PacelineError, TransformError, warn
from paceline.performance.number_format import joined
from paceline.transform.apply_transforms import first_positions
from paceline.transform.bonds_and_compounds import MolecularBonds, known_bonds
from paceline.transform.same_image_links import (
    NEAR,
    Links,
    find_links,
    molecules_side_by_side,
    nearest_contacts,
)

#: Number in records of the finding that a molecule is broken across the cell.
BROKEN = 0
#: Number of the finding that two molecules that are neighbours in the first frame are in different
#: images.
APART = 1
#: Number of the finding that atoms are not superposed.
TURNED = 2
#: Maximum number of atoms of an analysis with which its superposition is checked.
SAMPLED = 60
#: Minimum factor by which superposition must reduce the RMSD in a frame for a finding `TURNED`.
MIN_RATIO = 2.0
#: Minimum difference by which superposition must reduce the RMSD in a frame for `TURNED`, Å.
MIN_DIFFERENCE = 2.0
#: Minimum fraction of frames with a finding `TURNED` for a warning.
MIN_FRACTION = 0.05
#: Analyses that share a requirement: their names, each with the indices of the atoms.
_Needs = list[tuple[str, np.ndarray]]


class _Requirements(NamedTuple):
    """Analyses that need whole molecules, molecules in one image, or superposed frames."""

    whole: _Needs
    together: _Needs
    fit: _Needs


def make_checks(
    analyses: Sequence[Analysis], transforms: Sequence[Transform]
) -> "MoleculeCheck | None":
    """Create the checks for the analyses of one Universe in a run; None if no check is needed."""
    universe = analyses[0].atomgroup.universe
    if topology_of(universe) is None:
        return None
    wants = _find_requirements(analyses, transforms, universe)
    if not cell_of(universe.trajectory)[:, :6].any():
        wants = wants._replace(whole=[], together=[])  # without a cell, no molecule is broken
    if not any(wants):
        return None
    groups, together = ([group for _, group in of] for of in (wants.whole, wants.together))
    links, contacts = None, np.empty((0, 2), np.int64)
    if groups or together:
        bonds = known_bonds(universe)
        links = find_links(universe, bonds, groups) if groups else None
        contacts = _contacts(universe, bonds, together)
    if links is None and not len(contacts) and not wants.fit and not groups:
        return None
    return MoleculeCheck(analyses, wants, links, contacts)


def _find_requirements(
    analyses: Sequence[Analysis], transforms: Sequence[Transform], universe: System
) -> _Requirements:
    """Find the requirements of analyses and transformations that no transformation meets."""
    is_whole = np.zeros(len(universe.atoms), bool)
    unwrapped = []
    for one in transforms:
        if one.makes_whole:
            unwrapped.append(one.made_whole(universe))
            is_whole[unwrapped[-1]] = True
        elif one.breaks:
            is_whole[:] = False
    of_analyses = [(one.name, _atoms_of(one)) for one in analyses]
    pairs = list(zip(analyses, of_analyses, strict=True))
    needing = {
        "needs_whole": [of for one, of in pairs if one.needs_whole],
        "needs_together": [of for one, of in pairs if one.needs_together],
        "needs_fit": [of for one, of in pairs if one.needs_fit],
    }
    for one in transforms:
        whole_atoms = one.whole_atoms(universe)
        if whole_atoms is not None:
            kind = one.parameters().partition("(")[0]
            moved = f"{kind} (--{kind})", whole_atoms
            needing["needs_whole"].append(moved)
            if one.rotates:
                needing["needs_together"].append(moved)
    if find_scan(transforms) is not None:  # `nojump` lets adjacent molecules drift apart
        needing["needs_together"] = []
    elif not needing["needs_together"]:
        # Check the molecules that `unwrap` makes whole one by one, if an analysis or a writer uses
        # several of them together.
        needing["needs_together"] = [
            (name, np.intersect1d(group, molecules))
            for molecules in unwrapped
            for one, (name, group) in zip(analyses, of_analyses, strict=True)
            if not one.measures_each
        ]
    if any(one.rotates for one in transforms):
        needing["needs_fit"] = []
    broken = [(name, group[~is_whole[group]]) for name, group in needing["needs_whole"]]
    return _Requirements(
        [one for one in broken if len(one[1])], needing["needs_together"], needing["needs_fit"]
    )


def _atoms_of(analysis: Analysis) -> np.ndarray:
    return np.asarray(analysis.indices, dtype=np.int64)


def _contacts(universe: System, bonds: MolecularBonds, groups: Sequence[np.ndarray]) -> np.ndarray:
    """Find the nearest atoms of neighbouring molecules in each group: indices, (n_pairs, 2)."""
    if not (len(bonds) and len(groups) and cell_of(universe.trajectory)[:, :6].any()):
        return np.empty((0, 2), np.int64)
    fragments, found = bonds.fragments, [np.empty((0, 2), np.int64)]
    known: set[bytes] = set()
    for group in groups:
        if not len(group) or (fragments[group] == fragments[group[0]]).all():
            continue
        atoms = molecules_side_by_side(universe, sorted_unique(group), fragments)
        if atoms.tobytes() in known or len(np.unique(fragments[atoms])) < 2:
            continue
        known.add(atoms.tobytes())
        try:
            found.append(nearest_contacts(universe, atoms, fragments[atoms], NEAR)[0])
        except (EOFError, OSError, TransformError, ValueError):
            continue  # the first frame cannot be read, or has no cell: the run reports that
    return np.unique(np.concatenate(found), axis=0)


class MoleculeCheck(Analysis):
    """Companion analysis that warns of frames for which other analyses compute wrong results."""

    is_companion = True
    name, indices = CHECK_NAME, np.empty(0, np.int64)

    def __init__(
        self,
        analyses: Sequence[Analysis],
        wants: _Requirements,
        links: Links | None,
        contacts: np.ndarray,
    ):
        self.atomgroup = analyses[0].atomgroup
        self._requirements, self._links, self._contacts = wants, links, contacts
        self._sampled = [
            (name, group[:: max(1, -(-len(group) // SAMPLED))]) for name, group in wants.fit
        ]
        self._sampled = [one for one in self._sampled if len(one[1]) >= 3]
        linked = [] if links is None else [links.atoms]
        sampled = [group for _, group in self._sampled]
        found = sorted_unique(*linked, contacts.ravel(), *sampled)
        # A run needs at least one atom.
        self.indices = found if len(found) else self.atomgroup.indices[:1]

    def parameters(self) -> dict[str, object]:
        """Describe the checks; checkpoints identify runs by this description."""
        return {"atoms": f"{len(self.indices)}"}

    def prepare(self) -> "_CheckedBlocks":
        """Create the worker part from columns of links and groups, and reference positions."""
        columns_of = self._columns
        links, longest = (np.empty((0, 2), np.int64), np.empty(0, np.int64)), 1
        groups = []
        if self._links is not None:
            links, longest = (
                (columns_of(self._links.pairs), self._links.lengths),
                self._links.longest,
            )
            inside = (group[np.isin(group, self.indices)] for _, group in self._requirements.whole)
            groups = [columns_of(group) for group in inside]
        universe, context = self.atomgroup.universe, self._run_context
        how = self._run_info.frames, context.transforms, context.skip_damaged
        references, compared = [], []
        for name, group in self._sampled:
            try:
                first = first_positions(universe.atoms[group], *how)
            except (EOFError, OSError, PacelineError, ValueError):
                continue  # if the run needs this frame, it reports the error
            if np.isfinite(first).all():  # otherwise the analysis itself reports the positions
                references.append((columns_of(group), first))
                compared.append((name, group))
        self._sampled = compared
        contacts = columns_of(self._contacts)
        return _CheckedBlocks(self.indices, links, longest, groups, contacts, references)

    def _columns(self, indices: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.indices, indices).astype(np.int64)

    def finish(self, value: tuple[np.ndarray, np.ndarray]) -> None:
        """Issue one warning for each kind of finding."""
        offsets, records = value
        records = records.reshape(-1, 5)
        n_all, frames = (
            len(self._run_info.frames),
            np.repeat(self._run_info.frames, np.diff(offsets)),
        )
        said = list(self._warn_of_unchecked())
        path = self._run_info.provenance["trajectory"]
        for kind, say in ((BROKEN, self._broken), (APART, self._apart), (TURNED, self._turned)):
            for number in np.unique(records[records[:, 0] == kind, 1]).tolist():
                of_kind = (records[:, 0] == kind) & (records[:, 1] == number)
                first = np.flatnonzero(of_kind)[frames[of_kind].argmin()]
                n_frames = int(of_kind.sum())
                if kind == TURNED and n_frames < MIN_FRACTION * n_all:
                    continue
                where = f"{n_frames} of {n_all} frames, first in frame {frames[first]}"
                text = f"{path}: {say(where, records[first], int(number))}"
                warn(text)
                said.append(text)
        self.found = said

    def _warn_of_unchecked(self) -> "list[str]":
        """Return the warning, if any, that molecules needed whole could not be checked."""
        has_cell = cell_of(self.atomgroup.universe.trajectory)[:, :6].any()
        several = any(len(group) > 1 for _, group in self._requirements.whole)
        if self._links is not None or not (has_cell and several):
            return []
        if len(known_bonds(self.atomgroup.universe)):
            return []  # no two of the atoms belong to one molecule, so that none can be broken
        return [
            "broken molecules could not be detected: the topology has no bonds, and bonds could "
            "not "
            "be guessed from the distances of these atoms"
        ]

    def _broken(self, where: str, record: np.ndarray, _: int) -> str:
        names = list(dict.fromkeys(name for name, _ in self._requirements.whole))
        assert self._links is not None
        first, second = record[2:4].astype(int)
        is_link = (self._links.pairs == sorted((first, second))).all(axis=1)
        bonded = is_link.any() and self._links.lengths[is_link.argmax()] == 1
        atoms = f"atoms {first} and {second} {'are bonded, and' if bonded else 'of it are'}"
        advice = "unwrap (--unwrap) makes molecules whole"
        if self._links.guessed:
            advice += (
                ", with a topology that has bonds (TPR, PSF, PRMTOP, …): for this warning, bonds "
                "were "
                "guessed from distances"
            )
        return (
            f"a molecule is broken across the cell in {where}: {atoms} {record[4]:.1f} Å apart; "
            f"{joined(names)} {'needs' if len(names) == 1 else 'need'} whole molecules: {advice}"
        )

    def _apart(self, where: str, record: np.ndarray, _: int) -> str:
        names = list(dict.fromkeys(name for name, _ in self._requirements.together))
        atoms = " and ".join(map(self._name, record[2:4].astype(int)))
        return (
            "molecules that are near each other in the first frame are in different images in "
            f"{where}: {atoms} are {record[4]:.1f} Å apart; what {joined(names)} "
            f"{'computes' if len(names) == 1 else 'compute'} for both is wrong for their complex: "
            "put "
            "them side by side with together= (--together)"
        )

    def _turned(self, where: str, record: np.ndarray, number: int) -> str:
        name = self._sampled[number][0]
        return (
            f"the atoms of {name} move or rotate as a whole in {where}: their RMSD from frame "
            f"{self._run_info.frames[0]} is {record[2]:.1f} Å there, and {record[3]:.1f} Å after "
            "superposition; superpose them by fit (--fit), or by align=True (--align) where it is "
            "available, unless frames were superposed before and this motion is wanted"
        )

    def _name(self, index: int) -> str:
        """Describe an atom by its index and residue."""
        of = residue_name(self.atomgroup.universe.atoms[index].residue)
        return f"atom {index} ({of})" if of else f"atom {index}"


class _CheckedBlocks(Ragged):
    """Worker part that returns findings as records of five numbers.

    For `BROKEN` and `APART`, the numbers are the kind, 0, two atom indices, and the distance of the
    atoms, Å. For `TURNED`, they are the kind, the number of the group, its RMSD before and after
    superposition, Å, and 0.
    """

    returns_new = True
    #: True after `_bind` was called for the first block.
    _bound = False
    _whole: _core.Whole | None = None
    _rmsds: Sequence[Sequence[_core.RowKernel]] = ()
    _of_column: np.ndarray

    def __init__(
        self,
        indices: np.ndarray,
        links: tuple[np.ndarray, np.ndarray],
        longest: int,
        groups: Sequence[np.ndarray],
        contacts: np.ndarray,
        references: Sequence[tuple[np.ndarray, np.ndarray]],
    ):
        self._indices, self._links, self._longest = indices, links, longest
        self._groups, self._contacts, self._references = groups, contacts, references

    def __getstate__(self) -> dict[str, object]:
        bound = ("_bound", "_whole", "_rmsds", "_of_column")
        return {name: value for name, value in vars(self).items() if name not in bound}

    def compute_records(self, block: Block) -> tuple[np.ndarray, np.ndarray] | None:
        """Check the frames of a block; return numbers of findings by frame, and their records.

        Return None without findings.
        """
        positions, columns = block.raw
        if not self._bound:
            self._bind(positions.shape[1], columns)
        found = None
        if self._whole is not None:
            frames = np.ascontiguousarray(block.frames)
            found = self._whole.look(positions, block.cells, frames)
            if found is not None:
                found[1][:, 2:4] = self._of_column[found[1][:, 2:4].astype(np.int64)]
        return self._with_turned(block, found) if self._rmsds else found

    def _with_turned(
        self, block: Block, found: tuple[np.ndarray, np.ndarray] | None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Add the findings of groups that are not superposed to `found`, in frame order."""
        parts = [] if found is None else [(np.repeat(np.arange(len(block)), found[0]), found[1])]
        plain, best = np.empty((2, len(block), 1))
        for number, kernels in enumerate(self._rmsds):
            for kernel, out in zip(kernels, (plain, best), strict=True):
                kernel.compute(block.raw[0], block.cells, out)
            rows = np.flatnonzero((plain >= MIN_RATIO * best) & (plain >= best + MIN_DIFFERENCE))
            if len(rows):
                of_row = TURNED, number, plain[rows, 0], best[rows, 0], 0.0
                parts.append((rows, np.stack(np.broadcast_arrays(*of_row), axis=1)))
        if not parts:
            return None
        rows, records = (np.concatenate(some) for some in zip(*parts, strict=True))
        order = np.argsort(rows, kind="stable")
        return np.bincount(rows, minlength=len(block)), records[order]

    def _bind(self, n_atoms: int, columns: np.ndarray | None) -> None:
        """Create the compiled checkers from the columns of their atoms among decoded atoms."""
        columns = np.arange(n_atoms) if columns is None else columns
        self._of_column = np.zeros(n_atoms, np.int64)
        self._of_column[columns] = self._indices
        links, lengths = self._links
        if len(links) or len(self._contacts):
            groups, contacts = [columns[group] for group in self._groups], columns[self._contacts]
            given = (columns[links], lengths), self._longest, groups, contacts
            self._whole = _core.Whole(n_atoms, *given)
        rmsd = _core.RowKernel.rmsd
        self._rmsds = [
            [rmsd(columns[group], [(reference, None)], fitted) for fitted in (False, True)]
            for group, reference in self._references
        ]
        self._bound = True
