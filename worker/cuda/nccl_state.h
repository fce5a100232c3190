/* nccl_state.h -- the life of a communicator, as a table. Pure.
 *
 *     creating -> ready -> leaving -> closed
 *         \         |         /
 *          `----> failing ---'-> aborted -> closed
 *
 * Any thread may bring the event, under one lock; who gets a wish carries it out. A communicator is aborted once, by whoever
 * is told to, and never used again. */
#ifndef CUDA_NCCL_STATE_H
#define CUDA_NCCL_STATE_H

enum nccl_state {
    NCCL_CREATING,
    NCCL_READY,
    NCCL_LEAVING,
    NCCL_FAILING,
    NCCL_ABORTED,
    NCCL_CLOSED,
    NCCL_STATES
};

enum nccl_event {
    NCCL_MET,   /* all ranks are connected */
    NCCL_FAULT, /* a time-out, an error of NCCL or CUDA, a peer's end, or somebody gives up */
    NCCL_LEFT,  /* the program's last call */
    NCCL_GONE,  /* the abort is done */
    NCCL_CLOSE, /* the owner frees it */
    NCCL_EVENTS
};

enum nccl_wish {
    NCCL_WISH_NONE,
    NCCL_WISH_ABORT,   /* tell the other ranks, and ncclCommAbort */
    NCCL_WISH_DESTROY, /* ncclCommFinalize and ncclCommDestroy */
    NCCL_WISH_WAIT,    /* another thread aborts: until NCCL_GONE */
};

struct nccl_step {
    enum nccl_state next;
    enum nccl_wish wish;
};

struct nccl_step nccl_step(enum nccl_state state, enum nccl_event event);

const char *nccl_state_name(enum nccl_state state);

#endif
