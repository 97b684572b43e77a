#!/bin/bash
# Usage: chain.sh 5 one_node.sh model.py --its --arguments
# Submits the batch script five times. Each job begins when the one before has ended, and goes on from its snapshot: the
# model trains with tarantella.keras.callbacks.Snapshot(every=…, folder=…). Jobs that are left when the training is
# complete return at once.

count=$1
shift
job=
for ((i = 0; i < count; ++i)); do
  job=$(sbatch --parsable ${job:+"--dependency=afterany:$job"} "$@") || exit
  job=${job%%;*}  # without the name of the cluster
  echo "$job"
done
