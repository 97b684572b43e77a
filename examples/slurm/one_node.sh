#!/bin/bash
#SBATCH --job-name=tarantella
#SBATCH --nodes=1
#SBATCH --ntasks=2               # ranks, unless the node has GPUs: then one rank per GPU
#SBATCH --time=01:00:00
#SBATCH --signal=B:TERM@120      # two minutes to save a checkpoint before the time limit
# Usage: sbatch one_node.sh model.py --its --arguments

# exec: the batch system's signal reaches the launcher, which passes it to the ranks.
exec tarantella -- "$@"
