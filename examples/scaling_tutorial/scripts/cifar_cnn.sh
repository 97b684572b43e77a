#!/bin/bash
#SBATCH -J cifar-cnn
#SBATCH -N 1
#SBATCH --ntasks-per-node 1
#SBATCH -t 1:00:00
#SBATCH -o logs/cifar-cnn-%j.out

# Submit it from the folder of the tutorial: sbatch -N 8 scripts/cifar_cnn.sh
# RANKS=4 sets the number of ranks. Arguments go to train_horovod.py.
source scripts/setup.sh
tarantella ${RANKS:+-n "$RANKS"} --output-on-all-devices -- train_horovod.py configs/cifar10_cnn.yaml -d "$@"
