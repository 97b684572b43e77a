/* The C interface of the Tarantella core: collectives between the ranks of a job.
 *
 * Every function that can fail returns a tnt_code; tnt_last_error() then gives one line for a person: what
 * happened, to which rank or tensor, and what to do. No C++ exception crosses this interface.
 * Functions are thread-safe unless they say otherwise. "Collective" means: every rank of the context calls it, with
 * the same arguments but for the data, in the same order as other collective calls.
 * A context and its plans may be used by the process that made them only, not by a forked child
 * (TNT_INVALID_ARGUMENT there). */
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
  TNT_INVALID_ARGUMENT = 1, /* the caller's mistake; nothing was done */
  TNT_TIMEOUT = 2,          /* a wait reached its deadline */
  TNT_PEER_LOST = 3,        /* another rank died, left or aborted */
  TNT_MISMATCH = 4,         /* ranks called different operations, or with different arguments */
  TNT_OUT_OF_MEMORY = 5,    /* too little memory on the node for a shared region */
  TNT_SYSTEM = 6            /* a system call failed */
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

/* How the elements of several ranks become one: in rank order, so that all ranks and all runs get the same bits.
 * Integers wrap; float16 and bfloat16 are reduced in float32 and rounded once; a NaN of any rank is the minimum and the
 * maximum. There is no average of integers, no sum of bools, and no and/or of floating-point numbers. */
typedef enum tnt_reduction {
  TNT_SUM = 1,
  TNT_MIN = 2,
  TNT_MAX = 3,
  TNT_AND = 4,
  TNT_OR = 5,
  TNT_AVERAGE = 6
} tnt_reduction;

/* One rank's membership in a job, or in a group of some of its ranks. */
typedef struct tnt_context tnt_context;

/* A plan's number: valid in this process from tnt_plan_create() to tnt_plan_release(); never used twice. */
typedef uint64_t tnt_plan;

typedef struct tnt_options {
  int rank;            /* 0 … size-1, different for each */
  int size;            /* ranks of the job, all on this node */
  const char* job;     /* 1 to 64 characters, the same for all ranks, different for each job of a user */
  double meet_timeout; /* seconds that all ranks have to come; infinity: no limit */
  double
      stuck_timeout; /* seconds without a sign of life, counted while this rank looks, after which a rank counts as
                         * stuck; at least 2, or infinity: never */
  double grace;      /* seconds that a lost or disagreeing rank's launcher has to end the job before we do */
  double warn_every; /* seconds between two lines about a long wait; 0: 60 */
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

/* Collective. Blocks until all ranks have come, at most options->meet_timeout. The caller owns *context. */
TNT_API tnt_code tnt_context_create(const tnt_options* options, tnt_context** context);
/* Ends this rank's communication in the context and no other rank's: calls of other threads on it or its plans, and all
 * later ones, end with TNT_PEER_LOST, those under way within a tenth of a second. Waits for no other rank; not to be
 * called in a tnt_done. NULL is ignored, and so are further calls. */
TNT_API void tnt_context_close(tnt_context* context);
/* Leaves the job, or the group: closes the context, waits until the calls of other threads on it have ended, and releases
 * its plans (see tnt_plan_release). No call on it may begin after this one. Does not wait for other ranks, which find in
 * calls on it that this one has ended; its memory is given back when all have left. NULL is ignored. */
TNT_API void tnt_context_destroy(tnt_context* context);
/* This rank fails for a reason of its own: ends the context's communication on all ranks, unless it has ended already;
 * calls on other ranks then return TNT_PEER_LOST with "rank N failed: " and `reason`. Does not block. */
TNT_API tnt_code tnt_abort(tnt_context* context, const char* reason);
/* For programs that can say where they are. Blocks until another rank, which waits for this one, asks that: until there
 * are other questions than *seen (0 at first), which gets their number. One thread of a job's rank, which then calls
 * tnt_tell_place() with a text such as "train.py:12". TNT_PEER_LOST once the context is closed. */
TNT_API tnt_code tnt_await_question(tnt_context* context, uint32_t* seen);
TNT_API tnt_code tnt_tell_place(tnt_context* context, const char* place);
/* The first cause that ended this context's communication on any rank, as code and tnt_last_error(), or TNT_OK. */
TNT_API tnt_code tnt_failure(tnt_context* context);

/* Collective, blocks. A context of the `count` ranks in `ranks`, numbered in that order, in which they communicate on
 * their own: calls in different contexts may run at the same time. *group is NULL for a rank that is not among them.
 * The caller owns *group, and may destroy it before or after `context`. */
TNT_API tnt_code tnt_context_create_group(tnt_context* context, const int* ranks, size_t count,
                                          tnt_context** group);
/* This rank's number in the context, how many there are, and the number in the whole job of the context's `rank`; -1 for
 * a NULL context or a rank that does not exist. */
TNT_API int tnt_context_rank(const tnt_context* context);
TNT_API int tnt_context_job_rank(const tnt_context* context, int rank);
TNT_API int tnt_context_size(const tnt_context* context);

/* Collective, blocking, one at a time in a context. `count` is in elements; `name` (may be "") is compared over ranks
 * and named in errors. A buffer of no elements may be NULL. Input and output must not overlap, unless it is said. Ranks must
 * make the calls of one context and the steps of its plans in one order, whatever threads make them. Ranks that wait for one
 * another, in calls or for gradients, end with TNT_MISMATCH: after `grace` where the threads that made the job's context
 * wait (a plan's gradients count for the thread that made it), else after `stuck_timeout`, since other threads
 * may still go on. */
/* output[i] = the reduction over ranks of input[i]; output may be input. */
TNT_API tnt_code tnt_allreduce(tnt_context* context, const void* input, void* output, size_t count,
                               tnt_dtype dtype, tnt_reduction reduction, const char* name);
/* output[i] = the reduction over ranks of input[rank * count + i]: `input` has size * count elements. */
TNT_API tnt_code tnt_reduce_scatter(tnt_context* context, const void* input, void* output, size_t count,
                                    tnt_dtype dtype, tnt_reduction reduction, const char* name);
/* The root's data replaces that of the others. */
TNT_API tnt_code tnt_broadcast(tnt_context* context, void* data, size_t count, tnt_dtype dtype, int root,
                               const char* name);
/* output gets the elements of each rank in rank order: counts[rank] of each. All ranks pass the same `counts`. */
TNT_API tnt_code tnt_allgather(tnt_context* context, const void* input, void* output, const uint64_t* counts,
                               tnt_dtype dtype, const char* name);
/* input has send_counts[rank] elements for each rank, in rank order; output gets receive_counts[rank] from each. */
TNT_API tnt_code tnt_alltoall(tnt_context* context, const void* input, const uint64_t* send_counts,
                              void* output, const uint64_t* receive_counts, tnt_dtype dtype,
                              const char* name);
TNT_API tnt_code tnt_barrier(tnt_context* context, const char* name);

/* Memory of this rank that the others see, too: the fastest place for what is reduced again and again. */
typedef struct tnt_buffer tnt_buffer;
/* Collective, blocks. `bytes` of zeros, 64-byte aligned, for each rank; all ranks pass the same number. */
TNT_API tnt_code tnt_buffer_create(tnt_context* context, size_t bytes, tnt_buffer** buffer);
/* This rank's memory; valid until tnt_buffer_release(). Not to be touched while a rank is in
 * tnt_buffer_allreduce(). */
TNT_API void* tnt_buffer_data(tnt_buffer* buffer);
/* As tnt_allreduce() of the buffer's first `count` elements, in place. Its context must still be there. */
TNT_API tnt_code tnt_buffer_allreduce(tnt_buffer* buffer, size_t count, tnt_dtype dtype,
                                      tnt_reduction reduction, const char* name);
/* Not collective. NULL is ignored. */
TNT_API void tnt_buffer_release(tnt_buffer* buffer);

/* Not collective; waits at most for a blocking call of another thread. Says that this rank has done what `name` names, with a result of its own choice. */
TNT_API tnt_code tnt_post(tnt_context* context, const char* name, uint32_t result);
/* One-sided: blocks until `rank` has posted `name` since this rank's last collective call, as often as this rank has
 * waited for `name` since then. Earlier posts do not count, and `rank` waits for nobody. TNT_MISMATCH, which fails no
 * other rank, if `rank` leaves or goes on to a later collective call without it. */
TNT_API tnt_code tnt_wait_posted(tnt_context* context, int rank, const char* name, uint32_t* result);

/* Collective, blocks. A plan sums the same tensors over ranks every step, in buckets of
 * `fusion_threshold` bytes (0: a bucket a tensor), filled from the last tensor to the first; a large tensor is cut. The tensors are compared
 * over ranks: TNT_MISMATCH names the first that differs. */
TNT_API tnt_code tnt_plan_create(tnt_context* context, const char* name, const tnt_tensor* tensors,
                                 size_t count, size_t fusion_threshold, tnt_plan* plan);
/* Not collective. Tensors of the plan under way on this rank end with TNT_INVALID_ARGUMENT, some perhaps just after
 * this returns: their data must stay until their `done` is called. */
TNT_API tnt_code tnt_plan_release(tnt_plan plan);

/* Called once for each submitted tensor, from a thread of the core or inside a call of any thread on a plan or its context. With
 * TNT_OK, `result` (64-byte aligned, in memory that all ranks share) holds the sums and may be read until this rank
 * submits the tensor again or the plan's memory is released; otherwise it is NULL and `message` says why (valid during
 * the call). It must not block nor call tnt_context_destroy(). */
typedef void (*tnt_done)(void* user, tnt_code code, const char* message, const void* result);

/* Hands in this step's value of tensor `index`, which must stay as it is until `done` is called. Any thread, any order;
 * does not wait for other ranks. Each tensor is submitted once a step; the next step may begin as soon as its `done`
 * was called. On an error `done` is not called. */
TNT_API tnt_code tnt_plan_submit(tnt_plan plan, size_t index, const void* data, size_t count, tnt_dtype dtype,
                                 tnt_done done, void* user);

/* Blocks: hands in this step's value of every tensor and copies the sums to `outputs` (outputs[i] may be inputs[i]).
 * `tensors` must be the plan's number of them, bytes[i] the size of input and output i; `bytes` may be NULL where the
 * caller knows that they are the plan's. Ends with an error when the plan or the job does; counts as the plan's
 * step, so no tensor of it may be under way. */
TNT_API tnt_code tnt_plan_run(tnt_plan plan, const void* const* inputs, const size_t* bytes,
                              void* const* outputs, size_t tensors);

/* The bucket in which tensor `index` begins: tensors of one bucket end together, when all of them are submitted, so a
 * rank that submits one must be sure to submit the others. */
TNT_API tnt_code tnt_plan_bucket(tnt_plan plan, size_t index, size_t* bucket);

/* This rank cannot submit what others wait for: ends the job's communication on all ranks, with `reason`. */
TNT_API tnt_code tnt_plan_abort(tnt_plan plan, const char* reason);

/* Keeps a plan's results mapped, also after the plan or its context is gone. */
typedef struct tnt_memory tnt_memory;
TNT_API tnt_code tnt_plan_memory(tnt_plan plan, tnt_memory** memory);
/* NULL is ignored. */
TNT_API void tnt_memory_release(tnt_memory* memory);

typedef enum tnt_event { TNT_EVENT_SUBMIT = 1, TNT_EVENT_REDUCED = 2, TNT_EVENT_DONE = 3 } tnt_event;
typedef struct tnt_record {
  int64_t nanoseconds; /* of the monotonic clock */
  uint32_t event;      /* a tnt_event */
  uint32_t index;      /* of the tensor (submit) or of the bucket (reduced, done) */
} tnt_record;

/* Copies the newest events of the plan, oldest first, to `records` (room for `capacity`); *count gets their number. */
TNT_API tnt_code tnt_plan_trace(tnt_plan plan, tnt_record* records, size_t capacity, size_t* count);

#ifdef __cplusplus
}
#endif

#endif
