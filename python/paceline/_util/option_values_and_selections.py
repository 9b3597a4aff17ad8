"""Values of options, importable without the modules that implement them."""

from typing import Literal, get_args

BackendName = Literal["threads", "processes", "serial", "dask", "mpi"]
#: Names of backends; the first is the default.
BACKENDS: tuple[BackendName, ...] = get_args(BackendName)
#: Names of backends that MDAnalysis also uses for its own backends.
ALSO_OF_MDANALYSIS: tuple[BackendName, ...] = ("serial", "dask")
#: Backends that can have several workers.
PARALLEL: tuple[BackendName, ...] = tuple(name for name in BACKENDS if name != "serial")
#: Backends whose runs `paceline.advise` forecasts.
FORECAST: tuple[BackendName, ...] = ("threads", "processes", "serial")

Schedule = Literal["dynamic", "static"]
#: Ways to assign blocks of frames to workers: "dynamic" assigns a block to each idle worker,
#: "static" assigns equal shares at the start.
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)

#: Ways to show progress; the first is the default.
PROGRESS = ("bar", "json", "none")
#: Treatments of a frame that cannot be read: raise an error, or skip the frame.
ON_ERROR = ("raise", "skip")
#: Residue names of Martini's water (plain, antifreeze, polarizable). A residue represents four
#: molecules.
MARTINI_WATERS = "W WF PW"
#: Beads of Martini's water.
WATER_BEADS = f"resname {MARTINI_WATERS} and name W WF"
#: Headgroup bead of Martini's lipids: the phosphate, or, in lipids without phosphate, the first
#: bead between head and tails. Cholesterol is excluded.
BEADS_OF_LIPIDS = (
    "name PO4 CP GL1 AM1 OH1 and (same residue as global name GL2 AM2) "
    "and not (name GL1 AM1 OH1 and same residue as global name PO4 PO41 CP)"
)
#: Selection of water oxygens in GROMACS, CHARMM, Amber, OpenMM and the PDB, or of water beads.
WATER_OXYGENS = f"name OW OH2 or (water and name O) or ({WATER_BEADS})"
#: Selection of lipid headgroups; in Amber, headgroups are separate residues.
LIPIDS = (
    "(resname ??PC ??PE ??PG ??PS ??PA and name P P8 P31 PO4) "
    f"or (resname PC PE PS PGR and name P31) or ({BEADS_OF_LIPIDS})"
)
#: Backbone of Martini's proteins.
BEADS_OF_BACKBONE = "protein and name BB"
#: Bead selections: every Martini system matches at least one. BB1 is a bead of nucleic acids.
BEADS = (BEADS_OF_BACKBONE, BEADS_OF_LIPIDS, WATER_BEADS, "nucleic and name BB1")
#: Names of the beads in `BEADS`.
NAMES_OF_BEADS = frozenset(["BB", "PO4", "CP", "GL1", "AM1", "OH1", "W", "WF", "BB1"])
#: Default selections that suit any system. `TRACE` selects one atom of each residue of proteins and
#: nucleic acids. "Other" is the GROMACS group of whole molecules that are not biopolymers, water or
#: ions.
TRACE = ("protein and name CA", "nucleic and name P", "protein and name BB", "Other")
SOLUTE = ("protein", "nucleic", "Other")
