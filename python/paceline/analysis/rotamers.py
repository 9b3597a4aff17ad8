"""Rotamers of side chains: populations of the states of χ angles."""

from collections import Counter

import numpy as np

from paceline._util.arguments import whole_number
from paceline.analysis.angle_states import states_of
from paceline.analysis.dihedrals import ChiAngles, label_residues
from paceline.analysis.results import Results
from paceline.analysis.table import telling_columns
from paceline.contract.analysis_declaration import Declaration
from paceline.contract.system_interface import (
    Atoms,
    Residue,
    Residues,
    System,
    attribute_of,
    has_attribute,
)
from paceline.errors import SelectionError, warn
from paceline.performance.number_format import many

#: For each residue name, the number of the χ angle that is equivalent after rotation by 180°.
SYMMETRIC = {"PHE": 2, "TYR": 2, "TYM": 2, "ASP": 2, "GLU": 3, "ARG": 5}
#: Names of hydrogens of carboxyl groups; with such a hydrogen, the group is not symmetric.
ACIDIC = {"HD1", "HD2", "HE1", "HE2"}
#: Maximum number of residue names in the sentence on residues without χ angles.
FEW = 6


class Rotamers(ChiAngles):
    r"""Rotamers of side chains: populations of the states of their χ angles.

    Angles are those of `ChiAngles`. A state is a third of the full turn (IUPAC-IUB 1970,
    Biochemistry 9, 3471): gauche+ from 0° to less than 120° (around 60°), trans from 120° to less
    than 240° (around 180°), and gauche- from 240° to less than 360° (around -60°). By the IUPAC
    rules, χ1 ends at CG1 in valine and isoleucine, and at OG1 in threonine. Trans valine is
    therefore the rotamer with CG1 opposite to N. The two puckers of proline are gauche+ and
    gauche-.

    Rotation by 180° leaves χ2 of phenylalanine, tyrosine and aspartate, χ3 of glutamate, and χ5 of
    arginine equivalent. These angles are counted from 0 to 180°, independent of the names of the
    two equivalent atoms. Their states are perpendicular, from 30° to less than 150°, and planar.
    Protonated acids, with a hydrogen at O, are not symmetric. Other angles at planar groups, such
    as χ2 of asparagine, histidine and tryptophan, have the usual three states, but not three
    minima: see the histogram.

    A population is the mean of a series, which is 1 in frames with the state, otherwise 0. Its
    interval is a score interval, whose effective number of values is that of `mean_of_series`.
    Transitions are counted from one frame to the next. If a transition is reversed before the next
    frame, it is missed, so the number of transitions depends on the time between frames.

    Parameters
    ----------
    atomgroup : AtomGroup or ResidueGroup
        Atoms of the residues.
    max_chi : int
        Largest number of a χ angle, 1 to 5.

    Attributes
    ----------
    results.angles : numpy.ndarray of float64, shape (n_frames, n_angles)
        Angles in degrees, from 0 to less than 360, or to less than 180 if folded; NaN as in
        `Dihedral`.
    results.chi : numpy.ndarray of int64, shape (n_angles,)
        Number of each angle, 1 to 5.
    results.resindices : numpy.ndarray of int64, shape (n_angles,)
        Index of the residue of each angle, among all residues of the Universe.
    results.folded : numpy.ndarray of bool, shape (n_angles,)
        True for angles that are counted from 0 to 180°.
    results.populations : numpy.ndarray of float64, shape (n_angles, 5)
        Fraction of frames in gauche+, trans, gauche-, perpendicular and planar; NaN for states that
        are impossible for an angle. Frames with a NaN angle are ignored.
    results.intervals : numpy.ndarray of float64, shape (n_angles, 5, 2)
        Lower and upper limits of the 95 % intervals of the populations. NaN if all or no frames
        have the state, or if frames are not in the order of time.
    results.independent : numpy.ndarray of float64, shape (n_angles,)
        Number of independent values of the state with the fewest; NaN if the state never changes.
        The values of a state are 1 in frames with this state, otherwise 0.
    results.transitions : numpy.ndarray of int64, shape (n_angles,)
        Number of changes of the state from one frame to the next.
    results.rates : numpy.ndarray of float64, shape (n_angles,)
        Transitions per ns, or per frame if times are unknown.
    results.histogram : numpy.ndarray of float64, shape (72, n_angles)
        Fraction of frames in each bin of 5°; NaN from 180° on if folded.

    Raises
    ------
    SelectionError
        No residue has such an angle, or a residue has an atom of an angle twice.
    UnsupportedError
        The group is an UpdatingAtomGroup.
    ValueError
        `max_chi` is not from 1 to 5. In the run, as `AnalysisError`: the lengths and angles of a
        frame do not form a cell.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> found = Rotamers(u.select_atoms("resid 13 19")).run().results
    >>> found.chi
    array([1, 2, 1, 2])
    >>> found.populations[0, :3].round(2)  # χ1 of LYS 13
    array([0.04, 0.  , 0.96])
    """

    declaration = Declaration(
        name="rotamers",
        summary="rotamers of side chains: populations of gauche+, trans and gauche-",
        description=(
            "Fraction of frames in which χ1 and χ2 of each side chain are gauche+, trans and "
            "gauche-, with 95 % intervals, and the number of transitions per ns. The figure shows "
            "histograms of the angles."
        ),
        section="structure.md#rotamers",
        select="protein",
        examples=(
            'adk.psf adk.dcd --select "protein and resid 13 19" -o rotamers.csv --plot chi.png',
            "md.tpr md.xtc --max-chi 1 -o rotamers.npz --plot map.png",
        ),
        options=("max_chi",),
    )

    def __init__(self, atomgroup: Atoms | System, *, max_chi: int = 2, verbose: bool = False):
        self.max_chi = whole_number("max_chi", max_chi, 1, 5)
        super().__init__(atomgroup, verbose=verbose)
        kept = np.flatnonzero(self.chi <= self.max_chi)
        if not len(kept):
            raise SelectionError(f"Rotamers: no residue has an angle χ1 to χ{self.max_chi}")
        self.chi = self.chi[kept]
        self.ag1, self.ag2, self.ag3, self.ag4 = (group[kept] for group in self._chain)

    @property
    def _residues(self) -> Residues:
        """Residue of each angle."""
        return self.ag1.universe.residues[self.ag1.resindices]

    def finish(self, value: np.ndarray) -> None:
        """Count the states of each angle, and store populations and histograms as results."""
        every, residues, resindices = self.atomgroup.residues, self._residues, self.ag1.resindices
        found = states_of(self, value, _are_symmetric(residues, self.chi))
        names = attribute_of(residues, "resnames")
        of_rows = {
            "residue": residues.resids,
            **({} if names is None else {"name": names.astype(str)}),
            **telling_columns(
                residues.unique, {"": np.searchsorted(residues.unique.ix, resindices)}
            ),
            "chi": self.chi,
        }
        labels = label_residues(self.ag1.residues, resindices)
        drawn = found.figure(labels, [f"χ{k}" for k in self.chi], residues.resids, "residue")
        without = every[~np.isin(every.resindices, resindices)]
        left_out = _describe_left_out(without, len(every))
        table = found.table(of_rows, drawn, ("residue", "chi"), left_out)
        self.results = Results(
            table=table,
            provenance=self.record(),
            angles=found.angles,
            chi=self.chi,
            resindices=resindices,
            folded=found.folded,
            populations=found.populations,
            intervals=found.intervals,
            independent=found.independent,
            transitions=found.transitions,
            rates=found.rates,
            histogram=found.histogram,
        )


def _are_symmetric(residues: Residues, chi: np.ndarray) -> np.ndarray:
    """Mask of the angles that are equivalent after rotation by 180°."""
    found = np.zeros(len(chi), bool)
    if not has_attribute(residues, "resnames"):
        warn("Rotamers: the topology has no residue names: no angle is treated as symmetric")
        return found
    for k, (residue, number) in enumerate(zip(residues, chi.tolist(), strict=True)):
        name = residue.resname
        # In Amber, names of the first and the last residue begin with N and C: remove this letter.
        if name not in SYMMETRIC and name[:1] in "NC":
            name = name[1:]
        if SYMMETRIC.get(name) == number:
            is_acid = name in ("ASP", "GLU")
            found[k] = not (is_acid and _has_acidic_hydrogen(residue))
    return found


def _has_acidic_hydrogen(residue: Residue) -> bool:
    """True if an acid has a hydrogen at one of its carboxyl oxygens."""
    return not ACIDIC.isdisjoint(residue.atoms.names)


def _describe_left_out(residues: Residues, n_all: int) -> str:
    """Describe the residues without angles, counted by name."""
    if not len(residues):
        return ""
    names = attribute_of(residues, "resnames")
    counted = [] if names is None else Counter(map(str, names)).most_common()
    few = ", ".join(f"{count} {name}" for name, count in counted[:FEW])
    more = ", …" if len(counted) > FEW else ""
    listed = f" ({few}{more})" if few else ""
    return f"{len(residues)} of {many(n_all, 'residue')} have no χ{listed}"
