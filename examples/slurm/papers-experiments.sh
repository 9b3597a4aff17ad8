#!/bin/bash
# All figures of the papers of 2020 and 2021 and of HPCxTR0806, beside the published values. Submit it
# in a copy of the repository: sbatch examples/slurm/papers-experiments.sh /scratch/data results
#SBATCH --job-name=papers
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=24      # the cores of a node of the papers' Comet
#SBATCH --cpus-per-task=1
#SBATCH --time=3-00:00:00
#SBATCH --output=%x-%j.log
set -euo pipefail

# A third argument, --tiny or --full, asks for fewer frames than the papers'.
read -ra names <<< "${EXPERIMENTS:-2020 2021 HPCxTR0806}"
python -W ignore -m benchmarks.experiments "${names[@]}" "${3:---papers}" \
    --repeats "${REPEATS:-5}" --ranks "${RANKS:-1,24,48,72}" \
    --launcher "srun --mpi=${PACELINE_MPI:-pmi2} -n {ranks}" --data "$1" --output "$2"
