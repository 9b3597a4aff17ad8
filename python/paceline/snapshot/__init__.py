"""Write atoms that are distributed over MPI ranks into one ordered file, and read them back."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.snapshot.reader import Reader
    from paceline.snapshot.writer import Writer

__all__ = ["Reader", "Writer"]

_HOMES = {"Reader": "paceline.snapshot.reader", "Writer": "paceline.snapshot.writer"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'paceline.snapshot' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
