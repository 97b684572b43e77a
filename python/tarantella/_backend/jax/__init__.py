"""The functions of the JAX backend; `tarantella._backend.Backend` has their contracts.

So far it trains on arrays, on the CPU, with Keras's own steps. What it lacks raises NotImplementedError.
"""

# mypy: implicit-reexport

from __future__ import annotations

import warnings

import jax

from .reduce import StepGradients as step_gradients
from .reduce import allreduce, gather_rows, gradient_hooks, sum_over_ranks
from .steps import (
    comes_from_inputs,
    current_trace,
    gradients,
    is_used,
    peek,
    recorded_or_replayed,
    rows,
    run_step,
    sandboxed,
    stand_in,
    step_hooks,
    strategy_of,
    sync,
    trace,
    variables_outside,
    why_not_compiled,
    why_not_gathered,
    with_iterator,
    without_repeats,
)

# Counters and weights are of 64 bits where JAX has them, and of 32 by default.
warnings.filterwarnings("ignore", "Explicitly requested dtype (int|float)64 requested", UserWarning)

steps_are_stateful = False  # what a traced step assigns and does not return is lost
checkpoint_writers = ()
step_errors: tuple[type[Exception], ...] = (ValueError, TypeError, IndexError, jax.errors.JAXTypeError)
