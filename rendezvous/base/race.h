/* race.h -- which address of a name is tried when. Pure.
 *
 * A name may have several addresses of which some lead nowhere: an IPv6 address on a machine without an IPv6 route, a
 * network card that is down. Each gets a short head start, then the next one starts beside it ("happy eyeballs",
 * RFC 8305), so that a dead address costs a quarter of a second and not the minutes of a connection that nobody answers.
 * The sockets are the caller's: connector.h opens them. */
#ifndef BASE_RACE_H
#define BASE_RACE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RACE_ADDRESSES_MAX = 8,
    RACE_TEXT_MAX = 64,     /* a numeric address, with its scope */
    RACE_CONNECT_MS = 5000, /* the kernel asks four times until then, and has given up on ARP */
    RACE_HELLO_MS = 3000
};

struct race {
    struct race_runner {
        char address[RACE_TEXT_MAX];
        enum race_state { RUNNER_WAITS, RUNNER_CONNECTS, RUNNER_GREETS, RUNNER_FAILED } state;
        uint64_t since_ms; /* of the state */
    } runners[RACE_ADDRESSES_MAX];
    int n;
    uint64_t next_ms; /* when the head start of the last one is over */
};

enum race_do {
    RACE_WAIT,  /* until `at_ms`, or until a runner has connected, answered or failed */
    RACE_START, /* connect `runner`; it counts as connecting already */
    RACE_LATE,  /* `runner` has taken too long: close it and call race_failed */
    RACE_LOST   /* all have failed */
};

struct race_step {
    enum race_do what;
    int runner;
    uint64_t at_ms;
};

/* The addresses of the race, in the resolver's order of preference (RFC 6724); those above RACE_ADDRESSES_MAX would only
 * make a round longer and are left out. */
void race_line_up(struct race *r, const char *const *addresses, int n);

/* All of them wait again. */
void race_begin(struct race *r, uint64_t now_ms);

/* What now? Ask until it is RACE_WAIT or RACE_LOST. */
struct race_step race_next(struct race *r, uint64_t now_ms);

/* The runner is connected, and has RACE_HELLO_MS for its answer. */
void race_connected(struct race *r, int runner, uint64_t now_ms);
void race_failed(struct race *r, int runner);

/* How long to wait before race number `round` (from 0): 20 ms, 30, 45, ... 2 s. A store that is being started is met
 * within a few milliseconds, and one that is away for minutes costs its machine next to nothing. `random` (any number)
 * makes it half to one and a half of that, so that a thousand nodes which were refused together do not come back
 * together. */
uint32_t race_pause_ms(unsigned round, uint32_t random);

#endif
