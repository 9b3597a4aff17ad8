"""Make the report of the manual: one of four workers is slow.

python examples/report.py docs/images/report.svg

With a name that ends in .html it writes the whole page.
"""

import sys
import threading
import time

from MDAnalysisTests.datafiles import DCD, PSF

import paceline

#: Repetitions of the file, for a run of some seconds.
COPIES = 60
#: Seconds per frame of a worker, and of the slow one.
USUAL, SLOW = 0.002, 0.006


def main(path: str) -> None:
    """Run the analysis, and write the report."""
    ca = paceline.Universe(PSF, [DCD] * COPIES).select_atoms("name CA")
    slow = []

    def spread(block):
        # The first worker that starts is the slow one.
        if not slow:
            slow.append(threading.get_ident())
        time.sleep(len(block) * (SLOW if threading.get_ident() == slow[0] else USUAL))
        return block.positions.std(axis=1)

    series = paceline.TimeSeries(spread, ca)
    series.run(backend="threads", n_workers=4, block_frames=64)
    series.timings.report(path, overwrite=True)


if __name__ == "__main__":
    main(sys.argv[1])
