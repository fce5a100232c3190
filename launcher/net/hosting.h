/* hosting.h -- a pure module that decides whether this node hosts the store or joins a store on another machine. A node
 * hosts the store if the address of the rendezvous is an address of its machine. Addresses are compared, not names,
 * because a machine may have several names. */
#ifndef LAUNCHER_NET_HOSTING_H
#define LAUNCHER_NET_HOSTING_H

#include "diagnosis/findings.h"
#include "plan/plan.h"

enum { HOSTING_ADDRESS_MAX = 64, HOSTING_WORDS_MAX = 2 * FINDING_TEXT_MAX + 64 };

struct own_address {
    char text[HOSTING_ADDRESS_MAX]; /* numeric */
    char interface[16];
};

/* The facts from which hosting_decide makes the decision; all borrowed. */
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
    HOSTING_TRY,  /* this node may host the store; a port in use means that another process hosts the store */
    HOSTING_JOIN, /* another machine hosts the store */
    HOSTING_ASK,  /* this node cannot host the store; if no store answers at once, `words` is the error */
    HOSTING_ERROR, /* the options can never work: `words` is the error */
};

struct hosting {
    enum hosting_choice choice;
    char address[HOSTING_ADDRESS_MAX];  /* for HOST and TRY: address to listen on; "" for every address */
    char dial[HOSTING_ADDRESS_MAX];     /* for HOST and TRY: address at which this node dials the store */
    bool here;                          /* the store is, or will be, on this machine */
    char local_only[PLAN_SENTENCE_MAX]; /* the warning LOOPBACK_ADDRESS (plan_meeting.local_only), or "" */
    const char *code; /* static text: code of the finding in `words`; NULL if `words` is not a finding */
    /* The error or warning if `code` is not NULL; else a line for the report of a failed dial, or "". */
    char words[HOSTING_WORDS_MAX];
};

/* Decide whether this node hosts the store or joins a store, and set *out. */
void hosting_decide(const struct hosting_facts *facts, struct hosting *out);

#endif
