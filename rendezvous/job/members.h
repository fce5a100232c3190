/* members.h -- the job that the store serves, and the facts about each of its ranks.
 *
 * The facts have two sources: the rank itself (IDENTIFY and other requests) and the agent that started its process.
 * Only the agent reports the end of a rank. A closed connection is no proof of an end: a worker may close its store
 * and continue to compute, or open a second connection before it closes the first. */
#ifndef RENDEZVOUS_MEMBERS_H
#define RENDEZVOUS_MEMBERS_H

#include "base/list.h"
#include "store/quota.h"

#include <stdint.h>

enum {
    MEMBER_TEXT_MAX = 256,  /* length of a job id or a host name, with the NUL */
    MEMBER_CALL_MAX = 16,   /* length of the name of a collective, with the NUL; longer names are cut */
    MEMBER_ERROR_MAX = 160, /* length of the last line of a traceback */
    MEMBER_WCHAN_MAX = 24,  /* length of the name of a kernel function; the end of a longer name is cut */
};

struct member {
    struct list sessions; /* open connections of the rank (session.by_rank) */
    char *host;           /* owned; NULL = unknown */
    char *error;          /* owned: last line of a traceback, if the rank has not moved since; else NULL */
    int pid;              /* the pid that the rank or its agent reported last */
    int process_pid;      /* pid of the process that the agent has started; 0 = not reported */
    bool met, exited;
    int exit_code, signal;
    bool told;           /* the rank exited after its agent had sent a stop signal */
    uint64_t gave_up_ms; /* when the rank last gave up the setup of a PyTorch group; 0 = never */
    uint64_t tried_ms;   /* when a closed connection of the rank last took part in a setup (torch_client) */
    char proc_state;     /* letter that the agent last read from /proc/PID/stat; 0 = never */
    int16_t cpu_percent; /* -1 = unknown */
    char wchan[MEMBER_WCHAN_MAX];
    uint64_t looked_ms;         /* when the agent last read the state */
    uint64_t state_since_ms;    /* when the process entered this state */
    bool stop_told;             /* the stopped process was reported */
    bool has_steps;             /* the rank reports its progress, in these fields: */
    int64_t step;               /* last finished step; -1 = none */
    uint64_t call_seq;          /* number of the rank's last collective */
    char call[MEMBER_CALL_MAX]; /* name of the collective that the rank is in now; "" = none */
    uint64_t stepped_ms;        /* when the rank last moved */
    uint64_t heard_ms;          /* time of the last byte from closed connections */
};

struct members {
    struct quota *quota; /* borrowed */
    bool known;          /* a job has been declared, */
    bool
        by_agent; /* an agent declared the attempt; false = the first worker that sent IDENTIFY declared it */
    int64_t attempt;
    uint32_t world_size;
    uint32_t connected;    /* open connections of all ranks together */
    struct member *member; /* owned: one member for each rank */
};

struct job_name {
    const char *job; /* borrowed, at most MEMBER_TEXT_MAX - 1 bytes */
    int64_t attempt;
    uint32_t world_size;
};

/* Start an attempt with unknown facts of all ranks. No session may be attached to a rank. Return false, and keep the
 * old attempt, if memory or quota is short. */
bool members_begin(struct members *m, const struct job_name *name, bool by_agent);
void members_free(struct members *m);

/* Return the facts of a rank, or NULL if the rank is outside the world. */
struct member *members_at(const struct members *m, uint32_t rank);

/* Record where the rank runs, as the rank or its agent has reported; `host` NULL = unknown. Return false if memory is
 * short. */
bool member_place(struct member *member, const char *host, int pid);

/* Return true if the rank ended with 0 by itself. A rank that was stopped may also end with 0. */
bool member_has_left(const struct member *member);

/* Record the state of the rank's process, which its agent has just read. `wchan` NULL = none. */
void member_look(struct member *member, char proc_state, int cpu_percent, const char *wchan, uint64_t now_ms);

/* Record the last line of the rank's traceback; NULL or "" = the rank has made progress since the traceback. The line
 * is discarded if memory is short. */
void member_error(struct member *member, const char *error);

/* Record that the rank has made progress. `call_seq` is the number of its last collective; `call` is the name of the
 * collective that the rank is in, "" or NULL = none. */
void member_step(struct member *member, int64_t step, uint64_t call_seq, const char *call, uint64_t now_ms);

#endif
