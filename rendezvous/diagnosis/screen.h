/* screen.h -- a snapshot and what was found out about it, as one screen of text and as JSON.
 *
 * The store makes both: ddpctl and every agent print the text as it is, so all nodes read the same. */
#ifndef RENDEZVOUS_SCREEN_H
#define RENDEZVOUS_SCREEN_H

#include "diagnosis/snapshot.h"

enum {
    SCREEN_NODES = 8,   /* rows of nodes that are here */
    SCREEN_MISSING = 4, /* rows of nodes that are not */
};

/* What is waited for, for how long, and which knob limits it; then the nodes, and the findings with their advice. Lines end
 * with a newline but for the last one. */
bool screen_put(const struct snapshot *s, const struct diagnosis *d, struct buf *out);
/* Adds "findings": [{"code":..,"grade":..,"subject":..,"sentence":..,"advice":..,"more":2}] to an object. False when
 * memory is short. */
bool screen_add_findings(struct cJSON *o, const struct diagnosis *d);
/* The same, with the screen as "text". */
bool screen_add(struct cJSON *o, const struct snapshot *s, const struct diagnosis *d);
/* A sentence as "text", of trouble with its code and its advice. */
bool screen_add_line(struct cJSON *o, const struct finding *f);
/* The same, and the finding as the only one of "findings". */
bool screen_add_one(struct cJSON *o, const struct finding *f);
/* The same with the headline and those findings alone that are news: "before" of the others are as they were. */
bool screen_add_news(struct cJSON *o, const struct snapshot *s, const struct diagnosis *news,
                     uint32_t before);

#endif
