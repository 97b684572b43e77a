#!/bin/bash
#SBATCH --job-name=tarantella
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --time=01:00:00
#SBATCH --signal=TERM@120        # to the tasks of srun
# Usage: sbatch --export=ALL,IMAGE=image.sif container.sh model.py --its --arguments
# srun starts the ranks itself, each in a container. For GPUs add --nv.

exec srun --kill-on-bad-exit=1 apptainer exec "${IMAGE:?name the image}" python "$@"
