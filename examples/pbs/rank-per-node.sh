#!/bin/bash
# One MPI rank per node, one thread per core.
# Submit it with: qsub -v TOPOLOGY=md.tpr,TRAJECTORY=md.xtc rank-per-node.sh
#PBS -N paceline
#PBS -l select=2:ncpus=32:mpiprocs=1:ompthreads=1
#PBS -l walltime=01:00:00
#PBS -j oe
set -euo pipefail
cd "$PBS_O_WORKDIR"

# PBS sets NCPUS to the cores of a chunk.
# shellcheck disable=SC2086
mpiexec -n "$(wc -l < "$PBS_NODEFILE")" ${PACELINE_MPIEXEC_OPTIONS:-} \
    paceline rmsd "$TOPOLOGY" "$TRAJECTORY" --select "protein and name CA" --n-workers "$NCPUS" \
    -o rmsd.csv --checkpoint rmsd.checkpoint
