#!/bin/bash
# One MPI rank per node, one thread per core. Submit it with: sbatch rank-per-node.sh md.tpr md.xtc
#SBATCH --job-name=paceline
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32       # the cores of a node
#SBATCH --time=01:00:00
#SBATCH --signal=TERM@60          # a minute before the end, to write the checkpoint
#SBATCH --output=%x-%j.log
set -euo pipefail

# Repeat --cpus-per-task: since Slurm 22.05 srun does not take it from sbatch.
srun --mpi="${PACELINE_MPI:-pmi2}" --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    paceline rmsd "$1" "$2" --select "protein and name CA" --n-workers "$SLURM_CPUS_PER_TASK" \
    -o rmsd.csv --checkpoint rmsd.checkpoint
