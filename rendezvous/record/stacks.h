/* stacks.h -- the call stacks of the threads of a job, one row for each stack. The module is pure. A row is a JSON
 * object, because it is also a message and a part of report.json. */
#ifndef RENDEZVOUS_RECORD_STACKS_H
#define RENDEZVOUS_RECORD_STACKS_H

#include "base/buf.h"
#include "ddp/error.h"

#include <stdbool.h>
#include <stdint.h>

struct cJSON;

/* Limits of texts, frames, threads and rows. The limits are needed because all texts are from other processes or hosts.
 * Bytes that could control a terminal are replaced. */
enum {
    STACKS_INPUT_MAX = 4 << 20, /* bytes of py-spy's output */
    STACKS_ROWS_MAX = 512,
    STACKS_THREADS_MAX = 4096,      /* threads of a row */
    STACKS_PROCESS_MAX = 64,        /* threads of a process */
    STACKS_FRAMES_MAX = 64,         /* frames of a stack; only the innermost are kept */
    STACKS_AGENT_BYTES = 256 << 10, /* maximum size of one agent's rows, in bytes */
    STACKS_JOB_BYTES = 900 << 10,   /* maximum size of a job's rows, in bytes; must fit in one reply */
    STACK_NAME_MAX = 128,
    STACK_FILE_MAX = 256,
    STACK_NOTE_MAX = 512,
};

/* Timeouts for stacks in ms. Each timeout is shorter than the timeout of the process that waits for the result. */
enum {
    STACKS_PROCESS_MS = 2000, /* longest wait of an agent for py-spy */
    STACKS_AGENT_MS = 3000,   /* longest wait of an agent for the stacks of all its processes */
    STACKS_STORE_MS = 4000,   /* longest wait of the store for the agents; ddpctl waits 5 s */
    STACKS_FAILURE_MS = 1000, /* used after a failure instead of STACKS_PROCESS_MS and STACKS_AGENT_MS */
};

/* The value of "does" for a zombie process. */
#define STACKS_ENDED "has ended"
/* The value of "does" for a connection whose peer does not acknowledge data; "object" names the peer. */
#define STACKS_UNANSWERED "sends the same data again and again, without an answer"
/* The value of "does" for a connection that loses only large packets. %d is their size in bytes. */
#define STACKS_LOSES_LARGE "sends packets of %d bytes, which are lost, although small packets arrive"

/* The value of "object" for a thread that waits for the end of a child process. %d is the pid of the child. */
#define STACKS_CHILD "process %d"

/* A set of rows. A row is one stack, with all threads that have this stack. An agent makes rows from the output of
 * py-spy and from /proc, and the store merges the rows of all agents. Launcher and ddpctl print the rows. Examples of
 * rows:
 *
 *     {"frames": [{"function", "file", "line", "user"}, ...], "threads": [{"rank", "pid", "host", ...}, ...]}
 *     {"does": "sleeping in read", "threads": [...]}              a thread whose frames cannot be read
 *     {"note": "py-spy is not installed; ...", "threads": [...]}    the reason why frames cannot be read */
struct stacks {
    struct cJSON *rows; /* owned: an array */
    size_t room;        /* remaining bytes */
    int rows_max;       /* maximum number of rows */
    bool is_cut;        /* a text, frame, thread or row did not fit */
};

/* A thread, and the facts that the kernel reports about it. */
struct stack_thread {
    int rank, pid, tid;
    bool is_main;                /* the first thread of its process */
    bool is_child;               /* a thread of a process that the worker has started */
    const char *host;            /* borrowed */
    char name[16];               /* "" if the thread has no name */
    char does[STACK_NAME_MAX];   /* "sleeping in read"; "" = unknown */
    char object[STACK_FILE_MAX]; /* "/data/x.bin": file, pipe or peer of the system call; "" = none */
    int64_t cpu_ms;              /* CPU time since the thread started */
    int64_t runs;                /* number of times that the thread got a CPU since it started; 0 = unknown */
    int waits_for;               /* pid of the child process for which the thread waits; 0 = none */
    bool is_denied;              /* the kernel forbids reading the thread's system call */
};

/* Create an empty set of rows. `room` is the maximum size of the rows in bytes. Return false if memory is short. Call
 * stacks_free in any case. */
bool stacks_init(struct stacks *s, size_t room);
void stacks_free(struct stacks *s);

/* Return the thread's CPU time in ms (stacks_cpu_ms), or the number of times that the thread got a CPU (stacks_runs).
 * Return 0 if the number is unknown. `thread` is from a row of stacks. */
int64_t stacks_cpu_ms(const struct cJSON *thread);
int64_t stacks_runs(const struct cJSON *thread);

/* Add the threads of one process from the output of `py-spy dump --json`. `threads` are the threads of the process in
 * /proc, at least one; the first is the main thread. Return DDP_ERR_CORRUPT if the text is not in py-spy's format, or
 * DDP_ERR_LIMIT if the text is too long. After an error, no row is added. */
ddp_status stacks_add_py_spy(struct stacks *s, struct slice text, const struct stack_thread *threads,
                             size_t n, struct ddp_err *err);

/* Add a thread whose frames cannot be read. */
void stacks_add_thread(struct stacks *s, const struct stack_thread *thread);

/* Add the reason why the frames of a thread cannot be read. */
void stacks_add_note(struct stacks *s, const struct stack_thread *thread, const char *note);

/* Add the rows of an agent that runs `n` ranks from `first`. Leave out threads of other ranks. Leave out JSON members
 * that are unknown or have a wrong type. */
void stacks_merge(struct stacks *s, const struct cJSON *rows, uint32_t first, uint32_t n);

/* Append all rows as text, rare stacks first:
 *
 *     rank 1 (n1, pid 812): sleeping in clock_nanosleep
 *       > data  hang.py:5
 *       > <module>  hang.py:8
 *     ranks 0,2:
 *         all_reduce  torch/distributed/distributed_c10d.py:1322
 *       > <module>  hang.py:9
 *
 * A ">" marks frames of the user's program. Return false if memory is short. */
bool stacks_text(const struct cJSON *rows, struct buf *out);

/* Append a short form of stacks_text: at most `most` lines, and two frames of each row. These are the innermost frame,
 * and the innermost frame of the user's program. A child process or a thread is left out if it runs no code of the
 * user. The main thread of a worker is never left out for this reason. Return the total number of rows that are left
 * out, or -1 if memory is short. */
int stacks_brief(const struct cJSON *rows, int most, struct buf *out);

#endif
