"""Barrier at which workers of a test wait for one another, so that no worker does all the work."""

import os
import threading
import time
from pathlib import Path


def meet(folder: Path | str, n_workers: int = 2) -> None:
    """Wait until this number of threads, of any processes, have registered in a folder."""
    os.makedirs(folder, exist_ok=True)
    Path(folder, f"{os.getpid()}-{threading.get_ident()}").touch()
    while len(os.listdir(folder)) < n_workers:
        time.sleep(0.005)
