/* members.h -- the job that the store serves, and the facts about each of its ranks.
 *
 * Two sources: the rank itself (IDENTIFY, its bytes) and the agent that started its process. Only the agent can end a
 * rank: a closed connection is evidence, not proof, since a worker may close its store and continue to compute, or
 * open a second connection before it closes the first. */
#ifndef RENDEZVOUS_MEMBERS_H
#define RENDEZVOUS_MEMBERS_H

#include "base/list.h"
#include "store/quota.h"

#include <stdint.h>

enum {
    MEMBER_TEXT_MAX = 256,  /* length of a job id or a host name, with the NUL */
    MEMBER_CALL_MAX = 16,   /* length of the name of a collective, with the NUL; longer names are cut */
    MEMBER_ERROR_MAX = 160, /* length of the last line of a traceback */
    MEMBER_WCHAN_MAX = 24,  /* length of the name of a kernel function; the end of a longer one is cut */
};

struct member {
    struct list sessions; /* its open connections (session.by_rank) */
    char *host;           /* owned; NULL = unknown */
    char *error;          /* owned: last line of a traceback, after which it has not moved; NULL = none */
    int pid;              /* from itself, else from its agent */
    int process_pid;      /* of the process its agent has started; 0 = no agent has reported one */
    bool met, exited;
    int exit_code, signal;
    bool told;           /* ... after its agent had sent it a stop signal */
    uint64_t gave_up_ms; /* when it last gave up the setup of a PyTorch group; 0 = never */
    uint64_t tried_ms;   /* when closed connections of it were last at a setup (torch_client) */
    char proc_state;     /* as its agent last saw it, the letter of /proc/PID/stat; 0 = never seen */
    int16_t cpu_percent; /* -1 = not known */
    char wchan[MEMBER_WCHAN_MAX];
    uint64_t looked_ms;         /* time of that report */
    uint64_t state_since_ms;    /* since when it is in that state */
    bool stop_told;             /* that it is stopped was reported */
    bool has_steps;             /* it reports its progress: */
    int64_t step;               /* last finished step; -1 = none */
    uint64_t call_seq;          /* number of its last collective */
    char call[MEMBER_CALL_MAX]; /* name of the collective that it is in now; "" = none */
    uint64_t stepped_ms;        /* time of its last movement */
    uint64_t heard_ms;          /* time of the last byte from closed connections */
};

struct members {
    struct quota *quota; /* borrowed */
    bool known;          /* a job has been declared: */
    bool by_agent;       /* by an agent, or else by the first worker that sent IDENTIFY */
    int64_t attempt;
    uint32_t world_size;
    uint32_t connected;    /* open connections of all ranks together */
    struct member *member; /* world_size of them, owned */
};

struct job_name {
    const char *job; /* borrowed, at most MEMBER_TEXT_MAX - 1 bytes */
    int64_t attempt;
    uint32_t world_size;
};

/* Start a new attempt (or the first): no rank is known. No session may be attached. False when memory or quota is
 * short; then the old one is kept. */
bool members_begin(struct members *m, const struct job_name *name, bool by_agent);
void members_free(struct members *m);

/* Return NULL when the rank is outside the world. */
struct member *members_at(const struct members *m, uint32_t rank);

/* Record where the rank runs, from its agent or itself; `host` NULL = unknown. False: memory is short. */
bool member_place(struct member *member, const char *host, int pid);

/* True if it has ended with 0 by itself: a rank that was stopped may also end with 0. */
bool member_has_left(const struct member *member);

/* Record the state that its agent has just seen of its process; `wchan` NULL = none. */
void member_look(struct member *member, char proc_state, int cpu_percent, const char *wchan, uint64_t now_ms);

/* It has printed a traceback with this last line; NULL or "" = it has moved since. Dropped when memory is short. */
void member_error(struct member *member, const char *error);

/* It has moved: `call` is the name of the collective that it is in, number `call_seq`; "" or NULL = none. */
void member_step(struct member *member, int64_t step, uint64_t call_seq, const char *call, uint64_t now_ms);

#endif
