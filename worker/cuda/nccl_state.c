/* nccl_state.c -- see nccl_state.h. */
#include "cuda/nccl_state.h"

#define NO(state)                    \
    {                                \
        NCCL_##state, NCCL_WISH_NONE \
    }
#define GO(state)                    \
    {                                \
        NCCL_##state, NCCL_WISH_NONE \
    }
#define ABORT                         \
    {                                 \
        NCCL_FAILING, NCCL_WISH_ABORT \
    }
#define WAIT                         \
    {                                \
        NCCL_FAILING, NCCL_WISH_WAIT \
    }
#define DESTROY                        \
    {                                  \
        NCCL_CLOSED, NCCL_WISH_DESTROY \
    }

/* Whoever closes what failed on the way aborts it first, and closes it then. */
static const struct nccl_step table[NCCL_STATES][NCCL_EVENTS] = {
    /*                   MET           FAULT        LEFT          GONE         CLOSE      */
    [NCCL_CREATING] = { GO(READY), ABORT, NO(CREATING), NO(CREATING), ABORT },
    [NCCL_READY] = { NO(READY), ABORT, GO(LEAVING), NO(READY), DESTROY },
    [NCCL_LEAVING] = { NO(LEAVING), ABORT, NO(LEAVING), NO(LEAVING), DESTROY },
    [NCCL_FAILING] = { NO(FAILING), NO(FAILING), NO(FAILING), GO(ABORTED), WAIT },
    [NCCL_ABORTED] = { NO(ABORTED), NO(ABORTED), NO(ABORTED), NO(ABORTED), GO(CLOSED) },
    [NCCL_CLOSED] = { NO(CLOSED), NO(CLOSED), NO(CLOSED), NO(CLOSED), NO(CLOSED) },
};

struct nccl_step nccl_step(enum nccl_state state, enum nccl_event event)
{
    return table[state][event];
}

static const char *const names[NCCL_STATES] = {
    [NCCL_CREATING] = "creating", [NCCL_READY] = "ready",     [NCCL_LEAVING] = "leaving",
    [NCCL_FAILING] = "failing",   [NCCL_ABORTED] = "aborted", [NCCL_CLOSED] = "closed",
};

const char *nccl_state_name(enum nccl_state state)
{
    return names[state];
}
