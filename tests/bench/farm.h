/* farm.h -- one process that acts as thousands of agents or workers of a real store. For bench_agents only.
 *
 * Each agent or worker is a socket with a separate address in 127.0.0.0/8. All sockets share one epoll, and send what
 * launchers and libddp send. Messages of the store are counted by kind, from their first bytes. The rest of a message
 * is read and dropped. */
#ifndef TESTS_BENCH_FARM_H
#define TESTS_BENCH_FARM_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum farm_kind {
    FARM_OK,
    FARM_REFUSED,
    FARM_ROUND,
    FARM_STOP,
    FARM_VERDICT,
    FARM_BARRIER,
    FARM_OTHER,
    FARM_KINDS
};

struct farm_member {
    int fd;
    bool connected, identified;
    uint8_t have; /* number of received bytes of `head` */
    uint8_t head[16];
    uint64_t left; /* bytes of the message that have not arrived yet */
    uint16_t n_text;
    char text[240]; /* first bytes of the message */
    uint32_t rank;  /* of a worker: its rank; of an agent: its first rank in the round */
};

struct farm {
    int epoll, port;
    bool of_workers; /* the members are workers: answers to BARRIER_NAMED begin with an outcome */
    uint32_t n, connected;
    struct farm_member *member;
    uint32_t count[FARM_KINDS]; /* numbers of received messages */
    double last_ms[FARM_KINDS]; /* time at which the last message of each kind arrived */
    char trouble[256];          /* the first problem; "" = no problem */
};

/* Create `n` members, whose addresses are numbered from `first`. No member is connected yet. */
bool farm_open(struct farm *f, int port, uint32_t first, uint32_t n, bool of_workers);
void farm_close(struct farm *f);

/* Append to `out` the first bytes that member `i` sends. */
typedef void (*farm_words)(void *user, uint32_t i, struct buf *out);

/* Connect all members, at most `at_once` at a time. When a member is connected, it sends the bytes of `hello`. */
bool farm_connect(struct farm *f, uint32_t at_once, farm_words hello, void *user);

/* Send these bytes from member `i`. If the socket does not accept them, set f->trouble and return false. */
bool farm_say(struct farm *f, uint32_t i, struct slice bytes);

/* Read until `count` messages of the kind have arrived; return false after `limit_ms`, or on an error. */
bool farm_wait(struct farm *f, enum farm_kind kind, uint32_t count, double limit_ms);
/* Reset all counts to 0. */
void farm_forget(struct farm *f);

/* Append one request to `out`. Use these functions in `hello` of farm_connect, and for the bytes of farm_say. */
void farm_put_greeting(struct buf *out);
void farm_put_identify(struct buf *out, const char *json);
void farm_put_control(struct buf *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void farm_put_barrier(struct buf *out, const char *name, int64_t timeout_ms);

#endif
