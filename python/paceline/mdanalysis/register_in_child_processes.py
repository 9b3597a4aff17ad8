"""Registration in processes that a script starts: multiprocessing pools, joblib, Dask workers.

`register` sets environment variables, which these processes inherit: the registration's options,
and an entry in ``PYTHONPATH`` for a folder with a start-up hook (`start_up/sitecustomize.py`). Each
process records its actions in a separate file in the registration's folder. Dask workers that are
already running, on any machine, get a plug-in when a client connects to them.
"""

import json
import os
import sys
import weakref
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

from paceline._util.leftovers import ScratchFolder

#: Environment variable with the options of a registration, as JSON.
VARIABLE = "PACELINE_SCRIPT"
#: Folder that contains the start-up hook `sitecustomize.py`.
HOOK = Path(__file__).parent / "start_up"
#: Name of the module that Dask clients load at their start.
_PRELOAD = "paceline.mdanalysis.dask_worker_plugin"
#: Dask setting that contains the name of the module in `_PRELOAD`.
_DASK_SETTING = "distributed.client.preload"
_DASK_VARIABLE = "DASK_DISTRIBUTED__CLIENT__PRELOAD"


@dataclass(frozen=True)
class ScriptOptions:
    """Options of a registration, for the processes that its script starts."""

    native: bool
    strict: bool
    version: str
    #: Folder of the record files, on the script's machine; "" if none can be written.
    folder: str
    #: Process number (PID) of the script.
    pid: int

    @classmethod
    def from_environment(cls) -> Self | None:
        """Return the options that this process inherited; None if it inherited none."""
        try:
            return cls(**json.loads(os.environ[VARIABLE]))
        except (KeyError, ValueError, TypeError):
            return None


@dataclass
class ProcessRecord:
    """Trajectories and runs in a process that a script started.

    Attributes
    ----------
    pid : int
        Number of the process.
    opened, written, left : list of str
        Trajectories, as in `Registration`.
    runs : list of str
        Runs of analyses: name of the class and method of computation.
    """

    pid: int
    opened: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)


class ScriptProcesses:
    """Records of the processes that a script started, in a temporary folder."""

    def __init__(self, options: ScriptOptions):
        folder = None
        with suppress(OSError):  # no temporary folder is writable
            folder = ScratchFolder("script")
        self.options = replace(options, folder=folder.path if folder else "")
        #: Removes the folder, at the latest when the script ends.
        self.close = weakref.finalize(self, _remove, folder, options.pid)


def _remove(folder: ScratchFolder | None, pid: int) -> None:
    if folder is not None and os.getpid() == pid:  # not in a fork of the script's process
        folder.remove()


def set_environment(options: ScriptOptions | None) -> None:
    """Set the environment of processes that start from now on; None removes the registration."""
    paths = os.environ.get("PYTHONPATH")
    others = [path for path in paths.split(os.pathsep) if path != str(HOOK)] if paths else []
    preload = json.dumps([_PRELOAD])
    if options is not None:
        os.environ[VARIABLE] = json.dumps(asdict(options))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(HOOK), *others])
        os.environ.setdefault(_DASK_VARIABLE, preload)
    else:
        os.environ.pop(VARIABLE, None)
        if others:
            os.environ["PYTHONPATH"] = os.pathsep.join(others)
        else:
            os.environ.pop("PYTHONPATH", None)
        if os.environ.get(_DASK_VARIABLE) == preload:
            del os.environ[_DASK_VARIABLE]
    _set_in_dask(add=options is not None)


def _set_in_dask(*, add: bool) -> None:
    """Add `_PRELOAD` to Dask's client setting, or remove it, if Dask is already imported."""
    if "dask" not in sys.modules:
        return
    import dask

    names = [name for name in dask.config.get(_DASK_SETTING, None) or [] if name != _PRELOAD]
    dask.config.set({_DASK_SETTING: names + [_PRELOAD] * add})


def record(folder: str, kind: str, text: str) -> None:
    """Append an event to this process's file, if there is a folder."""
    if not folder:
        return
    file = Path(folder) / str(os.getpid())
    # The folder is missing here if the script runs on another machine or has ended: the event is
    # then not recorded.
    with suppress(OSError), open(file, "a", encoding="utf-8") as events:
        events.write(json.dumps([kind, text]) + "\n")


def read_records(folder: str) -> list[ProcessRecord]:
    """Read the records of the script's processes, sorted by process number."""
    records = []
    for path in sorted(Path(folder).glob("[0-9]*"), key=_pid_of) if folder else ():
        found = ProcessRecord(_pid_of(path))
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # the process was killed while it wrote
                kind, text = json.loads(line)
                vars(found)[kind].append(text)
        records.append(found)
    return records


def _pid_of(path: Path) -> int:
    return int(path.name)
