"""`join`: lets a rank without data take part in the calls of the others.

One thread for each context makes these calls, and gives zeros to the plans of the context. The thread of `join` itself
only waits: if it were in a call, the core would report a rank that waits for others to make the same call.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import Any

import numpy as np
import tensorflow as tf

from .._job import log, runtime
from . import process
from .join_calls import AnnouncedContext
from .process import ProcessSet, global_process_set

_one = threading.Lock()
# Seconds after which a rank in `join` warns that a model is gone that the others may still train.
_PATIENCE = 10.0


@tf.autograph.experimental.do_not_convert
def join() -> int:
    """Blocks until all ranks have called it, and returns the last of them, on all ranks.

    For ranks that run out of data at different times. Meanwhile this rank takes part in the calls of the others: with
    zeros in gradients, sums and averages, which still divide by the number of ranks, and without rows in allgather. The
    model must live until then. All other collectives raise RuntimeError on the ranks that call them.

    Raises RuntimeError in a `tf.function`, and while another thread of this rank is in `join`.
    """
    process.check("join")
    if not tf.executing_eagerly():
        raise RuntimeError(
            "hvd.join would run only once in a tf.function, during tracing: call it outside, after the loop"
        )
    if process.size() == 1:
        return 0
    if not _one.acquire(blocking=False):
        raise RuntimeError("another thread of this rank is in hvd.join already: call it in one thread only")
    try:
        with runtime.plans_kept():
            return _Joined().wait()
    finally:
        _one.release()


class _Joined:
    """This rank, from the beginning to the end of `join`."""

    def __init__(self) -> None:
        # All ranks make these calls in the same order, so a rank with a higher count joined later.
        local = [each.context() for each in global_process_set.groups()]
        self._came = [sum(each.record.calls for each in local), time.time_ns()]
        self._last = 0
        self._has_lost_plan = False
        self._threads: list[threading.Thread] = []
        self._ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        for each in filter(ProcessSet.included, process.of_job.values()):
            for group in each.groups():
                self._start(group.context(), each)

    def wait(self) -> int:
        """Blocks until the threads have ended. Raises the first error of one."""
        ended = 0
        while ended < len(self._threads):
            try:
                error = self._ended.get(timeout=_PATIENCE)
            except queue.Empty:
                if self._has_lost_plan:
                    log.warn_once(
                        "hvd.join: this rank has deleted a model that it trained before; other ranks that still train "
                        "it wait until TNT_TIMEOUT: keep the model until hvd.join returns"
                    )
                continue
            if error is not None:
                raise error
            ended += 1
        return self._last

    def _zeros(self, context: AnnouncedContext, begin: int = 0) -> list[_Zeros]:
        """Zeros for the plans of the context, from number `begin` on."""
        made = [_Zeros(context.core, *plan) for plan in context.record.plans[begin:]]
        if any(each.given is None for each in made):
            self._has_lost_plan = True
        return made

    def _start(self, context: AnnouncedContext, process_set: ProcessSet) -> None:
        def run() -> None:
            try:
                self._take_part(context, process_set)
                self._ended.put(None)
            except BaseException as error:
                self._ended.put(error)

        # A daemon: the core ends its calls at exit, and Python waits for other threads before.
        thread = threading.Thread(target=run, name="hvd.join", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _take_part(self, context: AnnouncedContext, process_set: ProcessSet) -> None:
        zeros = self._zeros(context)
        while not (joined := context.exchange_joined(joined=True)).all():
            call = context.next_call(joined)
            if not call.is_possible():
                continue  # the others raise the error
            if call.what == "graphs":
                with contextlib.suppress(ValueError):  # on several machines; the others raise it
                    self._start(process_set.make_graph_group().context(), process_set)
                continue
            context.take_part(call)
            zeros += self._zeros(context, len(zeros))
        self._even_out(context, zeros)

    def _even_out(self, context: AnnouncedContext, zeros: list[_Zeros]) -> None:
        """Brings the plans to the same step on all ranks, and finds the rank that joined last."""
        stopped = [each.stop() for each in zeros]
        waiting = {number for _, number in context.record.adopted}
        local = [
            *self._came,
            *(n for each in zeros for n in each.before),
            *(n for counts in stopped for n in counts),
            *(each.plan in waiting for each in zeros),
        ]
        table = context.core.allgather(np.array(local, np.int64), "the end of hvd.join")
        steps, plans = np.zeros(len(table), np.int64), []
        half, begin = sum(each.tensors for each in zeros), len(self._came)
        some = table[:, begin + 2 * half :].any(axis=0)
        unused = {each.plan for each, is_waiting in zip(zeros, some, strict=True) if is_waiting}
        for each in zeros:
            before, counts = (table[:, at : at + each.tensors] for at in (begin, begin + half))
            begin += each.tensors
            if (counts >= 0).all():
                context.core.finish_zero_contributions(each.given, counts.max(axis=0).tolist())
                steps += before.sum(axis=1)
                plans.append((each.plan, each.tensors))
            else:  # some rank has released it
                runtime.release(each.plan)
        if context is global_process_set.group().context():
            self._last = max(range(len(table)), key=lambda r: (int(table[r, 0] + steps[r]), int(table[r, 1])))
        context.record.end_join(plans, unused)


class _Zeros:
    """The zeros that this rank gives to a plan, if it still has the plan."""

    def __init__(self, context: Any, plan: int, tensors: int) -> None:
        self.plan, self.tensors = plan, tensors
        try:
            self.given = context.begin_zero_contributions(plan, tensors)
        except ValueError:
            self.given = None
        self.before: list[int] = self.given.before if self.given else [0] * tensors

    def stop(self) -> list[int]:
        """The number of steps in which each tensor took part; -1 if the plan is gone."""
        return self.given.stop() if self.given else [-1] * self.tensors
