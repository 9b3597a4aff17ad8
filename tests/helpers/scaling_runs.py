"""Simulated runs of a scaling measurement."""

import json

from paceline.cli import bench
from paceline.performance.scaling_benchmark import quantities
from paceline.timing import BlockTiming, Timings

MS = 10**6


def block(number, worker, start, end, **parts):
    """Return a block of 16 frames; times are in ms."""
    named = dict.fromkeys(("wait", "open", "read", "decode", "transform", "compute", "comm"), 0)
    named |= {name: value * MS for name, value in parts.items()}
    first = 16 * number
    host = f"host:1:{worker}"
    return BlockTiming(
        0, number, first, 16, host, start * MS, end * MS, **named, bytes=500_000, calls=2
    )


class Pretended:
    """Simulated runs of an analysis that takes 8 s on one worker.

    For some runs, by number, `answer` contains other results, or an exception to raise.
    """

    def __init__(self, monkeypatch):
        self.asked, self.shown = [], []
        self.answer = {}
        monkeypatch.setattr(bench, "run_command", self)

    def __call__(self, arguments, launcher, *, show):
        self.shown.append(show)
        asked = json.loads(arguments[-1])
        assert arguments[-2] == "--one-run"
        self.asked.append((asked["workers"], asked["frames"]))
        changed = self.answer.get(len(self.asked), {})
        if "raise" in changed:
            raise changed["raise"]
        n_frames = asked["frames"] or 1000
        seconds = 8 * n_frames / 1000 / asked["workers"]
        blocks = [
            block(k, f"{k}", 0, round(1000 * seconds), compute=round(900 * seconds))
            for k in range(asked["workers"])
        ]
        timings = Timings("threads", 0, 0, round(1e9 * seconds), 0.1, 0.1, 0, blocks)
        values = quantities(timings, asked["workers"]) | {"frames": float(n_frames), "blocks": 63.0}
        told = {
            "begun": 0.0,
            "backend": "threads",
            "values": values,
            "digest": f"of {n_frames}",
            "hosts": ["host"],
            "n_workers": asked["workers"],
            "n_atoms": 3341,
            "n_selected": 214,
            "n_frames": 1000,
            "mpi": None,
        }
        return told | changed, seconds + 1
