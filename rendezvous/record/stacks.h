/* stacks.h -- where the threads of a job are: equal stacks are one row, with the threads that have it. Pure.
 *
 * An agent makes rows from the output of py-spy and from /proc; the store merges those of all agents; launcher and ddpctl
 * print them. A row is a JSON object, because it is also a message and a part of report.json:
 *
 *     {"frames": [{"function", "file", "line", "user"}, ...], "threads": [{"rank", "pid", "host", ...}, ...]}
 *     {"does": "sleeping in read", "threads": [...]}              a thread whose frames cannot be read
 *     {"note": "py-spy is not installed; ...", "threads": [...]}    why they cannot
 *
 * Every text comes from another process or host. Texts, frames, threads and rows have limits, and bytes that a terminal would
 * obey are replaced. */
#ifndef RENDEZVOUS_RECORD_STACKS_H
#define RENDEZVOUS_RECORD_STACKS_H

#include "base/buf.h"
#include "ddp/error.h"

#include <stdbool.h>
#include <stdint.h>

struct cJSON;

enum {
    STACKS_INPUT_MAX = 4 << 20, /* bytes of py-spy's output */
    STACKS_ROWS_MAX = 512,
    STACKS_THREADS_MAX = 4096,      /* of a row */
    STACKS_PROCESS_MAX = 64,        /* threads of a process */
    STACKS_FRAMES_MAX = 64,         /* of a stack: the innermost */
    STACKS_AGENT_BYTES = 256 << 10, /* rows of one agent */
    STACKS_JOB_BYTES = 900 << 10,   /* rows of a job: an answer of the store has room for no more */
    STACK_NAME_MAX = 128,
    STACK_FILE_MAX = 256,
    STACK_NOTE_MAX = 512,
};

/* The longest waits for stacks, in ms: each is shorter than that of whoever waits for it. */
enum {
    STACKS_PROCESS_MS = 2000, /* an agent for py-spy */
    STACKS_AGENT_MS = 3000,   /* an agent for all its processes */
    STACKS_STORE_MS = 4000,   /* the store for its agents; ddpctl waits 5 s */
    STACKS_FAILURE_MS = 1000, /* the stop of the survivors of a failure */
};

/* What a child does that has ended, and that its parent has not waited for. */
#define STACKS_ENDED "has ended"

struct stacks {
    struct cJSON *rows; /* owned: an array */
    size_t room;        /* bytes that may be added */
    bool is_cut;        /* something did not fit */
};

/* A thread, and what the kernel knows about it. */
struct stack_thread {
    int rank, pid, tid;
    bool is_main, is_child;    /* the first thread of its process; of a process that the worker has started */
    const char *host;          /* borrowed */
    char name[16];             /* "" = none */
    char does[STACK_NAME_MAX]; /* "sleeping in read"; "" = not known */
    char object[STACK_FILE_MAX]; /* "/data/x.bin": file, pipe or peer of the system call; "" = none */
    int64_t cpu_ms;              /* used since its start */
};

/* False when memory is short; free it in any case. */
bool stacks_init(struct stacks *s, size_t room);
void stacks_free(struct stacks *s);

/* Add the threads that `py-spy dump --json` has printed about one process. `threads` are those of the process by /proc, at least one;
 * the first one is its main thread. DDP_ERR_CORRUPT or DDP_ERR_LIMIT: it is no such text, and nothing is added. */
ddp_status stacks_add_py_spy(struct stacks *s, struct slice text, const struct stack_thread *threads,
                             size_t n, struct ddp_err *err);

/* Add a thread whose frames cannot be read. */
void stacks_add_thread(struct stacks *s, const struct stack_thread *thread);

/* Add the reason for that. */
void stacks_add_note(struct stacks *s, const struct stack_thread *thread, const char *note);

/* Add the rows of an agent. Unknown members and wrong types are left out. */
void stacks_merge(struct stacks *s, const struct cJSON *rows);

/* Append all rows as text, rare stacks first:
 *
 *     rank 1 (n1, pid 812): sleeping in clock_nanosleep
 *       > data  hang.py:5
 *       > <module>  hang.py:8
 *     ranks 0,2:
 *         all_reduce  torch/distributed/distributed_c10d.py:1322
 *       > <module>  hang.py:9
 *
 * A ">" marks frames of the user's program. False when memory is short. */
bool stacks_text(const struct cJSON *rows, struct buf *out);

/* Append the n-th row about main threads of workers in one line, without newline: "ranks 0,2: all_reduce (torch/distributed/
 * distributed_c10d.py:1322), called by <module> (hang.py:9)". *more is false when there is no such row. */
bool stacks_line(const struct cJSON *rows, int n, struct buf *out, bool *more);

#endif
