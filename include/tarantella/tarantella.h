/* The C interface of the Tarantella core: collectives between the ranks of a job.
 *
 * Every function that can fail returns a tnt_code. tnt_last_error() then returns one line for the user: the cause, the
 * rank or tensor, and the cure. No C++ exception crosses this interface.
 * Functions are thread-safe unless they say otherwise. "Collective" means: every rank of the context calls it, with the
 * same arguments except the data, in the same order as its other collective calls.
 * Only the process that created a context may use it and its plans. In a forked child, calls return
 * TNT_INVALID_ARGUMENT. */
#ifndef TARANTELLA_H
#define TARANTELLA_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TNT_API __attribute__((visibility("default")))
#else
#define TNT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tnt_code {
  TNT_OK = 0,
  TNT_INVALID_ARGUMENT = 1, /* an error of the caller; the call had no effect */
  TNT_TIMEOUT = 2,          /* a wait reached its deadline */
  TNT_PEER_LOST = 3,        /* another rank died, left or aborted */
  TNT_MISMATCH = 4,         /* ranks called different operations, or with different arguments */
  TNT_OUT_OF_MEMORY = 5,    /* too little memory on the node for a shared region */
  TNT_SYSTEM = 6,           /* a system call failed */
  TNT_UNSUPPORTED = 7       /* this build cannot do it; the call had no effect */
} tnt_code;

typedef enum tnt_dtype {
  TNT_FLOAT32 = 1,
  TNT_FLOAT64 = 2,
  TNT_INT32 = 3,
  TNT_INT64 = 4,
  TNT_FLOAT16 = 5,
  TNT_BFLOAT16 = 6,
  TNT_BOOL = 7, /* a byte, 0 or 1 */
  TNT_UINT8 = 8,
  TNT_INT8 = 9,
  TNT_INT16 = 10,
  TNT_UINT16 = 11,
  TNT_UINT32 = 12,
  TNT_UINT64 = 13
} tnt_dtype;

/* How the elements of several ranks are combined: in rank order on each machine, then in the order of machines, so that
 * all ranks and all runs get the same bits. Integers wrap; float16 and bfloat16 are reduced in float32 and rounded
 * once, in plans once on each machine and once more for the job; a NaN of any rank is the minimum and the maximum.
 * There is no average of integers, no sum of bools, and no and/or of floating-point numbers. */
typedef enum tnt_reduction {
  TNT_SUM = 1,
  TNT_MIN = 2,
  TNT_MAX = 3,
  TNT_AND = 4,
  TNT_OR = 5,
  TNT_AVERAGE = 6
} tnt_reduction;

/* The membership of a rank in a job or in a group of its ranks. */
typedef struct tnt_context tnt_context;

/* The number of a plan: valid in this process from tnt_plan_create() to tnt_plan_release(), never reused. */
typedef uint64_t tnt_plan;

typedef struct tnt_options {
  int rank;            /* 0 … size-1, different for each */
  int size;            /* ranks of the job */
  const char* job;     /* 1 to 64 characters, the same for all ranks, different for each job of a user */
  double meet_timeout; /* seconds in which all ranks must join; infinity: no limit */
  /* A rank counts as stuck after this many seconds without a heartbeat, counted while this rank polls. At least 2;
   * infinity: never. */
  double stuck_timeout;
  double stall_timeout; /* seconds that a wait for ranks that are alive may last; 0: no limit */
  /* After a rank is lost or disagrees: seconds in which its launcher may end the job before the core does. */
  double failure_delay;
  double warn_every; /* seconds between two log lines during a long wait; 0: 60 */
  /* The number of ranks of each node, as in "2,2,1", where ranks are numbered node by node. NULL or without a comma:
   * all are on this node. */
  const char* nodes;
  /* With several nodes: how their first ranks reach one another, as in "mpi-abi:/usr/lib/libmpi_abi.so.1". */
  const char* transport;
  /* NULL if mpiexec or srun has started a process of an MPI job on each node; else the host of rank 0, where the nodes'
   * first ranks connect and start MPI themselves. */
  const char* first_host;
} tnt_options;

typedef struct tnt_tensor {
  const char* name; /* for error messages and for the comparison over ranks */
  tnt_dtype dtype;
  const int64_t* shape;
  size_t dimensions;
} tnt_tensor;

/* The message of the last failed call of this thread; valid until the thread's next call. Never NULL. */
TNT_API const char* tnt_last_error(void);
/* For example "1.0.0". */
TNT_API const char* tnt_version(void);

/* Collective. Blocks until all ranks have joined, at most options->meet_timeout. The caller owns *context. */
TNT_API tnt_code tnt_context_create(const tnt_options* options, tnt_context** context);
/* Ends the communication of this rank only: running calls of other threads on the context and its plans end with
 * TNT_PEER_LOST within a tenth of a second, and so do all later calls. Does not wait for other ranks; the first rank of
 * a machine tells the others, which may take a second. Must not be called in a tnt_done of its own plans. Ignores NULL
 * and repeated calls. */
TNT_API void tnt_context_close(tnt_context* context);
/* Leaves the job or group: closes the context, waits until the calls of other threads on it have ended, and releases
 * its plans (see tnt_plan_release). No call on it may begin after this one. Does not wait for other ranks; their calls
 * fail because this rank has ended. The memory is freed when all ranks have left. Ignores NULL. */
TNT_API void tnt_context_destroy(tnt_context* context);
/* Reports that this rank fails: ends the context's communication on all ranks, unless it has already ended. Calls on
 * other ranks then return TNT_PEER_LOST with "rank N failed: " and `reason`. Does not block. `exit_code` is the one
 * that this process will exit with. */
TNT_API tnt_code tnt_abort(tnt_context* context, const char* reason, int exit_code);
/* The exit code of the rank whose tnt_abort() ended this context's communication, else 0; -1 for a NULL context. */
TNT_API int tnt_exit_code(const tnt_context* context);
/* For ranks that another launcher than Tarantella's has started. Once the job's communication has failed, this process
 * has five seconds to end by itself. Then it gets SIGTERM. Five seconds later it ends with tnt_exit_code(), or 1 if
 * that is 0, even if its program holds a lock, computes or waits. tnt_context_close() cancels this. */
TNT_API tnt_code tnt_end_with_job(tnt_context* context);
/* Installs a handler of SIGTERM, unless the program has one. As soon as one rank ends with a code other than 0, srun
 * and mpiexec send SIGTERM to all ranks, and would report the signal instead of that code. If `exit_code` is not 0,
 * SIGTERM ends this process with it. If it is 0 and tnt_end_with_job() was called, SIGTERM ends the process with
 * tnt_exit_code() if the job's communication has failed, and with 1 if another rank has died. If neither is seen within
 * a second (four in a job on several machines), SIGTERM has its default effect. */
TNT_API tnt_code tnt_on_sigterm(int exit_code);
/* For programs that know their current line. Blocks until a waiting rank asks this one where it is, that is, until the
 * number of queries differs from *seen (initially 0); then stores the number there. One thread per rank calls this, and
 * then tnt_report_location() with a text such as "train.py:12". TNT_PEER_LOST once the context is closed. */
TNT_API tnt_code tnt_await_location_query(tnt_context* context, uint32_t* seen);
TNT_API tnt_code tnt_report_location(tnt_context* context, const char* place);
/* For interpreters, whose stacks the core cannot read: if a wait exceeds options->stall_timeout, all ranks get
 * `signal`, on a thread of the core. Its handler writes the program's stacks to `descriptor`, a readable file, and the
 * core prints them. The job fails a second later. The signal must not be blocked. */
TNT_API tnt_code tnt_show_stacks(tnt_context* context, int signal, int descriptor);
/* The first error that ended this context's communication on any rank, as code and tnt_last_error(), or TNT_OK. */
TNT_API tnt_code tnt_failure(tnt_context* context);

/* Collective, blocks. Creates a context of the `count` ranks in `ranks`, numbered in that order; TNT_INVALID_ARGUMENT
 * if they are on several machines. Calls in different contexts may run at the same time. *group is NULL on a rank that
 * is not among them. The caller owns *group, and may destroy it before or after `context`. */
TNT_API tnt_code tnt_context_create_group(tnt_context* context, const int* ranks, size_t count,
                                          tnt_context** group);
/* This rank's number in the context: 0 … size-1; -1 for a NULL context. */
TNT_API int tnt_context_rank(const tnt_context* context);
/* The number in the job of rank `rank` of the context; -1 for a NULL context or a rank that does not exist. */
TNT_API int tnt_context_job_rank(const tnt_context* context, int rank);
/* The number of ranks in the context; -1 for a NULL context. */
TNT_API int tnt_context_size(const tnt_context* context);
/* A number that identifies the context in this process until it is destroyed. Never reused. For callers that cannot
 * keep a pointer. 0 for a NULL context. */
TNT_API uint64_t tnt_context_number(const tnt_context* context);

/* Collective, blocking, one at a time in a context. `count` is in elements; `name` (may be "") is compared between
 * ranks and appears in errors. A buffer without elements may be NULL. Input and output must not overlap unless stated.
 * Ranks must make the calls of one context and the steps of its plans in the same order, in any threads. Ranks that
 * wait for each other, in calls or for gradients, end with TNT_MISMATCH: after `failure_delay` if the threads that
 * created the job's context wait (the gradients of a plan count for the thread that created it), otherwise after
 * `stuck_timeout`, because other threads may still make progress.
 * `stream` is NULL for buffers in host memory. Buffers on a device are those of the stream's device, and TNT_OK then
 * means that the call is enqueued on it. Without a backend for devices, as here, TNT_UNSUPPORTED. */

/* Called once, when the core no longer reads or writes the memory of a call: inside the call or later, on any thread.
 * After an error another machine may still receive from that memory, so this may be much later, or never: MPI may keep
 * unfinished transfers until the process ends. Must not block, and must not call a function of this interface. */
typedef void (*tnt_released)(void* user);

/* output[i] = the reduction over ranks of input[i]; output may be input. With `released`, which is called whatever this
 * returns, machines exchange the values without a copy; otherwise they exchange copies. */
TNT_API tnt_code tnt_allreduce(tnt_context* context, const void* input, void* output, size_t count,
                               tnt_dtype dtype, tnt_reduction reduction, const char* name, void* stream,
                               tnt_released released, void* user);
/* output[i] = the reduction over ranks of input[rank * count + i]: `input` has size * count elements. */
TNT_API tnt_code tnt_reduce_scatter(tnt_context* context, const void* input, void* output, size_t count,
                                    tnt_dtype dtype, tnt_reduction reduction, const char* name, void* stream);
/* Replaces the data of the other ranks with the root's. */
TNT_API tnt_code tnt_broadcast(tnt_context* context, void* data, size_t count, tnt_dtype dtype, int root,
                               const char* name, void* stream);
/* output gets the elements of each rank in rank order: counts[rank] of each. All ranks pass the same `counts`. */
TNT_API tnt_code tnt_allgather(tnt_context* context, const void* input, void* output, const uint64_t* counts,
                               tnt_dtype dtype, const char* name, void* stream);
/* input has send_counts[rank] elements for each rank, in rank order; output gets receive_counts[rank] from each. */
TNT_API tnt_code tnt_alltoall(tnt_context* context, const void* input, const uint64_t* send_counts,
                              void* output, const uint64_t* receive_counts, tnt_dtype dtype, const char* name,
                              void* stream);
TNT_API tnt_code tnt_barrier(tnt_context* context, const char* name);

/* Not collective; waits at most for a blocking call of another thread. Notifies the other ranks that this one has
 * completed `name`, with a result that the caller defines. */
TNT_API tnt_code tnt_notify(tnt_context* context, const char* name, uint32_t result);
/* One-sided: `rank` does not wait. The n-th wait for `name` since this rank's last collective call blocks until `rank`
 * has notified of `name` n times since that call. Earlier notifications do not count. TNT_MISMATCH, only on this rank,
 * if `rank` leaves or makes a later collective call without notifying. TNT_INVALID_ARGUMENT for a rank of another
 * machine that is not its first one. */
TNT_API tnt_code tnt_wait_notification(tnt_context* context, int rank, const char* name, uint32_t* result);
/* Not collective, does not block. Whether this rank has received a notification of `name` from `rank`; then `result` is
 * that of the last one. Only a rank's newest 1,023 notifications are kept. The same ranks as in
 * tnt_wait_notification(). */
TNT_API tnt_code tnt_find_notification(tnt_context* context, int rank, const char* name, int* found,
                                       uint32_t* result);

/* Whether the training steps of tnt_plan_submit() are compared between machines; on one machine they always are.
 * TNT_CHECK_STEPS_EXCLUSIVE also promises that, after submitting this plan, the rank submits no other plan until this
 * one completes; the core then reports a cross-wait between this plan and another as TNT_MISMATCH instead of
 * hanging. */
typedef enum tnt_step_check {
  TNT_CHECK_STEPS_ON_NODE = 0,
  TNT_CHECK_STEPS = 1,
  TNT_CHECK_STEPS_EXCLUSIVE = 2
} tnt_step_check;

/* Where the memory of a plan's tensors is. */
typedef enum tnt_device { TNT_HOST = 1, TNT_CUDA = 2 } tnt_device;

/* Collective, blocks. A plan sums the same tensors over ranks in every step, in buckets of `fusion_threshold` bytes (0:
 * one bucket per tensor), filled from the last tensor to the first; large tensors are split. All tensors are in memory
 * of `device`, of which `ordinal` is the number on this machine, as in CUDA; 0 for TNT_HOST. TNT_UNSUPPORTED for any
 * device except TNT_HOST, since this version has no other backend. Tensors are compared between ranks: TNT_MISMATCH
 * names the first that differs. `step_check` is the same on all ranks; unless it is TNT_CHECK_STEPS_ON_NODE, machines
 * exchange one more message per bucket. */
TNT_API tnt_code tnt_plan_create(tnt_context* context, const char* name, const tnt_tensor* tensors,
                                 size_t count, size_t fusion_threshold, tnt_device device, int ordinal,
                                 tnt_step_check step_check, tnt_plan* plan);
/* Not collective. Submitted tensors of the plan on this rank end with TNT_INVALID_ARGUMENT, some possibly just after
 * this returns: their data must stay valid until their `done`, or `released`, is called. */
TNT_API tnt_code tnt_plan_release(tnt_plan plan);

/* Not collective. From here on a tensor that this rank submits with NaN or infinity fails the job with TNT_SYSTEM. */
TNT_API tnt_code tnt_plan_check_finite(tnt_plan plan);

/* Called once for each submitted tensor, from a thread of the core or inside a call of any thread on a plan or its
 * context. With TNT_OK, `result` (64-byte aligned, in memory that all ranks share) holds the sums and may be read until
 * this rank submits the tensor again or the plan's memory is released; of tensors on a device, `result` is on it, and
 * the sums are there for what is enqueued on the stream afterwards. Otherwise it is NULL and `message`, valid during
 * the call, is the reason. Must not block: the rank's other plans wait meanwhile. May call tnt_context_destroy() for
 * any context but the plan's. */
typedef void (*tnt_done)(void* user, tnt_code code, const char* message, const void* result);

/* Submits this step's value of tensor `index`, which must stay unchanged until `done` is called. In any thread and any
 * order; waits for other ranks for a tenth of a millisecond at most. Each tensor is submitted once per step; it may be
 * submitted again as soon as its `done` has been called. `data` may be NULL: it stands for zeros. If
 * ranks would add values of different `training_step`, the job fails with TNT_MISMATCH, which names the steps. 0 is not
 * compared. `stream` is the stream of the device on which `data` is computed, or NULL for host memory,
 * where `data` must be complete; TNT_UNSUPPORTED without a backend for its device. If this returns an error, `done` is
 * not called. `released`, unless it is NULL, is called whatever this returns, and not before `done`; `data` must stay
 * allocated until then. Without it, machines exchange a copy of `data`, and `data` is free after `done` or an error. */
TNT_API tnt_code tnt_plan_submit(tnt_plan plan, size_t index, const void* data, size_t count, tnt_dtype dtype,
                                 uint32_t training_step, void* stream, tnt_done done, tnt_released released,
                                 void* user);

/* Blocks: submits this step's value of every tensor and copies the sums to `outputs` (outputs[i] may be inputs[i];
 * inputs[i] may be NULL: it stands for zeros). `tensors` must be the plan's number of tensors, bytes[i] the size of
 * input and output i; `bytes` may be NULL if the sizes are known to be right; `training_step` and `stream` as in
 * tnt_plan_submit(). Returns an error when the plan or the job ends. Counts as the plan's step, so none of its tensors
 * may be submitted. */
TNT_API tnt_code tnt_plan_run(tnt_plan plan, const void* const* inputs, const size_t* bytes,
                              void* const* outputs, size_t tensors, uint32_t training_step, void* stream);

/* The bucket that has the first element of tensor `index`. Tensors of a bucket end together, after all of them are
 * submitted, so a rank that submits one must submit the others. */
TNT_API tnt_code tnt_plan_bucket(tnt_plan plan, size_t index, size_t* bucket);

/* Reports that this rank cannot submit a tensor: ends the job's communication on all ranks, with `reason`. */
TNT_API tnt_code tnt_plan_abort(tnt_plan plan, const char* reason);

/* The contribution of a rank without data to the steps of a plan: zeros instead of its tensors. */
typedef struct tnt_zero_contributions tnt_zero_contributions;
/* Not collective. From here on the core submits zeros for every tensor of the plan, again as soon as the last ones are
 * summed. Meanwhile the rank must not submit tensors of the plan, and none may be in flight. Does not wait for other
 * ranks. steps[i] gets the number of steps in which this rank has submitted tensor i before; `tensors` must be the
 * plan's number of tensors. */
TNT_API tnt_code tnt_zero_contributions_begin(tnt_plan plan, size_t tensors, uint64_t* steps,
                                              tnt_zero_contributions** zeros);
/* Submits no more zeros. steps[i] gets the number of steps in which this rank has submitted tensor i, or another one of
 * its bucket, zeros included; it depends on timing and may differ between ranks. Does not block. */
TNT_API tnt_code tnt_zero_contributions_stop(tnt_zero_contributions* zeros, uint64_t* steps);
/* After tnt_zero_contributions_stop(), collective: submits zeros until this rank was in steps[i] steps with each tensor
 * i, and blocks until they are summed. All ranks pass the same `steps`: for each tensor, the maximum over all ranks of
 * what tnt_zero_contributions_stop() gave. */
TNT_API tnt_code tnt_zero_contributions_finish(tnt_zero_contributions* zeros, const uint64_t* steps);
/* Not collective. Ignores NULL. */
TNT_API void tnt_zero_contributions_release(tnt_zero_contributions* zeros);

/* Allocates memory for the rows of all ranks, of which rank r has rows[r * parts + i] of part i, and stores the address
 * for part i in outputs[i]. Returns 0 if there is none: the job then fails. */
typedef int (*tnt_allocate)(void* user, const uint64_t* rows, void** outputs);

/* Both are collective, but do not block: they run on a thread of the context, one after the other, with blocking calls
 * of other threads between them. All ranks must begin them in the same order. `context` is that of
 * tnt_context_number(). parts[i] is the name, the type and the shape of one row of inputs[i], which has rows[i] rows.
 * If ranks have different parts, or a different `training_step`, the job fails with TNT_MISMATCH. On that thread `done`
 * is called at the end, with a `result` of NULL and as in tnt_plan_submit(); until then inputs must stay unchanged and
 * outputs allocated. If they return an error, `done` is not called. */
/* Gathers the rows of all ranks, in rank order. Their numbers may differ, and be 0. Calls `allocate` on that thread. */
TNT_API tnt_code tnt_allgather_rows(uint64_t context, const char* name, const tnt_tensor* parts,
                                    const void* const* inputs, const uint64_t* rows, size_t count,
                                    uint32_t training_step, tnt_allocate allocate, tnt_done done, void* user);
/* Sums each element of the rows over the ranks, as tnt_allreduce(), into outputs[i]: all ranks have equally many rows.
 * `released` as in tnt_plan_submit(), for inputs and outputs. */
TNT_API tnt_code tnt_sum_rows(uint64_t context, const char* name, const tnt_tensor* parts,
                              const void* const* inputs, void* const* outputs, const uint64_t* rows,
                              size_t count, uint32_t training_step, tnt_done done, tnt_released released,
                              void* user);

/* Keeps a plan's results mapped, even after the plan or its context has ended. */
typedef struct tnt_memory tnt_memory;
TNT_API tnt_code tnt_plan_memory(tnt_plan plan, tnt_memory** memory);
/* Ignores NULL. */
TNT_API void tnt_memory_release(tnt_memory* memory);

/* The timeline of this process: what it does, and when. Until it is started it is off and costs a branch. Then the core
 * records every gradient, bucket and blocking collective of plans and contexts that are made later, and the program
 * records its own spans. The timeline holds the first 2^18 records. */
typedef enum tnt_span {
  TNT_SPAN_CALL = 1, /* a call of a user */
  TNT_SPAN_PART = 2, /* a part of a call */
  TNT_SPAN_STEP = 3  /* a step of training, evaluation or prediction */
} tnt_span;

/* Starts the timeline, which cannot be stopped. Records go to memory that the launcher provides for rank `rank` of
 * `size`, and from which it writes the file, else to memory of this process. A second call does nothing. */
TNT_API tnt_code tnt_timeline_start(int rank, int size);
/* Begins a span on this thread; spans of a thread nest. Returns its number; 0 if the timeline is off or full. The name
 * is cut at 32 bytes. Lock-free. */
TNT_API uint64_t tnt_timeline_begin(tnt_span kind, const char* name);
/* Ends a span on the thread that has begun it; with `forget`, discards the span. Ignores 0. Lock-free. */
TNT_API void tnt_timeline_end(uint64_t span, int forget);
/* Records that a training step now has its batch, of which this process has `rows` rows. For the first batch of a
 * step, the timeline shows the wait since the beginning of the step. Lock-free. */
TNT_API void tnt_timeline_batch(int64_t rows);
/* Writes the records of this process so far as rank `rank` to `file`, which is replaced as a whole: JSON in the Trace
 * Event Format. *lost gets the number of records that did not fit. */
TNT_API tnt_code tnt_timeline_write(const char* file, int rank, uint64_t* lost);

#ifdef __cplusplus
}
#endif

#endif
