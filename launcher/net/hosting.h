/* hosting.h -- decides whether this node hosts the store, on which address, or where the store is. Pure.
 *
 * Only addresses are compared, not names, because other nodes may use another name for this machine than the machine
 * itself. */
#ifndef LAUNCHER_NET_HOSTING_H
#define LAUNCHER_NET_HOSTING_H

#include "diagnosis/findings.h"
#include "plan/plan.h"

enum { HOSTING_ADDRESS_MAX = 64, HOSTING_WORDS_MAX = 2 * FINDING_TEXT_MAX + 64 };

struct own_address {
    char text[HOSTING_ADDRESS_MAX]; /* numeric */
    char interface[16];
};

/* The facts, filled in by the shell; all borrowed. */
struct hosting_facts {
    const struct plan_meeting *meeting;
    const char *here;            /* name of this node */
    const char *const *resolved; /* numeric addresses of meeting->host */
    int n_resolved;
    const struct own_address *own;
    int n_own;
};

enum hosting_choice {
    HOSTING_HOST, /* this node must host the store: a port in use is an error */
    HOSTING_TRY, /* this node may host the store: if the port is in use, another process hosts the store here */
    HOSTING_JOIN, /* the store is elsewhere */
    HOSTING_ASK, /* this node should host the store but cannot; `words` is the error unless a store answers at once */
    HOSTING_ERROR, /* the options can never work: `words` has the reason */
};

struct hosting {
    enum hosting_choice choice;
    char address[HOSTING_ADDRESS_MAX]; /* for HOST and TRY: address on which to listen; "" = every address */
    char dial[HOSTING_ADDRESS_MAX]; /* for HOST and TRY: the address by which this node reaches the store */
    bool here;                      /* the store is, or will be, on this machine */
    char local_only[PLAN_SENTENCE_MAX]; /* for plan_meeting.local_only, or "" */
    const char *code;                   /* code of `words`, static; NULL = nothing to report */
    char words
        [HOSTING_WORDS_MAX]; /* HOSTING_ERROR, _ASK: the reason and the remedy. HOSTING_JOIN: a line for the report if the store is not found. Otherwise a warning, or "" */
};

void hosting_decide(const struct hosting_facts *facts, struct hosting *out);

#endif
