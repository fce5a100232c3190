/* limits.h -- limits, defaults and keys on which several programs agree, or several layers of one: the sender and the reader of a message,
 * the command line and the store. */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

enum {
    LIMIT_NODES = 16384, /* of a job */
    LIMIT_NPROC = 4096,  /* workers of a node */
    LIMIT_LISTED = 256,  /* nodes of a round that are named to each of them */
    LIMIT_TEXT = 256,    /* bytes of a name (host, job), with the NUL */
    LIMIT_WORDS = 512,   /* bytes of a sentence, or a line of a worker's last words, with the NUL */
    LIMIT_LAST_LINES = 12,
    LIMIT_INSTANCE = 64, /* bytes of the nonce that tells one life of a job from the next */

    RDZV_DEFAULT_PORT = 29400, /* of an elastic job's store and of ddp-rendezvous, as torchrun's */

    /* A timer that rings so much too late says that this process stood still (stopped, or its virtual machine was). */
    STOOD_STILL_MS = 500,
};

/* How many nodes could be taken into the job now, in decimal digits; without the key there are none. */
#define GROW_WAITING_KEY "ddprun/waiting_nodes"
/* GROW_AGREED_KEY<rank>, whatever it holds: this rank agrees to be started again for a larger world. */
#define GROW_AGREED_KEY "ddprun/grow/"
/* PROGRESS_KEY<rank> holds the highest step that the rank has finished, in decimal digits. */
#define PROGRESS_KEY "ddprun/progress/"

#endif
