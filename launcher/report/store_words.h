/* store_words.h -- what a node says that has lost its store: whose fault it is, as far as it can know. */
#ifndef LAUNCHER_STORE_WORDS_H
#define LAUNCHER_STORE_WORDS_H

#include "diagnosis/findings.h"

/* All texts are borrowed. */
struct store_loss {
    const char *host;         /* this one */
    int node_rank;            /* -1 = it has none yet */
    int pid;                  /* of this ddprun's agent */
    const char *how;          /* "the store closed the connection" */
    const char *dropped;      /* the store's last word, "silent for 3000 ms"; "" = it has said none */
    uint64_t stood_ms;        /* this process stood still for so long just before; 0 = it did not */
    uint64_t node_timeout_ms; /* the limit that it was judged by */
};

/* False when it is not this node that the loss is about: then `how` is all there is to say. */
bool store_loss_finding(const struct store_loss *loss, struct finding *out);

#endif
