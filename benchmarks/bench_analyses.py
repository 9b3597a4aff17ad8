"""Measure analyses and those of other tools, including the decoding of XTC.

    python -m benchmarks analyses [folder] [--repeats 5] [--only gyration] [--tsv] [--tiny]

Each tool uses one core. All tools read the XTC file except MDTraj, whose frames are in memory, so
that its decoding would come on top. The numbers of the first frames must agree, or the benchmark
fails; tools with another definition are exempt (`make compare` compares them). ``gmx`` and
``cpptraj`` are searched on PATH, or at the paths in PACELINE_GMX and PACELINE_CPPTRAJ. A goal is a
ratio to the best peer of this run; it was derived from the table of µs per frame. Goals are judged
by CPU time, which other programs disturb least. "Base build" is paceline without the instruction
sets that it chooses at run time. Before each run, memory is touched: twice the size of the largest
result, and at least that of some blocks and records. On a virtual machine that returns free pages
to its host, the first use of a page may cost thirty times as much as the next, and would slow
whichever tool comes first. The last rows compare one pass of all analyses of the protein with the
sum of single passes, and two workers with one. Times of rmsd-matrix are per 1,000 pairs of frames;
those of msd are of 30 to 60 frames.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks import peers, programs
from benchmarks.compare import OURS, REFERENCE, SLOPES, Options, add_slopes, options, report
from benchmarks.data import Dataset
from benchmarks.measure import Run, Slope, Spread, Subject, slopes, subjects
from benchmarks.peers import ACIDIC, BASIC, GRID, WATER
from benchmarks.table import Table
from paceline.analysis.described_analyses import class_of
from paceline.contract.read_catalogue import catalogue

MDTRAJ, GROMACS, CPPTRAJ = "MDTraj", "GROMACS", "cpptraj"
#: Paceline without instruction sets that are chosen at run time.
OURS_BASE = "paceline, base build"
#: Number of frames whose numbers are compared between tools.
COMPARED = 2
#: Number of frames in a short run of paceline, for the protein and for the system in water.
FRAMES = {"adk": 1000, "water": 50}

#: Number of frame pairs that count as one item.
PAIRS = 1000
#: Cα atoms, for which frames are compared.
CA = "name CA"

#: Minimum memory touched before a run of one tool, and before a run of many frames, bytes.
TOUCHED, TOUCHED_BY_MANY = 2**26, 2**29

#: Function that returns the numbers of some frames.
Numbers = Callable[[int], np.ndarray]


@dataclass(frozen=True)
class Case:
    """An analysis in each tool.

    `ours` and `theirs` create an analysis of a Universe and extract numbers from its results;
    `mdtraj` computes them from an MDTraj trajectory; `gromacs` and `cpptraj` run these programs on
    n frames. `other` lists tools with another definition. `goal` and `known` are in µs per frame.
    """

    ours: Callable[[Any], Any]
    of_ours: Callable[[Any], np.ndarray]
    theirs: Callable[[Any], Any] | None
    of_theirs: Callable[[Any], np.ndarray] | None
    mdtraj: Callable[[Any, Any], np.ndarray] | None
    goal: float
    known: Mapping[str, float]
    gromacs: Callable[[peers.Job, int], np.ndarray] | None = None
    cpptraj: Callable[[peers.Job, int], np.ndarray] | None = None
    other: tuple[str, ...] = ()
    data: str = "adk"
    #: Divisor of the number of frames for slow tools; by default 10 for MDAnalysis and MDTraj.
    fewer: Mapping[str, int] = field(default_factory=dict)
    tolerance: float = 1e-3
    #: Number of frames in the short run, if it differs from `FRAMES`.
    n: int | None = None
    #: True if an item is `PAIRS` pairs of frames rather than a frame.
    of_pairs: bool = False

    def frames(self, n: int) -> int:
        """Return the number of frames in a run of n items."""
        return round(math.sqrt(2 * PAIRS * n)) if self.of_pairs else n


def self_distance_array(positions: np.ndarray) -> np.ndarray:
    """Return all of MDAnalysis's distances within a group."""
    from MDAnalysis.lib import distances

    return distances.self_distance_array(positions)


def of_function(function: Callable[..., Any], *groups: Any) -> Any:
    """Create MDAnalysis's analysis from a function of groups."""
    from MDAnalysis.analysis.base import AnalysisFromFunction

    return AnalysisFromFunction(function, groups[0].universe.trajectory, *groups)


def bonds_per_frame(results: Any) -> np.ndarray:
    """Return the number of hydrogen bonds in each frame that has any."""
    return np.unique(results.hbonds[:, 0], return_counts=True)[1]


def class_of_mdanalysis(name: str) -> Any:
    """Find MDAnalysis's class by the name of an analysis in the catalogue, or by module.Class."""
    entry = catalogue().get(name)
    module, _, words = (entry["counterpart"] if entry else name).rpartition(".")
    return getattr(import_module(f"MDAnalysis.analysis.{module}"), words)


def _maker(
    find: Callable[[str], Any], name: str, *arguments: Any, **options: Any
) -> Callable[[Any], Any]:
    """Create an analysis of the class that `find` returns; see `ours`."""

    def make(universe: Any) -> Any:
        given = [value(universe) if callable(value) else value for value in arguments]
        return find(name)(*given, **options)

    return make


def ours(name: str, *arguments: Any, **options: Any) -> Callable[[Any], Any]:
    """Create an analysis by its name in the catalogue; `arguments` may be functions of a Universe.

    Classes that are not in the catalogue are named as module.Class.
    """
    return _maker(class_of, name, *arguments, **options)


def theirs(name: str, *arguments: Any, **options: Any) -> Callable[[Any], Any]:
    """Create MDAnalysis's counterpart of an analysis; arguments are those of `ours`."""
    return _maker(class_of_mdanalysis, name, *arguments, **options)


def group(selection: str) -> Callable[[Any], Any]:
    """Select atoms of a Universe."""
    return lambda universe: universe.select_atoms(selection)


def whole(universe: Any) -> Any:
    """The Universe itself."""
    return universe


#: Hydrogen bonds between protein and water, and water near the protein.
BONDS, TO_WATER = ("hbonds", whole), ["protein", WATER]
#: Atoms of `BONDS` by names, so that donors and hydrogens are paired by distance in each frame.
BY_NAMES = {"donors_sel": "name N* O*", "hydrogens_sel": "name H*", "acceptors_sel": "name O*"}
SHELL = f"{WATER} and around 3.5 protein"
SALT_BRIDGES = (
    whole,
    lambda u: (ACIDIC, BASIC),
    lambda u: (u.select_atoms(ACIDIC), u.select_atoms(BASIC)),
)
SALT_BRIDGE = {"method": "radius_cut", "radius": 4.5, "pbc": False}

CASES: dict[str, Case] = {
    # MDAnalysis does not superpose pairs of frames.
    "rmsd-matrix": Case(
        ours=ours("rmsd-matrix", whole, select=CA, superposition=True),
        of_ours=lambda results: results.dist_matrix[0],
        theirs=theirs("rmsd-matrix", whole, select=CA),
        of_theirs=lambda results: results.dist_matrix[0],
        mdtraj=peers.matrix_of_mdtraj,
        cpptraj=peers.matrix_of_cpptraj,
        other=(REFERENCE,),
        goal=180,
        known={REFERENCE: 13_200, MDTRAJ: 340, CPPTRAJ: 6400},
        fewer={MDTRAJ: 1, CPPTRAJ: 10},
        # A large tolerance, because MDTraj computes from centered positions in single precision.
        tolerance=5e-3,
        n=500,
        of_pairs=True,
    ),
    # All time origins are used: the time per frame grows with their number. GROMACS undoes jumps
    # across the cell first, and cpptraj uses a single origin.
    "msd": Case(
        ours=ours("msd", whole, select=WATER, fft=False),
        of_ours=lambda results: results.timeseries,
        theirs=theirs("msd", whole, select=WATER, fft=False),
        of_theirs=lambda results: results.timeseries,
        mdtraj=None,
        gromacs=peers.displacement_of_gromacs,
        cpptraj=peers.displacement_of_cpptraj,
        other=(GROMACS, CPPTRAJ),
        goal=1200,
        known={REFERENCE: 11_600, GROMACS: 14_000},
        data="water",
        fewer={REFERENCE: 1},
        n=30,
    ),
    "gyration": Case(
        ours=ours("gyration", group("protein")),
        of_ours=lambda results: results.rg,
        theirs=lambda u: of_function(lambda ag: ag.radius_of_gyration(), u.select_atoms("protein")),
        of_theirs=lambda results: results.timeseries,
        mdtraj=peers.gyration_of_mdtraj,
        gromacs=peers.gyration_of_gromacs,
        cpptraj=peers.gyration_of_cpptraj,
        goal=20,
        known={REFERENCE: 412, MDTRAJ: 153, CPPTRAJ: 92},
        tolerance=0.02,
        n=8000,
    ),
    "distances": Case(
        ours=ours("distances.DistanceMatrixSeries", group("name CA"), pbc=False),
        of_ours=lambda results: results.distances,
        theirs=lambda u: of_function(
            lambda ag: self_distance_array(ag.positions), u.select_atoms("name CA")
        ),
        of_theirs=lambda results: results.timeseries,
        mdtraj=peers.distances_of_mdtraj,
        gromacs=peers.distances_of_gromacs,
        goal=50,
        known={REFERENCE: 412, MDTRAJ: 86},
        # GROMACS takes long, because it writes the results as text.
        fewer={MDTRAJ: 1, GROMACS: 50},
    ),
    "contacts": Case(
        ours=ours("contacts", *SALT_BRIDGES, **SALT_BRIDGE),
        of_ours=lambda results: results.timeseries[:, 1],
        theirs=theirs("contacts", *SALT_BRIDGES, **SALT_BRIDGE),
        of_theirs=lambda results: results.timeseries[:, 1],
        mdtraj=None,
        cpptraj=peers.contacts_of_cpptraj,
        goal=18,
        known={REFERENCE: 166, CPPTRAJ: 54},
    ),
    "ramachandran": Case(
        ours=ours("ramachandran", group("protein")),
        of_ours=lambda results: results.angles,
        theirs=theirs("ramachandran", group("protein")),
        of_theirs=lambda results: results.angles,
        mdtraj=peers.phi_psi_of_mdtraj,
        gromacs=peers.phi_psi_of_gromacs,
        cpptraj=peers.phi_psi_of_cpptraj,
        goal=30,
        known={REFERENCE: 468, MDTRAJ: 41, CPPTRAJ: 210},
    ),
    "hbonds": Case(
        ours=ours(*BONDS),
        of_ours=lambda results: results.counts,
        theirs=theirs(*BONDS),
        of_theirs=bonds_per_frame,
        mdtraj=None,
        cpptraj=peers.bonds_of_cpptraj,
        # cpptraj misses one or two of about 90 bonds (docs/where-tools-disagree.md).
        other=(CPPTRAJ,),
        goal=80,
        known={REFERENCE: 5250, CPPTRAJ: 380},
    ),
    "hbonds-water": Case(
        ours=ours(*BONDS, between=TO_WATER),
        of_ours=lambda results: results.counts,
        theirs=theirs(*BONDS, between=TO_WATER),
        of_theirs=bonds_per_frame,
        mdtraj=None,
        cpptraj=peers.bonds_to_water_of_cpptraj,
        goal=900,
        known={REFERENCE: 225_000, CPPTRAJ: 95_500},
        data="water",
        # With 50 frames, paceline's selection of atoms takes ten times as long as finding the
        # bonds.
        n=500,
        fewer={REFERENCE: 100, CPPTRAJ: 20},
    ),
    "hbonds-selections": Case(
        ours=ours(*BONDS, between=TO_WATER, **BY_NAMES),
        of_ours=lambda results: results.counts,
        theirs=theirs(*BONDS, between=TO_WATER, **BY_NAMES),
        of_theirs=bonds_per_frame,
        mdtraj=None,
        goal=1300,
        known={REFERENCE: 224_000},
        data="water",
        n=500,
        fewer={REFERENCE: 100},
    ),
    "around": Case(
        ours=ours("selection", lambda u: u.select_atoms(SHELL, updating=True)),
        of_ours=lambda results: results.counts,
        theirs=lambda u: of_function(len, u.select_atoms(SHELL, updating=True)),
        of_theirs=lambda results: results.timeseries,
        mdtraj=None,
        goal=700,
        known={REFERENCE: 57_200},
        data="water",
        n=500,
        fewer={REFERENCE: 100},
    ),
    "dssp": Case(
        ours=ours("dssp", whole),
        of_ours=lambda results: results.dssp_ndarray,
        theirs=theirs("dssp", whole),
        of_theirs=lambda results: results.dssp_ndarray,
        mdtraj=None,
        cpptraj=peers.structure_of_cpptraj,
        other=(CPPTRAJ,),
        goal=60,
        known={REFERENCE: 3180, CPPTRAJ: 154},
        fewer={REFERENCE: 100},
    ),
    "sasa-960": Case(
        ours=ours("sasa", group("protein"), n_points=960),
        of_ours=lambda results: results.total,
        theirs=None,
        of_theirs=None,
        mdtraj=peers.sasa_of_mdtraj(960),
        gromacs=peers.sasa_of_gromacs(960),
        cpptraj=peers.sasa_of_cpptraj,
        other=(CPPTRAJ,),
        goal=9000,
        known={MDTRAJ: 195_000, CPPTRAJ: 31_200},
        fewer={MDTRAJ: 500, OURS: 20, GROMACS: 200, CPPTRAJ: 50},
        tolerance=0.05,
    ),
    "sasa-100": Case(
        ours=ours("sasa", group("protein"), n_points=100),
        of_ours=lambda results: results.total,
        theirs=None,
        of_theirs=None,
        mdtraj=peers.sasa_of_mdtraj(100),
        gromacs=peers.sasa_of_gromacs(100),
        cpptraj=peers.sasa_of_cpptraj,
        other=(CPPTRAJ,),
        goal=1800,
        known={MDTRAJ: 32_000, GROMACS: 60_000, CPPTRAJ: 31_200},
        fewer={MDTRAJ: 100, OURS: 5, GROMACS: 50, CPPTRAJ: 50},
        tolerance=0.05,
    ),
    "average": Case(
        ours=ours("average", whole),
        of_ours=lambda results: results.positions,
        theirs=theirs("average", whole),
        of_theirs=lambda results: results.positions,
        mdtraj=None,
        cpptraj=peers.average_of_cpptraj,
        goal=25,
        known={REFERENCE: 368},
        n=8000,
    ),
    "covariance": Case(
        ours=ours("pca", whole, select="name CA"),
        of_ours=lambda results: results.variance[:3],
        theirs=theirs("pca", whole, select="name CA"),
        of_theirs=lambda results: results.variance[:3],
        mdtraj=None,
        gromacs=peers.covariance_of_gromacs,
        cpptraj=peers.covariance_of_cpptraj,
        goal=80,
        known={REFERENCE: 507, CPPTRAJ: 164},
    ),
    "density": Case(
        ours=ours("density", group(WATER), delta=1.0, **GRID),
        of_ours=lambda results: results.density.grid,
        theirs=theirs("density", group(WATER), delta=1.0, **GRID),
        of_theirs=lambda results: results.density.grid,
        mdtraj=None,
        cpptraj=peers.density_of_cpptraj,
        goal=280,
        known={REFERENCE: 5100, CPPTRAJ: 780},
        data="water",
    ),
    "axes": Case(
        ours=ours("lineardensity", group("all")),
        of_ours=lambda results: results.z.mass_density,
        theirs=theirs("lineardensity", group("all")),
        of_theirs=lambda results: results.z.mass_density,
        mdtraj=None,
        gromacs=peers.axis_of_gromacs,
        cpptraj=peers.axis_of_cpptraj,
        other=(GROMACS, CPPTRAJ),
        goal=450,
        known={REFERENCE: 8270, GROMACS: 2900},
        data="water",
        # A large tolerance, because MDAnalysis uses the product of the lengths as the volume of
        # this triclinic cell.
        tolerance=1.0,
    ),
}


def paceline(data: Dataset, case: str) -> Run:
    """Paceline on one thread."""
    import paceline

    universe = paceline.Universe(data.topology, data.trajectory("xtc"))

    def run(n: int) -> np.ndarray:
        stop = CASES[case].frames(n)
        one = CASES[case].ours(universe).run(stop=stop, backend="serial")
        return CASES[case].of_ours(one.results)

    return run


def paceline_base(data: Dataset, case: str) -> Run:
    """Paceline on one thread, with instructions that every processor supports."""
    from paceline import _core

    _core.allow_wide(False)
    return paceline(data, case)


def mdanalysis(data: Dataset, case: str) -> Run:
    """MDAnalysis, serial."""
    import MDAnalysis

    warnings.simplefilter("ignore")
    universe = MDAnalysis.Universe(data.topology, data.trajectory("xtc"))

    make, numbers = CASES[case].theirs, CASES[case].of_theirs
    assert make is not None
    assert numbers is not None

    def run(n: int) -> np.ndarray:
        return numbers(make(universe).run(stop=CASES[case].frames(n)).results)

    return run


def mdtraj(data: Dataset, case: str) -> Run:
    """MDTraj, frames in memory."""
    import MDAnalysis
    import mdtraj

    compute = CASES[case].mdtraj
    assert compute is not None
    top = mdtraj.load_topology(str(data.topology if data.name == "adk" else data.first_frame))
    with mdtraj.open(str(data.trajectory("xtc"))) as file:
        trajectory = file.read_as_traj(top, n_frames=2 * FRAMES[data.name])
    masses = MDAnalysis.Universe(data.topology).atoms.masses

    def run(n: int) -> np.ndarray:
        return compute(trajectory[: CASES[case].frames(n)], masses)

    return run


def gromacs(data: Dataset, case: str) -> Run:
    """``gmx``, which reads the first frames of the file."""
    programs.find("gmx")
    compute = CASES[case].gromacs
    assert compute is not None
    job = peers.Job(data)
    return lambda n: compute(job, CASES[case].frames(n))


def cpptraj(data: Dataset, case: str) -> Run:
    """``cpptraj``, which reads the first frames of the file."""
    programs.find("cpptraj")
    compute = CASES[case].cpptraj
    assert compute is not None
    job = peers.Job(data)
    return lambda n: compute(job, CASES[case].frames(n))


TOOLS: dict[str, Callable[[Dataset, str], Run]] = {
    REFERENCE: mdanalysis,
    OURS: paceline,
    OURS_BASE: paceline_base,
    MDTRAJ: mdtraj,
    GROMACS: gromacs,
    CPPTRAJ: cpptraj,
}
#: Tools that start a process for each run, which takes as long as some hundred frames.
PROGRAMS = (GROMACS, CPPTRAJ)


def main() -> None:
    asked = options(__doc__, list(CASES))
    datasets = {data.name: data for data in asked.datasets()}
    asked.print_head()
    table = Table("analyses: slope between n and 2n frames", SLOPES)
    skipped: list[str] = []
    try:
        for case in CASES:
            if asked.wants(case):
                skipped += _measure(case, datasets[CASES[case].data], asked, table)
        together = _together(asked, datasets["adk"])
    finally:
        asked.print_tables([table], skipped)
    asked.print_tables([together])


def _measure(case: str, data: Dataset, asked: Options, table: Table) -> list[str]:
    """Add the rows of one analysis; return what could not be measured."""
    one = CASES[case]
    n = max(min(one.n or FRAMES[data.name], data.n_frames // 2), 1)
    usual = dict.fromkeys((OURS, OURS_BASE, *PROGRAMS), 1)
    fewer = {}
    for tool in TOOLS:
        times = one.fewer.get(OURS if tool == OURS_BASE else tool, usual.get(tool, 10))
        fewer[tool] = max(n // times, 1)
    tools = {name: (make, data, case) for name, make in TOOLS.items() if _has(one, name)}
    with subjects(tools) as (ready, skipped):
        # Twice the size of the result: blocks of results exist beside the full result.
        touched = max(2 * (_agree(case, ready) // COMPARED) * one.frames(2 * n), TOUCHED)
        report(f"{case}: slopes")
        effort = asked.effort
        taken = slopes(ready, n, effort.repeats, effort.measurement, fewer, touched)
        verdict = {OURS: _verdict(one, taken)} if asked.effort.judged else {}
        add_slopes(table, case, ready, taken, verdict)
    return [f"{case}: {name}: {why}" for name, why in skipped.items()]


def _has(case: Case, tool: str) -> bool:
    others = {REFERENCE: case.theirs, MDTRAJ: case.mdtraj}
    others |= {GROMACS: case.gromacs, CPPTRAJ: case.cpptraj}
    return others.get(tool, case.ours) is not None


def _agree(case: str, ready: list[Subject]) -> int:
    """Raise if a tool finds other numbers than the first; return the largest series, bytes."""
    expected: Any = None
    largest = 0
    for subject in ready:
        report(f"{case}: {subject.name}")
        found = np.asarray(subject.run(COMPARED).values, dtype=float)
        if len(found) == COMPARED:
            largest = max(largest, found.nbytes)
        if subject.name in CASES[case].other:
            continue
        expected = found if expected is None else expected
        if found.shape != expected.shape:
            raise RuntimeError(
                f"{case}: {subject.name}: {found.shape} numbers, expected {expected.shape}"
            )
        worst = np.nanmax(np.abs(found - expected))
        if not worst <= CASES[case].tolerance * np.nanmax(np.abs(expected)):
            raise RuntimeError(f"{case}: {subject.name}: {worst} from {ready[0].name}'s")
    return largest


def _verdict(case: Case, taken: Mapping[str, Slope]) -> str:
    """Compare the CPU-time ratio to the best peer with the ratio of the goal."""
    known = {tool: np.median(taken[tool].cpu_per_item) for tool in case.known if tool in taken}
    if not known:
        return ""
    best = min(known, key=lambda tool: known[tool])
    ratios = taken[OURS].cpu_per_item / taken[best].cpu_per_item
    found, goal = Spread.of(ratios), case.goal / min(case.known[tool] for tool in known)
    if found.low <= 0:
        return f"not measured: the time varies by more than it is; goal {goal:.3f} of {best}"
    met = "met" if found.median <= goal else "missed"
    return f"{found.median:.3f} ({found.low:.3f}–{found.high:.3f}) of {best}, {goal:.3f}: {met}"


def _together(asked: Options, data: Dataset) -> Table:
    """Measure all analyses of the protein in one pass, and with two workers."""
    cases = [
        case
        for case, one in CASES.items()
        if one.data == "adk" and not one.of_pairs and asked.wants(case)
    ]
    table = Table("all analyses of the protein", ("what", "s", "min", "max", "ratio", "target"))
    if not cases:
        return table
    import time

    import paceline
    from benchmarks.resident import touch

    universe = paceline.Universe(data.topology, data.trajectory("xtc"))
    # Many frames, so that work done once does not count; but 1,000 surface areas take 15 s, and
    # 20,000 frames of all distances need 3.6 GB.
    many = 1 if any(case.startswith(("sasa", "distances")) for case in cases) else 20
    n = max(min(many * FRAMES["adk"], data.n_frames), 1)

    def seconds(names: list[str], n_workers: int) -> float:
        analyses = [CASES[case].ours(universe) for case in names]
        touch(TOUCHED_BY_MANY)
        begun = time.perf_counter()
        paceline.run(analyses, stop=n, backend="threads", n_workers=n_workers)
        return time.perf_counter() - begun

    class Nothing(paceline.AnalysisBase):
        """Decodes all atoms and computes nothing."""

        def prepare(self) -> Any:
            return _Nothing()

        def finish(self, value: Any) -> None:
            pass

    rows: dict[str, list[float]] = {"decoding": [], "each alone, less decoding": [], "one": []}
    rows |= {"two workers": []}
    for _ in range(asked.effort.repeats):
        begun = time.perf_counter()
        Nothing(universe).run(stop=n, backend="threads", n_workers=1)
        decoding = time.perf_counter() - begun
        rows["decoding"].append(decoding)
        alone = [seconds([case], 1) for case in cases]
        rows["each alone, less decoding"].append(sum(alone) - len(cases) * decoding)
        rows["one"].append(seconds(cases, 1))
        rows["two workers"].append(seconds(cases, 2))
    one = np.array(rows["one"])
    parts = np.array(rows["decoding"]) + np.array(rows["each alone, less decoding"])
    ratios = {
        "one": (one / parts, f"at most 1.1 of decoding and kernels, {len(cases)} analyses"),
        "two workers": (one / np.array(rows["two workers"]), "at least 1.85 times one"),
    }
    names = {"one": "all in one pass"}
    for name, values in rows.items():
        found = Spread.of(values)
        ratio, target = ratios.get(name, (None, ""))
        table.rows.append(
            (
                names.get(name, name),
                *(f"{value:.3f}" for value in (found.median, found.low, found.high)),
                f"{np.median(ratio):.2f}" if ratio is not None else "-",
                target,
            )
        )
    return table


class _Nothing:
    """Worker part that computes nothing."""

    def compute(self, block: Any) -> np.ndarray:
        return np.zeros(len(block))


if __name__ == "__main__":
    main()
