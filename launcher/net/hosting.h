/* hosting.h -- does this node have the store, on which of its addresses, or where does it look for it? Pure.
 *
 * Addresses are compared, never names: what a machine calls itself is often not what the others call it. */
#ifndef LAUNCHER_NET_HOSTING_H
#define LAUNCHER_NET_HOSTING_H

#include "diagnosis/findings.h"
#include "plan/plan.h"

enum { HOSTING_ADDRESS_MAX = 64, HOSTING_WORDS_MAX = 2 * FINDING_TEXT_MAX + 64 };

struct own_address {
    char text[HOSTING_ADDRESS_MAX]; /* numeric */
    char interface[16];
};

/* Looked up by the shell; all borrowed. */
struct hosting_facts {
    const struct plan_meeting *meeting;
    const char *here;            /* name of this node */
    const char *const *resolved; /* numeric addresses of meeting->host */
    int n_resolved;
    const struct own_address *own;
    int n_own;
};

enum hosting_choice {
    HOSTING_HOST,  /* it must: a port in use is an error */
    HOSTING_TRY,   /* it may host: a port in use means that another process hosts the store here */
    HOSTING_JOIN,  /* it is elsewhere */
    HOSTING_ASK,   /* it should be here and cannot; `words` is true unless a store answers there at once */
    HOSTING_ERROR, /* it can never work: `words` */
};

struct hosting {
    enum hosting_choice choice;
    char address[HOSTING_ADDRESS_MAX];  /* HOST, TRY: listen there alone; "" = on every address */
    char dial[HOSTING_ADDRESS_MAX];     /* HOST, TRY: where this node itself reaches it */
    bool here;                          /* the store is, or will be, on this machine */
    char local_only[PLAN_SENTENCE_MAX]; /* for plan_meeting.local_only, or "" */
    const char *code;                   /* of `words`, static; NULL = nothing to say */
    char words
        [HOSTING_WORDS_MAX]; /* HOSTING_ERROR, _ASK: why, and what to do. HOSTING_JOIN: a line for the report when the
                                      store is not found. Else a warning, or "" */
};

void hosting_decide(const struct hosting_facts *facts, struct hosting *out);

#endif
