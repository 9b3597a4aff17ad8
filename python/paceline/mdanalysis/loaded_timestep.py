"""Timestep of a trajectory with only some atoms loaded."""

import pickle
from typing import Any

import numpy as np
from MDAnalysis.coordinates.timestep import Timestep

from paceline.contract.loaded_atoms import LoadedAtoms, LoadedValues
from paceline.contract.system_interface import fields_of, values_of

#: Names of MDAnalysis's arrays for the fields.
_ARRAYS = {"positions": "_pos", "velocities": "_velocities", "forces": "_forces"}


class LoadedTimestep(Timestep):
    """Timestep whose arrays raise an error when atoms that are not loaded are used."""

    def put(self, field: str, values: Any, loaded: LoadedAtoms) -> None:
        """Set the values of loaded atoms; the values of all other atoms become NaN."""
        setattr(self, f"has_{field}", True)
        array = np.ndarray.view(values_of(self, field), np.ndarray)
        # Fill with NaN: a new array contains zeros, and a script may have set values of all atoms.
        if not np.isnan(array[loaded.first_other, 0]):
            array[:] = np.nan
            getattr(Timestep, _ARRAYS[field]).__set__(self, LoadedValues.of(array, loaded))
        array[loaded.rows] = values

    def copy(self) -> "LoadedTimestep":
        """Copy the frame, with arrays that raise the same errors."""
        copied: LoadedTimestep = pickle.loads(pickle.dumps(self))
        return copied

    def copy_slice(self, sel: Any) -> Timestep:
        """Copy some atoms; see `MDAnalysis.coordinates.timestep.Timestep.copy_slice`."""
        # MDAnalysis's own method would replace the error by a `TypeError` without its reason.
        for field in fields_of(self):
            if isinstance(some := values_of(self, field)[sel], LoadedValues):
                some.refuse()
        return super().copy_slice(sel)

    # MDAnalysis's writers of NetCDF and TRZ copy these arrays. A copy raises no error: raise it.

    @property
    def _pos(self) -> np.ndarray:
        return self.positions.refuse() if _shows_part(self) else self.positions

    @property
    def _x(self) -> np.ndarray:
        return self._pos[:, 0]


def _shows_part(ts: Timestep) -> bool:
    """Return true if a frame has some, but not all, of its atoms loaded."""
    return isinstance(ts.positions, LoadedValues)
