/* limits.h -- limits and defaults that several programs keep, or several layers of one: who sends and who reads must agree,
 * and what the command line lets pass the store must take. */
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

#endif
