/* members.h -- the job that the store serves, and the facts about each of its ranks. The facts come from the rank
 * itself (IDENTIFY and other requests) and from the agent that started the rank. Only the agent reports the end of a
 * rank, because a worker may close its connection and continue to compute. */
#ifndef RENDEZVOUS_MEMBERS_H
#define RENDEZVOUS_MEMBERS_H

#include "base/list.h"
#include "store/quota.h"

#include <stdint.h>

enum {
    MEMBER_TEXT_MAX = 256, /* size of a job id or a host name, in bytes with the NUL */
    MEMBER_CALL_MAX = 16,  /* size of the name of a collective, in bytes with the NUL; longer names are cut */
    MEMBER_ERROR_MAX = 160, /* size of the last line of a traceback, in bytes with the NUL */
    /* size of the name of a kernel function, in bytes with the NUL; longer names are cut */
    MEMBER_WCHAN_MAX = 24,
};

struct member {
    struct list sessions; /* open connections of the rank (session.by_rank) */
    char *host;           /* owned; NULL = unknown */
    char *error;          /* owned: last line of the traceback since the last progress; NULL = none */
    /* The latest reported pid of the worker. If the worker is a script that waits for a program, `pid` is the pid of
     * this program. */
    int pid;
    int process_pid; /* pid of the process that the agent has started for the rank; 0 = not reported */
    bool met;        /* the rank has had a connection in this attempt */
    bool exited;     /* the agent has reported the end of the rank; then the next three fields are valid */
    int exit_code, signal; /* the rank was killed by `signal`; if `signal` is 0, it exited with `exit_code` */
    bool stop_requested;   /* the agent had sent a stop signal before the rank exited */
    uint64_t gave_up_ms;   /* when the rank last gave up the setup of a PyTorch group, in ms; 0 = never */
    uint64_t tried_ms;     /* when the rank last worked on the setup of a PyTorch group, in ms; 0 = never */
    char proc_state;       /* process state from /proc/PID/stat, read by the agent; 0 = never read */
    int16_t cpu_percent;   /* CPU use in % since the agent's previous sample; may exceed 100; -1 = unknown */
    char wchan[MEMBER_WCHAN_MAX]; /* kernel function in which the process sleeps; "" = unknown */
    uint64_t state_since_ms;      /* when the process entered proc_state, or when it exited */
    bool stop_reported;           /* the diagnosis has reported that the process is stopped (SIGSTOP) */
    bool has_steps;               /* the rank reports its progress; then the next four fields are valid */
    int64_t step;                 /* last finished step; -1 = none */
    uint64_t call_seq;            /* number of the rank's last collective */
    char call[MEMBER_CALL_MAX];   /* name of the collective that the rank is in now; "" = none */
    uint64_t stepped_ms;          /* time of the last change of `step` or of the call */
    uint64_t last_received_ms;    /* highest last_received_ms of all closed sessions of the rank */
};

struct members {
    struct quota *quota;   /* borrowed */
    bool known;            /* members_begin has been called; the fields below are valid */
    bool by_agent;         /* true = an agent began the attempt; false = a worker began it (IDENTIFY) */
    int64_t attempt;       /* counted from 0 */
    uint32_t world_size;   /* number of ranks */
    uint32_t connected;    /* number of open connections of all ranks */
    struct member *member; /* owned; array of world_size entries, indexed by rank */
};

struct job_name {
    const char *job; /* borrowed, at most MEMBER_TEXT_MAX - 1 bytes */
    int64_t attempt;
    uint32_t world_size;
};

/* Begin an attempt. Nothing is known about its ranks yet. The caller must first detach all sessions from their ranks.
 * Return false, and keep the old attempt, if memory or quota is short. */
bool members_begin(struct members *m, const struct job_name *name, bool by_agent);
/* Free the facts of all ranks, and return their bytes to the quota. Keep the fields `quota` and `connected`. */
void members_free(struct members *m);

/* Return the facts of a rank, owned by `m`, or NULL if the rank is outside the world. */
struct member *members_at(const struct members *m, uint32_t rank);

/* Record the host and the pid of a rank. `host` is NULL if unknown. Return false if memory is short. */
bool member_place(struct member *member, const char *host, int pid);

/* Return true if the rank exited with 0 and its agent had not stopped it. */
bool member_has_left(const struct member *member);

/* Record the state of the rank's process, as read by its agent. `wchan` is NULL if unknown. */
void member_set_state(struct member *member, char proc_state, int cpu_percent, const char *wchan,
                      uint64_t now_ms);

/* Record the last line of the rank's traceback. If `error` is NULL or "", delete the line, because the rank has made
 * progress since then. If memory is short, no line is recorded. */
void member_error(struct member *member, const char *error);

/* Record that the rank has made progress. `call_seq` is the number of its last collective. `call` is the name of the
 * collective that the rank is in now. "" or NULL means that the rank is in no collective. */
void member_step(struct member *member, int64_t step, uint64_t call_seq, const char *call, uint64_t now_ms);

#endif
