/* error.h -- errors: each has a code and a sentence.
 *
 * Every call that can fail returns a ddp_status, and ddp_last_error() returns the sentence. Calls that need no
 * context (the store's, those for checkpoints, sampler and arithmetic) also copy code and sentence into a `struct
 * ddp_err`, which may be NULL. Nothing here allocates, prints or exits. */
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

/* All errors: name, value, text. Values never change; add new ones at the end. */
#define DDP_STATUS_LIST(X)                                                \
    X(OK, 0, "ok")                                                        \
    X(IN_PROGRESS, 1, "in progress")                                      \
    X(ERR_ARG, 2, "invalid argument or wrong order of calls")             \
    X(ERR_ENV, 3, "environment variable missing or wrong")                \
    X(ERR_TIMEOUT, 4, "deadline passed")                                  \
    X(ERR_PEER_LOST, 5, "another rank has died or left")                  \
    X(ERR_ABORTED, 6, "cancelled or aborted")                             \
    X(ERR_MISMATCH, 7, "ranks disagree")                                  \
    X(ERR_MEMBERSHIP, 8, "membership has changed")                        \
    X(ERR_IO, 9, "input or output error")                                 \
    X(ERR_CORRUPT, 10, "data is damaged or foreign")                      \
    X(ERR_NOMEM, 11, "out of memory")                                     \
    X(ERR_CUDA, 12, "CUDA error")                                         \
    X(ERR_NCCL, 13, "NCCL error")                                         \
    X(ERR_UNSUPPORTED, 14, "not supported in this build or by this peer") \
    X(ERR_CLOSED, 15, "connection closed by the peer")                    \
    X(ERR_LIMIT, 16, "a size or count is over its limit")

typedef enum ddp_status {
#define X(name, value, text) DDP_##name = value,
    DDP_STATUS_LIST(X)
#undef X
} ddp_status;

/* Return the name of `status`, such as "DDP_ERR_TIMEOUT", or "DDP_STATUS_?" for a value that is not in the list. The
 * result is never NULL and never freed. */
DDP_API const char *ddp_status_name(ddp_status status);

/* Return the text of `status`, such as "deadline passed". The result is never NULL and never freed. */
DDP_API const char *ddp_status_text(ddp_status status);

/* The exit code of a worker that ends only because another rank has died or given up. The launcher then looks for
 * that other rank and reports that rank as the cause, even if that rank ends later. (sysexits.h: EX_TEMPFAIL) */
#define DDP_EXIT_PEER_LOST 75

/* Return the sentence of the last failure on this thread: rank, operation, sequence number, expected value. "" if
 * there was no failure. Valid until the next failing call on this thread; after a successful call the sentence has no
 * meaning. */
DDP_API const char *ddp_last_error(void);

/* Return an exit code for an error of this library: 0 for DDP_OK, 2 for DDP_ERR_ARG, DDP_EXIT_PEER_LOST for
 * DDP_ERR_PEER_LOST and DDP_ERR_ABORTED, otherwise 1. */
DDP_API int ddp_exit_code(ddp_status status);

struct ddp_err {
    ddp_status code;
    char msg[1024]; /* one sentence or a short list, without a newline at the end; "" if code is DDP_OK */
};

/* Set `err` (may be NULL) and return `code`, so that `return ddp_fail(err, DDP_ERR_ARG, ...)` reads well. */
DDP_API ddp_status ddp_fail(struct ddp_err *err, ddp_status code, const char *fmt, ...) DDP_PRINTF(3, 4);

/* Put text in front of the text of `err` ("rank 3: connect to ...: refused"); return err->code. A text that is too
 * long loses its end, never its beginning. */
DDP_API ddp_status ddp_wrap(struct ddp_err *err, const char *fmt, ...) DDP_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif
#endif
