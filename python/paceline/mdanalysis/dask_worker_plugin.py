"""Plug-in that registers paceline in Dask workers; Dask clients load this module at start."""

from distributed import Client, Worker, WorkerPlugin

from paceline.errors import warn
from paceline.mdanalysis.register_in_child_processes import ScriptOptions
from paceline.mdanalysis.registration import register_here


class RegisterPaceline(WorkerPlugin):
    """Registers paceline in a worker process, possibly on another machine."""

    name = "paceline"
    idempotent = True

    def __init__(self, options: ScriptOptions):
        self._options = options

    def setup(self, worker: Worker) -> None:
        """Register paceline before the worker's next task."""
        register_here(self._options)


async def dask_setup(client: Client) -> None:
    """Send the plug-in to a client's workers, including workers that join later."""
    options = ScriptOptions.from_environment()
    if options is None:
        return
    try:
        await client.register_plugin(RegisterPaceline(options))
    except Exception as error:  # workers raise errors of any kind, for example on import
        warn(
            "paceline could not be registered with Dask's workers, which use MDAnalysis's readers: "
            f"{error}"
        )
