"""Under paceline.mpi: files that ranks split, join, convert and repack."""

import sys
import warnings
from pathlib import Path

import paceline
from paceline.backends.mpi import rank_calls
from paceline.hdf5.repack import repack
from paceline.trajectory import copy_frames

_, folder, out, *names = sys.argv
sys.argv = ["files.py"]  # command line that H5MD files quote
# With this size, each rank copies some bytes of these small files.
copy_frames._ALIGNED, copy_frames._PORTION = 4096, 32768
warnings.simplefilter("ignore")
for name in names:
    source, target = Path(folder, name), Path(out)
    pieces = paceline.split(source, 3, output=target)
    paceline.join(pieces, target / f"all{source.suffix}")
    paceline.Write(paceline.open(source), target / f"converted{source.suffix}").run(block_frames=16)
    if source.suffix == ".h5md":
        repacked = target / "repacked.h5md"
        repack(source, repacked, compress="gzip:1", chunk="4x100", calls=rank_calls(None))
