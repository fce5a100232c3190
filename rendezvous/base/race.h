/* race.h -- decides when to connect to which address of a host name. A connect to an address that does not answer, such
 * as an IPv6 address without a route, fails only after minutes. So each address is tried 250 ms after the previous
 * address, the earlier attempts continue, and the first connection wins ("happy eyeballs", RFC 8305). */
#ifndef BASE_RACE_H
#define BASE_RACE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RACE_ADDRESSES_MAX = 8,
    RACE_TEXT_MAX = 64, /* bytes of a numeric address with its scope and the NUL */
    /* Time limit of a connect in ms. In this time, the kernel sends the first packet of the connect several times. */
    RACE_CONNECT_MS = 5000,
    RACE_HELLO_MS = 3000, /* limit for the first answer on a connection; see race_connected */
};

/* A runner is the attempt to connect to one address. The caller owns the sockets, which connector.h opens. */
struct race {
    struct race_runner {
        char address[RACE_TEXT_MAX]; /* numeric */
        enum race_state {
            RUNNER_WAITS,    /* not started in this round */
            RUNNER_CONNECTS, /* the connect is in progress */
            RUNNER_GREETS,   /* connected; the peer has not answered yet */
            RUNNER_FAILED,
        } state;
        uint64_t since_ms; /* when the state began */
    } runners[RACE_ADDRESSES_MAX];
    int n;            /* number of runners */
    uint64_t next_ms; /* time from which the next runner may start while others still run */
};

enum race_do {
    RACE_WAIT,  /* wait until `at_ms`, or until a runner has connected, answered or failed */
    RACE_START, /* connect `runner`, whose state is already RUNNER_CONNECTS */
    RACE_LATE,  /* `runner` has timed out: close it and call race_failed */
    RACE_LOST   /* all runners have failed */
};

struct race_step {
    enum race_do what;
    int runner;     /* index of the runner, for RACE_START and RACE_LATE */
    uint64_t at_ms; /* for RACE_WAIT: time at which the wait ends */
};

/* Set the addresses of the race, the preferred address first (RFC 6724). The texts are copied. Only the first
 * RACE_ADDRESSES_MAX are used, because more addresses would only make a round longer. */
void race_line_up(struct race *r, const char *const *addresses, int n);

/* Start a new round of attempts to all addresses: all runners wait again. */
void race_begin(struct race *r, uint64_t now_ms);

/* Return the next action of the caller. For RACE_START the runner is already in the state RUNNER_CONNECTS. Call this
 * function until it returns RACE_WAIT or RACE_LOST. */
struct race_step race_next(struct race *r, uint64_t now_ms);

/* Record that the runner is connected. Its peer must answer within RACE_HELLO_MS. */
void race_connected(struct race *r, int runner, uint64_t now_ms);
/* Record that the runner has failed. The caller must close the runner's socket. */
void race_failed(struct race *r, int runner);

/* Return the pause in ms after round number `round` (from 0): 20, 30, 45, ... 2000. The first pauses are short, because
 * a store that has just started will listen soon. The last pauses are long, so that the tries cost little if the store
 * is missing for minutes. `random` scales the pause by 0.5 to 1.5, so that a thousand nodes do not connect at the same
 * time. */
uint32_t race_pause_ms(unsigned round, uint32_t random);

#endif
