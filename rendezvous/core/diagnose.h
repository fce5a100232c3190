/* diagnose.h -- from what is known of a rank to a sentence a person can act on. Pure: facts in, words
 * out.
 *
 * Every sentence is a row of RANK_FINDINGS; the JSON state of the protocol comes from the same row.
 * {where}, {silent}, {waits}, {code} and {signal} stand for the facts. */
#ifndef RENDEZVOUS_DIAGNOSE_H
#define RENDEZVOUS_DIAGNOSE_H

#include "base/buf.h"

#include <stdint.h>

struct cJSON;

/* clang-format off */
#define RANK_FINDINGS(X)                                                                                     \
    /* finding         state in JSON       what a person reads behind "rank 3: " */                          \
    X(UNKNOWN,         "never_connected",  "never connected")                                                \
    X(STARTED,         "never_connected",  "never connected; its process was started{where}")                \
    X(CONNECTED,       "connected",        "connected{where}, but has not come; last heard {silent} ago")    \
    X(WAITS_ELSEWHERE, "connected",                                                                          \
      "connected{where}, but waits for {waits}; last heard {silent} ago")                                    \
    X(DISCONNECTED,    "disconnected",                                                                       \
      "was connected{where}, but has closed its connection; last heard {silent} ago")                        \
    X(EXITED,          "exited",           "has exited with code {code}{where}")                             \
    X(KILLED,          "exited",           "was killed by signal {signal}{where}")
/* clang-format on */

/* What is known of one rank. Strings are borrowed. */
struct rank_facts {
    uint32_t rank;
    const char *host; /* NULL = unknown */
    int pid;          /* 0 = unknown */
    bool started;     /* an agent has started its process */
    bool met;         /* it has introduced itself */
    bool connected;   /* ... and a connection of it is open */
    bool exited;      /* an agent has seen its process end, with: */
    int exit_code, signal;
    char proc_state;       /* of its process as its agent saw it last ('T' = stopped); 0 = not seen, or: */
    int cpu_percent;       /* -1 = not known */
    const char *wchan;     /* the kernel function it sleeps in; NULL = none */
    uint64_t silent_ms;    /* since its last byte, if `met` */
    const char *waits_for; /* "key '/x'", "barrier 'y'"; NULL = nothing */
};

/* Append the sentence, without "rank N: ". False when memory is short. */
bool diagnose_sentence(const struct rank_facts *facts, struct buf *out);

/* A JSON object with what is known: {"rank":3,"state":"connected","host":...}; yours (cJSON_Delete), NULL
 * when memory is short. */
struct cJSON *diagnose_json(const struct rank_facts *facts);

#endif
