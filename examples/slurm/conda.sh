#!/bin/bash
#SBATCH --job-name=tarantella
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --time=01:00:00
#SBATCH --signal=B:TERM@120
# Usage: sbatch --export=ALL,CONDA_ENV=my_environment conda.sh model.py --its --arguments

source "$(conda info --base)/etc/profile.d/conda.sh"
conda activate "${CONDA_ENV:-base}"
exec tarantella -- "$@"
