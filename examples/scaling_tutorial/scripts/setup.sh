# Prepares the environment of a job. Run it once by itself on a login node: it downloads CIFAR-10.
# Sites with modules load theirs here: module load python
tutorial=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ -f "$tutorial/../../.venv/bin/activate" ]; then source "$tutorial/../../.venv/bin/activate"; fi
export SCRATCH=${SCRATCH:-$tutorial/results}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  cd "$tutorial" && python -c "from data import cifar10; cifar10.download()"
fi
