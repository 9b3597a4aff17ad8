"""MPI-IO: only h5py that was built with MPI has it."""

from typing import Any

import h5py

from paceline.errors import UnsupportedError


def refuse_without_mpi() -> None:
    """Raise where h5py was built without MPI.

    Raises
    ------
    UnsupportedError
        It was, as every one is that pip installs.
    """
    if not h5py.get_config().mpi:
        raise UnsupportedError(
            'driver="mpio" needs an h5py that was built with MPI, and this one was not; without '
            "driver= workers read the file in parallel with any h5py"
        )


def mpi_options(comm: Any) -> dict[str, Any]:
    """How a file is opened through MPI-IO.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm or None
        Ranks that open it together; None for one that reads when it will.

    Returns
    -------
    dict
        Options for `File`.
    """
    from mpi4py import MPI

    return {"driver": "mpio", "comm": MPI.COMM_SELF if comm is None else comm}
