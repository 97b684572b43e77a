#!/bin/bash
#SBATCH -J cifar-resnet
#SBATCH -N 1
#SBATCH --ntasks-per-node 1
#SBATCH --exclusive
#SBATCH -t 1:00:00
#SBATCH -o logs/cifar-cnn-%j.out

# Submit it from the folder of the tutorial: sbatch -N 8 scripts/cifar_resnet.sh
# Its log is logs/cifar-cnn-JOB.out, as the original tutorial says.
# One rank on each node; sbatch --ntasks-per-node=4 makes it four. Arguments go to train_horovod.py.
source scripts/setup.sh
tarantella --output-on-all-devices -- train_horovod.py configs/cifar10_resnet.yaml -d "$@"
