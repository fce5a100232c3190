/* error.h -- errors: each has a code and a sentence.
 *
 * Every call that can fail returns a ddp_status, the code. ddp_last_error() returns the sentence. Calls without a
 * context (store, checkpoints, sampler, arithmetic) also copy the code and the sentence into a `struct ddp_err`,
 * which may be NULL. The functions of this file never allocate, print or exit.
 *
 * "DDP_ERR_TIMEOUT names the ranks" in a comment means: if the code is DDP_ERR_TIMEOUT, the sentence has the ranks. */
#ifndef DDP_ERROR_H
#define DDP_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DDP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define DDP_API               __attribute__((visibility("default")))
#else
#define DDP_PRINTF(fmt, args)
#define DDP_API
#endif

/* All errors as rows of name, value and text. A value never changes; add new rows at the end. */
#define DDP_STATUS_LIST(X)                                                   \
    X(OK, 0, "ok")                                                           \
    X(IN_PROGRESS, 1, "in progress")                                         \
    X(ERR_ARG, 2, "invalid argument or wrong order of calls")                \
    X(ERR_ENV, 3, "environment variable missing or wrong")                   \
    X(ERR_TIMEOUT, 4, "deadline passed")                                     \
    X(ERR_PEER_LOST, 5, "another rank has died or left")                     \
    X(ERR_ABORTED, 6, "cancelled or aborted")                                \
    X(ERR_MISMATCH, 7, "ranks disagree")                                     \
    X(ERR_MEMBERSHIP, 8, "the attempt or the nodes of the job have changed") \
    X(ERR_IO, 9, "input or output error")                                    \
    X(ERR_CORRUPT, 10, "data is damaged or has another format")              \
    X(ERR_NOMEM, 11, "out of memory")                                        \
    X(ERR_CUDA, 12, "CUDA error")                                            \
    X(ERR_NCCL, 13, "NCCL error")                                            \
    X(ERR_UNSUPPORTED, 14, "not supported in this build or by this peer")    \
    X(ERR_CLOSED, 15, "connection closed by the peer")                       \
    X(ERR_LIMIT, 16, "a size or count is over its limit")

typedef enum ddp_status {
#define X(name, value, text) DDP_##name = value,
    DDP_STATUS_LIST(X)
#undef X
} ddp_status;

/* Return the name of `status`, such as "DDP_ERR_TIMEOUT", or "DDP_STATUS_?" for an unknown value. The text is
 * static. */
DDP_API const char *ddp_status_name(ddp_status status);

/* Return the text of `status`, such as "deadline passed". The text is static. */
DDP_API const char *ddp_status_text(ddp_status status);

/* The exit code of a worker that ends only because another rank has died or has given up (EX_TEMPFAIL of sysexits.h).
 * The launcher then searches for a rank that ended for another reason, and reports that rank as the cause. */
#define DDP_EXIT_PEER_LOST 75

/* Return the sentence of the last failure on this thread. The sentence names, for example, the rank, the operation and
 * the sequence number. Return "" if no call has failed. The text is valid until the next failure on this thread. Read
 * the text only after a failed call. */
DDP_API const char *ddp_last_error(void);

/* Return the exit code for an error of this library: 0 for DDP_OK, 2 for DDP_ERR_ARG, DDP_EXIT_PEER_LOST for
 * DDP_ERR_PEER_LOST and DDP_ERR_ABORTED, else 1. */
DDP_API int ddp_exit_code(ddp_status status);

struct ddp_err {
    ddp_status code;
    char msg[1024]; /* one sentence or a short list, without a newline at the end; "" if code is DDP_OK */
};

/* Set the code and the formatted sentence of `err`, and return `code`, so that a function can fail in one statement:
 * `return ddp_fail(err, DDP_ERR_ARG, ...)`. `err` may be NULL. Append a remedy if `code` is DDP_ERR_NOMEM and the
 * sentence contains "out of memory". Append nothing if "; " follows, because the sentence then has its own remedy. */
DDP_API ddp_status ddp_fail(struct ddp_err *err, ddp_status code, const char *fmt, ...) DDP_PRINTF(3, 4);

/* Put text in front of the sentence of `err` ("rank 3: connect to ...: refused"), and return err->code. If the
 * sentence becomes too long, "..." replaces its middle. */
DDP_API ddp_status ddp_wrap(struct ddp_err *err, const char *fmt, ...) DDP_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif
#endif
