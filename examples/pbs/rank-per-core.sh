#!/bin/bash
# One MPI rank per core. Submit it with: qsub -v TOPOLOGY=md.tpr,TRAJECTORY=md.xtc rank-per-core.sh
#PBS -N paceline
#PBS -l select=2:ncpus=32:mpiprocs=32
#PBS -l walltime=01:00:00
#PBS -j oe
set -euo pipefail
cd "$PBS_O_WORKDIR"

# mpiexec takes the hosts from PBS where it was built for it, as MPICH, Intel MPI and Open MPI can
# be; else add --hostfile "$PBS_NODEFILE" (Open MPI) or -f "$PBS_NODEFILE" (MPICH).
# shellcheck disable=SC2086
mpiexec -n "$(wc -l < "$PBS_NODEFILE")" ${PACELINE_MPIEXEC_OPTIONS:-} \
    paceline rmsd "$TOPOLOGY" "$TRAJECTORY" --select "protein and name CA" \
    -o rmsd.csv --checkpoint rmsd.checkpoint
