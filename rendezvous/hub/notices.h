/* notices.h -- what nodes have found out about themselves and want all to know: limits that are too low, a port that is
 * taken, a neighbour that cannot be reached. The last of them are kept, the same one only once. */
#ifndef RENDEZVOUS_NOTICES_H
#define RENDEZVOUS_NOTICES_H

#include "diagnosis/findings.h"

enum { NOTICES_MAX = 16 };

/* Zeroed before first use. */
struct notices {
    struct finding *list; /* owned; room for NOTICES_MAX once there is one */
    uint32_t count, next; /* `next`: where the next one goes when there is no more room */
};

/* `code` is that of another version's table, perhaps: one that is not known here is passed over. */
void notices_add(struct notices *n, const char *code, const char *subject, const char *sentence,
                 const char *advice);
/* `subject` NULL = any. */
bool notices_have(const struct notices *n, enum finding_code code, const char *subject);
void notices_free(struct notices *n);

#endif
