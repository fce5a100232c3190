/* limits.h -- limits, defaults and keys that several programs or several layers of one program share. */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

enum {
    LIMIT_NODES = 16384, /* nodes of a job */
    LIMIT_NPROC = 4096,  /* workers of a node */
    LIMIT_LISTED = 256,  /* at most this many names of nodes are sent to each node after a round */
    LIMIT_TEXT = 256,    /* bytes of a name (host, job), with the NUL */
    LIMIT_WORDS = 512,   /* bytes of a sentence, or of a line from the end of a worker's log, with the NUL */
    LIMIT_LAST_LINES = 12,
    LIMIT_INSTANCE = 64, /* bytes of the nonce that distinguishes two runs of a job */
    LIMIT_TOKEN = 32,    /* hexadecimal digits of the token of a node */

    RDZV_DEFAULT_PORT = 29400, /* port of an elastic job's store and of ddp-rendezvous, as in torchrun */

    /* A timer that fires this many ms late shows that the process or its virtual machine was stopped. */
    STOOD_STILL_MS = 500,
};

/* Key with the number of nodes that could join the job now, in decimal digits. A missing key means 0. */
#define GROW_WAITING_KEY "ddprun/waiting_nodes"
/* Key prefix. GROW_AGREED_KEY<rank> exists if this rank agrees to a restart with a larger world. */
#define GROW_AGREED_KEY "ddprun/grow/"
/* Key prefix. PROGRESS_KEY<rank> has the highest step that the rank has finished, in decimal digits. */
#define PROGRESS_KEY "ddprun/progress/"

#endif
