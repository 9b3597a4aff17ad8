"""COMM_WORLD for a script that only the first rank runs: it never waits for another rank."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mpi4py import MPI

from paceline.errors import UnsupportedError

#: Members of COMM_WORLD that need no other rank, and Abort, which ends all ranks.
_ALONE = (
    *("Abort", "Get_attr", "Get_errhandler", "Get_group", "Get_info", "Get_name", "Get_rank"),
    *("Get_size", "Get_topology", "Is_inter", "Is_intra", "Is_revoked", "Set_errhandler"),
    *("group", "info", "is_inter", "is_intra", "is_topo", "name", "rank", "size", "topology"),
)
#: Members that belong to the class and not to a communicator, and the handle, which is null.
_OTHERS = (
    *("Attach_buffer", "Compare", "Create_errhandler", "Create_from_group", "Create_keyval"),
    *("Detach_buffer", "Flush_buffer", "Free_keyval", "Get_parent", "Iflush_buffer", "Join"),
    *("f2py", "fromhandle", "fromint", "handle", "py2f", "toint"),
)


class LoneWorld(MPI.Intracomm):
    """COMM_WORLD as a script on one rank uses it.

    Its handle is the null communicator. MPI therefore refuses every other use of it, for example
    to create a window or to open a file.
    """

    def __new__(cls, comm: MPI.Intracomm) -> "LoneWorld":
        """Create the object with a null handle."""
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


def _forward(name: str) -> property:
    return property(lambda self: getattr(self._comm, name))


def _refuse_call(name: str) -> Callable[..., object]:
    def refuse(self: Any, *_: Any, **__: Any) -> Any:
        raise UnsupportedError(
            f"MPI.COMM_WORLD.{name} would wait for ever: only the first of {self.size} ranks runs "
            "this "
            "script; run it on every rank: python -m paceline --every-rank script.py"
        )

    return refuse


for _name in dir(MPI.Intracomm):
    if _name in _ALONE:
        setattr(LoneWorld, _name, _forward(_name))
    elif not _name.startswith("_") and _name not in _OTHERS:
        setattr(LoneWorld, _name, _refuse_call(_name))


@contextmanager
def lone_world() -> Iterator[None]:
    """Replace MPI.COMM_WORLD by a `LoneWorld` while the script and its functions run."""
    world = MPI.COMM_WORLD
    if world.Get_size() > 1:
        MPI.COMM_WORLD = LoneWorld(world)  # type: ignore[misc]
    try:
        yield
    finally:
        MPI.COMM_WORLD = world  # type: ignore[misc]
