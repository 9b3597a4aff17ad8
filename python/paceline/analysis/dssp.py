"""Secondary structure, with the parameters and results of MDAnalysis.analysis.dssp."""

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from paceline._util.arguments import one_of
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.base import AnalysisBase, table_in_time
from paceline.analysis.jackknife_intervals import errors_of_states
from paceline.analysis.kernels import CoreRows
from paceline.analysis.results import Results
from paceline.analysis.table import States, Table, along_residues, telling_columns, with_gaps
from paceline.contract.analysis_declaration import Declaration, Member
from paceline.contract.analysis_kinds import PerFrame
from paceline.contract.run_info_and_descriptions import describe_atoms
from paceline.contract.system_interface import Atoms, Residues
from paceline.errors import SelectionError, UnsupportedError
from paceline.transform.selections_and_weights import check_static

if TYPE_CHECKING:
    import MDAnalysis.analysis.dssp

#: Required by the import hook for submodules that only MDAnalysis has (see `paceline.analysis`).
__path__: list[str] = []

#: Minimum number of residues of the protein.
FEWEST = 6
#: Letters in the order of MDAnalysis, with names and colours for tables and figures.
LETTERS: tuple[str, ...] = ("-", "H", "E")
STATES: tuple[tuple[str, str], ...] = (
    ("loop", "#dddddd"),
    ("helix", "#d55e00"),
    ("strand", "#0072b2"),
)
#: Number of letters of each variant, as in the program mkdssp.
VARIANTS = {"dssp2": 8, "dssp4": 9}
#: Letters of mkdssp in the order of the kernel's numbers, with names and colours.
DSSP_LETTERS = ("-", "H", "B", "E", "G", "I", "T", "S", "P")
DSSP_STATES = (
    ("loop", "#dddddd"),
    ("α helix", "#d55e00"),
    ("bridge", "#000000"),
    ("strand", "#0072b2"),
    ("3-10 helix", "#e69f00"),
    ("π helix", "#cc79a7"),
    ("turn", "#56b4e9"),
    ("bend", "#009e73"),
    ("polyproline helix", "#f0e442"),
)
#: Bit for helices in the numbers that the kernel returns.
HELIX = 1
#: Bit for strands in the numbers that the kernel returns.
STRAND = 2
#: Index in `LETTERS` for each sum of `HELIX` and `STRAND`; helices have priority over strands.
OF_BITS = np.array([0, 1, 2, 1], dtype=np.int8)


class DSSP(AnalysisBase):
    r"""Secondary structure of a protein, from hydrogen bonds of the backbone.

    A hydrogen bond from N–H to C=O exists if its energy

    $$E = 0.084 \cdot 332 \left(\frac{1}{r_\mathrm{ON}} + \frac{1}{r_\mathrm{CH}}
          - \frac{1}{r_\mathrm{OH}} - \frac{1}{r_\mathrm{CN}}\right)\,\mathrm{kcal/mol}$$

    with distances in Å is below -0.5 kcal/mol, and N is within 5 Å of O (Kabsch & Sander 1983,
    Biopolymers 22, 2577). Consecutive hydrogen bonds form helices of any kind (H). Pairs of bonds
    form bridges between strands (E). All other residues are loops (-). Letters are those of
    MDAnalysis and pydssp. Chain breaks are not detected: consecutive residues of the topology count
    as neighbours. Distances are those between nearest images in the cell of each frame. Hydrogens
    are placed without images, so each residue must be whole and next to the previous residue.

    Parameters
    ----------
    atoms : AtomGroup or Universe
        Protein: at least six residues, each with N, CA, C and O. Other atoms are ignored.
    guess_hydrogens : bool
        Place the hydrogen of N from the surrounding atoms, at 1.01 Å with angles of 120°. With
        False, use the hydrogens of the trajectory.
    heavyatom_names : (str, str, str, str)
        Names of N, CA, C and O; alternative names of an atom are separated by spaces.
    hydrogen_name : str
        Names of the hydrogen of N, as after `name` in a selection.
    backend : str
        Accepted for compatibility with MDAnalysis, and ignored.
    variant : {"dssp2", "dssp4"}, optional
        Assign the letters of the program mkdssp, of version 2.2 (H B E G I T S) or 4 (also P),
        instead of only H and E. See the notes below.
    errors : bool
        Also compute 95 % intervals of the fractions of frames, from parts of the run.

    Attributes
    ----------
    results.dssp : numpy.ndarray of str, shape (n_frames, n_residues)
        Letters "-", "H" and "E"; "" in a damaged frame that was left out. With a `variant`: "H" α
        helix, "B" bridge, "E" strand, "G" 3-10 helix, "I" π helix, "T" turn, "S" bend, "P"
        polyproline helix, "-" for mkdssp's blank.
    results.dssp_ndarray : numpy.ndarray of bool, shape (n_frames, n_residues, n_letters)
        Masks of loop, helix and strand. A residue in both a helix and a strand has the letter H.
        With a `variant`, masks of 8 letters in the order "-HBEGITS", or with "dssp4" of 9 letters,
        with "P" at the end. All are False in a frame that was left out.
    results.resids : numpy.ndarray of int64, shape (n_residues,)
        Residue numbers.
    results.fractions : numpy.ndarray of float64, shape (n_residues, n_letters)
        With `errors`: fraction of frames in which each residue has each letter.
    results.fraction_intervals : numpy.ndarray of float64, shape (n_residues, n_letters, 2)
        With `errors`: lower and upper limits of the 95 % intervals of `fractions`; NaN for a
        fraction that is the same in all parts of the run, such as 0 and 1, and for runs of fewer
        than 4 parts. See `paceline.analysis.jackknife_intervals`.

    Raises
    ------
    SelectionError
        There are fewer than six residues, or a residue lacks one of the atoms or has it twice.
    UnsupportedError
        A group is an UpdatingAtomGroup, or hydrogens of the trajectory are used with a `variant`.
    ValueError
        The `variant` is unknown. In the run, as `AnalysisError`: positions are not finite.

    Notes
    -----
    With a `variant`, the rules are those of Kabsch & Sander as implemented in mkdssp. Hydrogens are
    placed 1 Å from N, opposite to C=O of the previous residue; PRO has no hydrogen. Each donor has
    up to two bonds, the strongest ones, to residues with CA within 9 Å. Energies are those above,
    rounded to 0.001 kcal/mol. Turns, helices, bridges and bends end where C is more than 2.5 Å from
    the next N. Consecutive bridges, also across a bulge, form strands (E); other bridges are B.
    Helices have priority over strands, α over 3-10 helices, and π over α helices. "dssp4" also has
    polyproline helices: three or more residues with φ = -75° and ψ = 145°, each within 29°. All
    distances are those between nearest images.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> found = DSSP(paceline.Universe(PSF, DCD)).run(stop=2).results
    >>> "".join(found.dssp[0])[:40]
    '-EEEE-------HHHHHHHHHHHH---EEEHHHHHHHHHH'
    >>> found.dssp_ndarray.mean(axis=(0, 1)).round(2)  # loop, helix, strand
    array([0.39, 0.45, 0.16])
    >>> found = DSSP(paceline.Universe(PSF, DCD), variant="dssp4").run(stop=2).results
    >>> "".join(found.dssp[0])[:40]
    '-EEEE-S-SSSSHHHHHHHHHHHH---EEEHHHHHHHHHH'
    """

    declaration = Declaration(
        name="dssp",
        summary="secondary structure of each residue",
        title="secondary structure",
        description=(
            "Secondary structure of each residue in each frame: helix (H), strand (E) or neither "
            "(-), from hydrogen bonds between backbone atoms; or with the letters of the program "
            "DSSP."
        ),
        section="structure.md#secondary-structure",
        select="protein",
        examples=(
            "adk.psf adk.dcd -o dssp.csv --plot dssp.png",
            "md.tpr md.xtc --variant dssp4 -o dssp.csv --plot dssp.png",
        ),
        options=("variant", "errors"),
        batteries=(Member("protein", {"select": "protein and same residue as name CA"}, place=5),),
        counterpart="dssp.DSSP",
        further={"residues": "write the fraction of frames of each residue in each structure"},
    )

    SHARED_RESULTS = ("dssp", "dssp_ndarray", "resids")

    def __init__(
        self,
        atoms: Atoms,
        guess_hydrogens: bool = True,
        *,
        heavyatom_names: tuple[str, ...] = ("N", "CA", "C", "O O1 OT1 OC1"),
        hydrogen_name: str = "H HN HT1 HT2 HT3",
        backend: str = "serial",
        verbose: bool = False,
        variant: Literal["dssp2", "dssp4"] | None = None,
        errors: bool = False,
    ):
        check_static(atoms, "DSSP")
        one_of("variant", variant, None, *VARIANTS)
        if variant is not None and not guess_hydrogens:
            raise UnsupportedError(
                f"variant={variant!r} places hydrogens as DSSP does: omit guess_hydrogens"
            )
        # Molecules must be whole only to place hydrogens: all distances use nearest images.
        self.variant, self.needs_whole = variant, variant is None and guess_hydrogens
        try:
            protein = atoms.select_atoms("protein")
        except AttributeError as error:
            raise SelectionError(
                f"DSSP finds proteins by residue names, but the topology lacks them ({error})"
            ) from None
        super().__init__(protein, verbose=verbose)
        self.errors = errors
        self.guess_hydrogens = guess_hydrogens
        self.heavyatom_names, self.hydrogen_name = tuple(heavyatom_names), hydrogen_name
        self._backbone = _backbone(protein, self.heavyatom_names)
        residues = self._backbone[1].residues
        self._donors = np.asarray(residues.resnames != "PRO")
        self._hydrogens: np.ndarray | None = None
        if not guess_hydrogens:
            named = residues.atoms.select_atoms(f"name {hydrogen_name}")
            self._hydrogens = self._choose_hydrogens(named)

    @classmethod
    def from_mdanalysis(cls, theirs: "MDAnalysis.analysis.dssp.DSSP") -> Self:
        """Make an analysis with the parameters of MDAnalysis's analysis."""
        if theirs._backend != "serial":
            raise UnsupportedError(f"DSSP: not with backend={theirs._backend!r}")
        groups = list(theirs._heavy_atoms.values())
        try:
            ours = cls(sum(groups[1:], groups[0]), heavyatom_names=tuple(theirs._heavy_atoms))
            if not theirs._guess_hydrogens:
                hydrogens = sum(theirs._hydrogens[1:], theirs._hydrogens[0])
                ours.guess_hydrogens = False
                ours._hydrogens = ours._choose_hydrogens(hydrogens)
        except SelectionError as error:  # MDAnalysis checks only the total numbers of atoms
            raise UnsupportedError(f"{error}") from None
        return ours

    def _choose_hydrogens(self, named: Any) -> np.ndarray:
        """Index of the hydrogen of each residue; for a residue without one, that of its N."""
        backbone_n, calphas = self._backbone[:2]
        residues, counts = np.unique(named.resindices, return_counts=True)
        found = dict(zip(residues.tolist(), counts.tolist(), strict=True))
        counts = np.array([found.get(index, 0) for index in calphas.resindices.tolist()])
        wrong = np.flatnonzero(counts != self._donors)
        wrong = wrong[wrong > 0]  # the first residue needs no hydrogen
        if len(wrong):
            raise SelectionError(
                f"{_names(calphas.residues[wrong])}: expected one hydrogen at N, and none in PRO, "
                f"found {', '.join(map(str, counts[wrong[:5]]))} by the names "
                f"{self.hydrogen_name!r}: set hydrogen_name, or place hydrogens with "
                "guess_hydrogens=True"
            )
        chosen = backbone_n.indices.copy()
        _, first = np.unique(named.resindices, return_index=True)
        rows = np.searchsorted(calphas.resindices, residues)
        chosen[rows] = named.indices[first]
        return chosen

    @property
    def indices(self) -> np.ndarray:
        """Indices of all N, all CA, all C, all O and, if hydrogens are not placed, all H."""
        kinds = [group.indices for group in self._backbone]
        if self._hydrogens is not None:
            kinds.append(self._hydrogens)
        return np.concatenate(kinds)

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are saved with the results."""
        return {
            "atoms": describe_atoms(self.atomgroup),
            "guess_hydrogens": self.guess_hydrogens,
            **({} if self.variant is None else {"variant": self.variant}),
            "heavyatom_names": ", ".join(self.heavyatom_names),
            **({} if self.guess_hydrogens else {"hydrogen_name": self.hydrogen_name}),
            **({"errors": True} if self.errors else {}),
        }

    def prepare(self) -> PerFrame:
        """Make the worker part; its kernel needs a mask of residues that donate a hydrogen."""
        if self.variant is not None:
            polyproline = self.variant == "dssp4"
            return CoreRows("dssp_letters", self._donors, polyproline, dtype=np.uint8)
        has_hydrogens = self._hydrogens is not None
        return CoreRows("dssp", self._donors, has_hydrogens, dtype=np.uint8)

    def finish(self, value: np.ndarray) -> None:
        """Convert the kernel's number for each residue to a letter."""
        left_out = np.isnan(value).any(axis=1)
        value = np.where(left_out[:, None], 0, value).astype(np.uint8)
        if self.variant is None:
            onehot = np.stack([value == 0, value & HELIX > 0, value & STRAND > 0], axis=-1)
            numbers, letters, names = OF_BITS.take(value), LETTERS, STATES
        else:
            n_letters = VARIANTS[self.variant]
            onehot = value[..., None] == np.arange(n_letters)
            numbers, letters = value.astype(np.int8), DSSP_LETTERS[:n_letters]
            names = DSSP_STATES[:n_letters]
        onehot[left_out] = False
        dssp = np.array(letters).take(numbers)  # four times as fast as indexing
        dssp[left_out] = ""
        columns: dict[str, np.ndarray] = {}
        for k, (name, _) in enumerate(names):
            count = (numbers == k).sum(axis=1)
            columns[f"{name} (residues)"] = with_gaps(count, left_out)
        columns["structure"] = dssp.view(f"U{dssp.shape[1]}")[:, 0]
        numbers[left_out] = -1
        residues = self._backbone[1].residues
        states = States(numbers, residues.resids, "residue", names)
        y = {f"{name} (residues)": name for name, _ in names}
        n_known = np.count_nonzero(~left_out)
        fractions = {
            f"{name} (fraction of frames)": (numbers == k).sum(axis=0) / (n_known or np.nan)
            for k, (name, _) in enumerate(names)
        }
        method, arrays, intervals = {}, {}, {}
        if self.errors:
            of_letters, found = errors_of_states(self, numbers, len(names))
            limits = found.limits(of_letters)
            arrays = {"fractions": of_letters, "fraction_intervals": limits}
            method = {"intervals": found.method}
            intervals = {title: limits[:, k] for k, title in enumerate(fractions)}
        profile = along_residues(residues, fractions, "fraction of frames", intervals)
        table = table_in_time(
            self, columns, y, "residues", states=states, profile=profile, counts=[*y]
        )
        self.results = Results(
            table=table,
            provenance={**self.record(), **method},
            dssp=dssp,
            dssp_ndarray=onehot,
            resids=residues.resids,
            **arrays,
        )

    FURTHER_TABLES = ("residues",)

    def further_tables(self) -> dict[str, Table]:
        """Return the table of the fractions of frames in which residues have each structure.

        Returns
        -------
        dict of str to Table
            "residues", with one row per residue; with `errors` also the limits of the intervals.
            Empty if residues have no numbers.
        """
        residues, profile = self._backbone[1].residues, self.results.table.profile
        if profile is None:  # residues have no numbers
            return {}
        rows = ~np.isnan(profile.columns["residue"])  # leave out the gaps between chains
        fractions = {title: values[rows] for title, values in profile.columns.items()}
        names = {"residue": residues.resids, "name": residues.resnames.astype(str)}
        names |= telling_columns(residues, {"": np.arange(len(residues))})
        table = Table(
            {**names, **fractions, "residue": residues.resids},
            "residue",
            profile.y,
            "fraction of frames",
            profile,
            keys=[*names],
            bands=profile.bands,
        )
        return {"residues": table}


def _backbone(protein: Atoms, names: tuple[str, ...]) -> list[Any]:
    """Return groups of N, CA, C and O, with one atom per residue in each group."""
    if len(names) != 4:
        raise ValueError(f"heavyatom_names must be names of N, CA, C and O, not {names!r}")
    groups = [protein[np.isin(protein.names, name.split())] for name in names]
    residues = protein.residues
    for name, group in zip(names, groups, strict=True):
        counts = np.bincount(group.resindices, minlength=len(protein.universe.residues))
        wrong = np.flatnonzero(counts[residues.resindices] != 1)
        if len(wrong):
            found = ", ".join(map(str, counts[residues.resindices][wrong[:5]]))
            raise SelectionError(
                f"{_names(residues[wrong])}: expected one atom named {name!r} in each, "
                f"found {found}: set other heavyatom_names, or exclude these residues or atoms"
            )
    if len(residues) < FEWEST:
        raise SelectionError(
            f"DSSP requires at least {FEWEST} residues of a protein, found {len(residues)}"
        )
    return groups


def _names(residues: Residues) -> str:
    """Format names and numbers of the first residues for an error message."""
    few = residues[:5]
    names = ", ".join(f"{one.resname} {one.resid}" for one in few)
    more = f" and {len(residues) - len(few)} more" if len(residues) > len(few) else ""
    return f"residue{'s' if len(residues) > 1 else ''} {names}{more}"


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
