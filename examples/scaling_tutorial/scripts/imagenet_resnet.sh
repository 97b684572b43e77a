#!/bin/bash
#SBATCH -J imagenet-resnet
#SBATCH -N 1
#SBATCH --ntasks-per-node 1
#SBATCH --exclusive
#SBATCH -t 24:00:00
#SBATCH -o logs/imagenet-resnet-%j.out

# Submit it from the folder of the tutorial: sbatch -N 8 scripts/imagenet_resnet.sh
# One rank on each node; sbatch --ntasks-per-node=4 makes it four. Arguments go to train_horovod.py.
source scripts/setup.sh
tarantella --output-on-all-devices -- train_horovod.py configs/imagenet_resnet.yaml -d "$@"
