#!/bin/bash
# One MPI rank per core. Submit it with: sbatch rank-per-core.sh md.tpr md.xtc
#SBATCH --job-name=paceline
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=32     # the cores of a node
#SBATCH --cpus-per-task=1
#SBATCH --time=01:00:00
#SBATCH --signal=TERM@60          # a minute before the end, to write the checkpoint
#SBATCH --output=%x-%j.log
set -euo pipefail

# PACELINE_MPI: pmi2 for MPICH and Intel MPI, pmix for Open MPI; `srun --mpi=list` shows all.
srun --mpi="${PACELINE_MPI:-pmi2}" \
    paceline rmsd "$1" "$2" --select "protein and name CA" \
    -o rmsd.csv --checkpoint rmsd.checkpoint
