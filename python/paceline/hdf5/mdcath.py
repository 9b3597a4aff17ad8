"""Files of mdCATH: several trajectories of one protein domain, and its topology as PDB text.

The layout is that of "mdcath-only-protein-v1.0" (Mirarchi et al. 2024,
https://doi.org/10.1038/s41597-024-04140-z): a group for the domain, in it a group for each
temperature, and in these a group for each replica, with the positions in `coords`. The text
`pdbProteinAtoms` lists the atoms of the positions.
"""

from typing import NamedTuple

from paceline.errors import MissingDataError, UnsupportedError
from paceline.hdf5.file import File, Group, text_of
from paceline.hdf5.sandbox import run_in_sandbox

#: Time between frames of mdCATH's trajectories, ps.
INTERVAL = 1000.0
#: Dataset of positions in the group of a replica; dataset of the PDB text in the group of a domain.
POSITIONS, ATOMS = "coords", "pdbProteinAtoms"
#: Separator between the file and the dataset in the name of a topology.
SEPARATOR = "#"


class DomainTrajectory(NamedTuple):
    """One trajectory of a file, and the names of its datasets."""

    domain: str
    temperature: str
    replica: str

    @property
    def positions(self) -> str:
        """Path of the dataset with the trajectory's positions."""
        return f"{self.domain}/{self.temperature}/{self.replica}/{POSITIONS}"

    @property
    def atoms(self) -> str:
        """Path of the dataset with the domain's topology, a PDB text."""
        return f"{self.domain}/{ATOMS}"


def list_trajectories(path: str) -> list[DomainTrajectory]:
    """List the trajectories of a file by domain, temperature and replica.

    Raises `UnsupportedError` for a file of another layout, and `DamagedFileError` for a damaged
    file.
    """
    found: list[DomainTrajectory] = run_in_sandbox(_list, path)
    return found


def _list(path: str) -> list[DomainTrajectory]:
    with File(path) as file:
        layout = file.root.attrs.get("layout")
        if not f"{layout}".startswith("mdcath"):
            raise UnsupportedError(
                f"{path}: expected a file of mdCATH, whose attribute layout begins with mdcath, "
                f"found {'none' if layout is None else layout}"
            )
        return [
            DomainTrajectory(domain.name.strip("/"), temperature, replica)
            for domain in file.root.children()
            if isinstance(domain, Group)
            for temperature in sorted(filter(str.isdigit, domain.names()), key=int)
            for replica in _replicas(domain, temperature)
        ]


def _replicas(domain: Group, temperature: str) -> list[str]:
    """List the replicas with positions at one temperature."""
    group = domain.group(temperature)
    names = [] if group is None else sorted(filter(str.isdigit, group.names()), key=int)
    return [name for name in names if group is not None and group.array(f"{name}/{POSITIONS}")]


def read_atoms(name: str) -> str:
    """Read the topology, a PDB text, named for example "file.h5#12asA00/pdbProteinAtoms".

    Raises `MissingDataError` if the file lacks the dataset, and `DamagedFileError` if the file is
    damaged.
    """
    path, _, dataset = name.rpartition(SEPARATOR)
    found: str = run_in_sandbox(_read_text, path, dataset=dataset)
    return found


def _read_text(path: str, dataset: str) -> str:
    with File(path) as file:
        array = file.root.array(dataset)
        if array is None:
            raise MissingDataError(f"{path}: expected the topology in {dataset}, found none")
        value = array.read()
        if not isinstance(value, bytes | str):
            raise array.damaged("a text", f"{type(value).__name__}")
        return text_of(value)
