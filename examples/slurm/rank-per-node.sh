#!/bin/bash
# One MPI rank a node, a thread for each of its cores. Send it with: sbatch rank-per-node.sh md.tpr md.xtc
#SBATCH --job-name=paceline
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32       # the cores of a node
#SBATCH --time=01:00:00
#SBATCH --signal=TERM@60          # a minute before the time is over: the checkpoint is written
#SBATCH --output=%x-%j.log
set -euo pipefail

# srun must be told --cpus-per-task once more: since Slurm 22.05 it does not take it from sbatch.
srun --mpi="${PACELINE_MPI:-pmi2}" --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    paceline rmsd "$1" "$2" --select "protein and name CA" --n-workers "$SLURM_CPUS_PER_TASK" \
    -o rmsd.csv --checkpoint rmsd.checkpoint
