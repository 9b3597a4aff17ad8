"""Values of options, importable without the modules that implement them."""

from typing import Literal, get_args

BackendName = Literal["threads", "processes", "serial", "dask", "mpi"]
#: Names of backends; the first is the default.
BACKENDS: tuple[BackendName, ...] = get_args(BackendName)
#: Names that MDAnalysis also has for its own backends.
ALSO_OF_MDANALYSIS: tuple[BackendName, ...] = ("serial", "dask")
#: Backends that can have several workers.
PARALLEL: tuple[BackendName, ...] = tuple(name for name in BACKENDS if name != "serial")
#: Backends whose runs `paceline.advise` forecasts.
FORECAST: tuple[BackendName, ...] = ("threads", "processes", "serial")

Schedule = Literal["dynamic", "static"]
#: Ways to assign blocks to workers: dynamically to idle workers, or equal shares from the
#: beginning.
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)

#: Treatments of a frame that cannot be read: raise an error, or leave the frame out.
ON_ERROR = ("raise", "skip")
#: Names of Martini's residues of water, each of four molecules: plain, antifreeze, polarizable.
MARTINI_WATERS = "W WF PW"
#: Beads of Martini's water.
WATER_BEADS = f"resname {MARTINI_WATERS} and name W WF"
#: Headgroups of Martini's lipids: the phosphate, or of lipids without one the first bead between
#: head and tails. Cholesterol is not among them.
BEADS_OF_LIPIDS = (
    "name PO4 CP GL1 AM1 OH1 and (same residue as global name GL2 AM2) "
    "and not (name GL1 AM1 OH1 and same residue as global name PO4 PO41 CP)"
)
#: Backbone of Martini's proteins.
BEADS_OF_BACKBONE = "protein and name BB"
#: Beads of which each system of Martini has one; BB1 is of nucleic acids.
BEADS = (BEADS_OF_BACKBONE, BEADS_OF_LIPIDS, WATER_BEADS, "nucleic and name BB1")
#: Names of these beads.
NAMES_OF_BEADS = frozenset(["BB", "PO4", "CP", "GL1", "AM1", "OH1", "W", "WF", "BB1"])
#: Default selections of a system of any kind: one atom of each residue, and whole molecules.
#: "Other" is GROMACS's group of what is neither a biopolymer, nor water, nor an ion.
TRACE = ("protein and name CA", "nucleic and name P", "protein and name BB", "Other")
SOLUTE = ("protein", "nucleic", "Other")
