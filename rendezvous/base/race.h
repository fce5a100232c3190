/* race.h -- decides when to try which address of a name. A runner is the attempt to connect to one address. Pure.
 *
 * Some addresses of a name may be dead: IPv6 on a host without an IPv6 route, a network card that is down. Each
 * address gets a short head start before the next address is tried in parallel ("happy eyeballs", RFC 8305). So a dead
 * address costs a quarter of a second instead of the minutes of an unanswered connect. The caller owns the sockets,
 * which connector.h opens. */
#ifndef BASE_RACE_H
#define BASE_RACE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RACE_ADDRESSES_MAX = 8,
    RACE_TEXT_MAX = 64,     /* a numeric address, with its scope */
    RACE_CONNECT_MS = 5000, /* within this time, the kernel sends four SYNs and gives up on ARP */
    RACE_HELLO_MS = 3000
};

struct race {
    struct race_runner {
        char address[RACE_TEXT_MAX];
        enum race_state { RUNNER_WAITS, RUNNER_CONNECTS, RUNNER_GREETS, RUNNER_FAILED } state;
        uint64_t since_ms; /* when the state began */
    } runners[RACE_ADDRESSES_MAX];
    int n;
    uint64_t next_ms; /* when the head start of the latest runner is over */
};

enum race_do {
    RACE_WAIT,  /* wait until `at_ms`, or until a runner has connected, answered or failed */
    RACE_START, /* connect `runner`, whose state is already RUNNER_CONNECTS */
    RACE_LATE,  /* `runner` has timed out: close it and call race_failed */
    RACE_LOST   /* all runners have failed */
};

struct race_step {
    enum race_do what;
    int runner;
    uint64_t at_ms;
};

/* Set the addresses of the race, in the resolver's order of preference (RFC 6724). Only the first RACE_ADDRESSES_MAX
 * are used, because more addresses would only lengthen a round. */
void race_line_up(struct race *r, const char *const *addresses, int n);

/* Start a new round: all runners wait again. */
void race_begin(struct race *r, uint64_t now_ms);

/* Return the next action. Call this function until it returns RACE_WAIT or RACE_LOST. */
struct race_step race_next(struct race *r, uint64_t now_ms);

/* Record that the runner is connected. Its peer must answer within RACE_HELLO_MS. */
void race_connected(struct race *r, int runner, uint64_t now_ms);
void race_failed(struct race *r, int runner);

/* Return the pause before race number `round` (from 0): 20 ms, 30, 45, ... 2 s. A store that is starting is found
 * within a few milliseconds. While a store is away for minutes, the attempts cost its host almost nothing. `random`
 * scales the pause by a factor from 0.5 to 1.5, so that a thousand rejected nodes do not connect at the same time. */
uint32_t race_pause_ms(unsigned round, uint32_t random);

#endif
