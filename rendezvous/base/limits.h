/* limits.h -- limits, defaults and keys shared by several programs, or by several layers of one: the sender
 * and the reader of a message, the command line and the store. */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

enum {
    LIMIT_NODES = 16384, /* of a job */
    LIMIT_NPROC = 4096,  /* workers of a node */
    LIMIT_LISTED = 256,  /* nodes of a round whose names are sent to each of them */
    LIMIT_TEXT = 256,    /* bytes of a name (host, job), with the NUL */
    LIMIT_WORDS = 512,   /* bytes of a sentence, or of a line from the end of a worker's log, with the NUL */
    LIMIT_LAST_LINES = 12,
    LIMIT_INSTANCE = 64, /* bytes of the nonce that differs between two lives of a job */

    RDZV_DEFAULT_PORT = 29400, /* of an elastic job's store and of ddp-rendezvous, as torchrun's */

    /* A timer that fires this much too late means that this process, or its virtual machine, was stopped. */
    STOOD_STILL_MS = 500,
};

/* The number of nodes that could join the job now, in decimal digits; 0 if the key is missing. */
#define GROW_WAITING_KEY "ddprun/waiting_nodes"
/* GROW_AGREED_KEY<rank>, with any value: this rank agrees to a restart with a larger world. */
#define GROW_AGREED_KEY "ddprun/grow/"
/* PROGRESS_KEY<rank> holds the highest step that the rank has finished, in decimal digits. */
#define PROGRESS_KEY "ddprun/progress/"

#endif
