"""COMM_WORLD for a script that the first rank alone runs: it waits for no other rank."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mpi4py import MPI

from paceline.errors import UnsupportedError

#: Members that a rank answers by itself, and Abort, which ends all ranks.
_ALONE = (
    *("Abort", "Get_attr", "Get_errhandler", "Get_group", "Get_info", "Get_name", "Get_rank"),
    *("Get_size", "Get_topology", "Is_inter", "Is_intra", "Is_revoked", "Set_errhandler"),
    *("group", "info", "is_inter", "is_intra", "is_topo", "name", "rank", "size", "topology"),
)
#: Members of the class, not of a communicator, and its handle, which is null.
_OTHERS = (
    *("Attach_buffer", "Compare", "Create_errhandler", "Create_from_group", "Create_keyval"),
    *("Detach_buffer", "Flush_buffer", "Free_keyval", "Get_parent", "Iflush_buffer", "Join"),
    *("f2py", "fromhandle", "fromint", "handle", "py2f", "toint"),
)


class LoneWorld(MPI.Intracomm):
    """All ranks, as one of them sees them that runs a script alone.

    Its handle is the null communicator: what takes it by another way, as a window or a file does,
    is refused by MPI.
    """

    def __new__(cls, comm: MPI.Intracomm) -> "LoneWorld":
        """Keep the handle null."""
        made = super().__new__(cls)
        made._comm = comm  # type: ignore[attr-defined]
        return made

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__


def _forwarded(name: str) -> property:
    return property(lambda self: getattr(self._comm, name))


def _refused(name: str) -> Callable[..., object]:
    def refuse(self: Any, *_: Any, **__: Any) -> Any:
        raise UnsupportedError(
            f"MPI.COMM_WORLD.{name} would wait for ever: the first of {self.size} ranks runs this "
            "script alone; have each run it: python -m paceline --every-rank script.py"
        )

    return refuse


for _name in dir(MPI.Intracomm):
    if _name in _ALONE:
        setattr(LoneWorld, _name, _forwarded(_name))
    elif not _name.startswith("_") and _name not in _OTHERS:
        setattr(LoneWorld, _name, _refused(_name))


@contextmanager
def lone_world() -> Iterator[None]:
    """Have the script, and functions on all ranks, find such a COMM_WORLD."""
    world = MPI.COMM_WORLD
    if world.Get_size() > 1:
        MPI.COMM_WORLD = LoneWorld(world)  # type: ignore[misc]
    try:
        yield
    finally:
        MPI.COMM_WORLD = world  # type: ignore[misc]
