#!/bin/bash
#SBATCH --job-name=tarantella
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --time=01:00:00
#SBATCH --signal=B:TERM@120      # two minutes to save the state of training before the time limit
#SBATCH --requeue
#SBATCH --open-mode=append       # one output for all runs of the job
# Usage: sbatch requeue.sh model.py --its --arguments
# The model trains with tarantella.keras.callbacks.Snapshot(every=…, folder=…). A run that the time limit ends asks for
# the next one, which goes on at the same step.

tarantella -- "$@" &
launcher=$!
trap 'kill -TERM "$launcher"' TERM
wait "$launcher"
code=$?
if kill -0 "$launcher" 2> /dev/null; then  # the signal has ended the wait
  wait "$launcher"
  code=$?
fi
if [ "$code" -eq 75 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
