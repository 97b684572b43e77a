"""One rank of vLLM's allreduce: vllm_rank.py LIBRARY FILE SIZES RANK JOB. Needs a Python with torch and vllm."""

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

import torch

folder = Path(importlib.util.find_spec("vllm").origin).parent
level = "AVX512" if "avx512f" in Path("/proc/cpuinfo").read_text() else "AVX2"
library = folder / f"_C_{level}.abi3.so"
torch.ops.load_library(str(library if library.exists() else folder / "_C.abi3.so"))
path, file, sizes, rank, job = sys.argv[1:]
ctypes.CDLL(path).run(file.encode(), sizes.encode(), int(rank), job.encode())
sys.stdout.flush()
os._exit(0)  # vLLM's threads would outlive the interpreter
