/* link_frames.h -- requests and answers of the link as bytes: what is to be sent, and what has come.
 *
 * A request is its opcode, a length and JSON; an answer is a length and JSON. Only IDENTIFY's answer has a status in
 * front. Both ways are bounded. */
#ifndef LAUNCHER_LINK_FRAMES_H
#define LAUNCHER_LINK_FRAMES_H

#include "base/buf.h"
#include "store/ops.h"

struct cJSON;

enum { LINK_QUEUE_MAX = 4 << 20 }; /* ten times what the starts and ends of 1,000 workers take */

/* Requests that nobody has taken yet. */
struct link_queue {
    struct buf bytes;
    bool full, no_memory; /* a request did not fit: nothing is taken any more */
};

/* PyTorch's greeting: it makes the connection one of dialect C, in which our requests have their numbers. */
void link_queue_validate(struct link_queue *q);

/* Append a request that consists of `json`, which is freed in any case. Half a request would be taken for the
 * beginning of the next: it is all of it or nothing. */
bool link_queue_add(struct link_queue *q, enum op_id op, struct cJSON *json);
void link_queue_free(struct link_queue *q);

/* The first answer of `in`, which has a status in front when `status` is not NULL: 1 = *text is its JSON (borrowed
 * from `in`) and *used the bytes it takes, 0 = not all of it is here, -1 = no sane length. */
int link_answer(const struct buf *in, uint8_t *status, struct slice *text, size_t *used);

#endif
