#!/bin/bash
#SBATCH --job-name=tarantella
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1      # ranks on each node, unless it has GPUs: then one rank per GPU
#SBATCH --time=01:00:00
#SBATCH --signal=B:TERM@120      # two minutes to save a checkpoint before the time limit
# Usage: sbatch several_nodes.sh model.py --its --arguments

# exec: the batch system's signal reaches the launcher, which passes it to the ranks of all nodes.
exec tarantella -- "$@"
