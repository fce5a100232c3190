/* crowd.h -- many connections of one process to one server, and their repeated requests. Only for programs in
 * tests/bench: if a socket fails, the program ends. */
#ifndef TESTS_BENCH_CROWD_H
#define TESTS_BENCH_CROWD_H

#include "requests.h"

enum { CROWD_MAX = 1000 };

struct crowd {
    int epoll, n;
    int fd[CROWD_MAX];
};

/* A load: member c sends bytes[c] again and again, each time after all replies have arrived. bytes[c] contains
 * `requests` requests, and their replies have `reply_bytes` bytes in total. */
struct load {
    const char *what;
    int requests;
    size_t reply_bytes;
    struct buf bytes[CROWD_MAX];
};

enum load_kind {
    LOAD_ADD,      /* one ADD */
    LOAD_GET,      /* one GET, of a value that crowd_prepare has set */
    LOAD_SET_MANY, /* 63 SETs and one ADD; the answer to the ADD shows that the SETs are done */
    LOAD_GET_MANY, /* 64 GETs */
    LOAD_MIX_MANY, /* 16 times four requests: SET, WAIT and GET of a key, and ADD */
    LOADS
};
enum { LOAD_BURST = 64 };

/* Fill in the requests. Each member has separate keys. The keys of ADD differ from the keys of SET. */
void load_fill(struct load *load, enum load_kind kind, enum dialect dialect);
void load_free(struct load *load);

/* Connect the members one after the other. With dialect C, each member sends the greeting. */
void crowd_connect(struct crowd *c, int port, int n, enum dialect dialect);
/* Connect all members at once. Each member adds 1 to a counter, as PyTorch's clients do at their start. Return the
 * milliseconds until the last member has its answer. */
double crowd_rush(struct crowd *c, int port, int n, enum dialect dialect);
/* Connect to the echo server of loopback.h, which answers as `load` defines. */
void crowd_connect_echo(struct crowd *c, int port, int n, const struct load *load);
void crowd_close(struct crowd *c);

/* Set the value of crowd_value_key, the key that the loads read. */
extern const char crowd_value_key[];
void crowd_prepare(int port, enum dialect dialect);

/* Let all members send requests for `ms`, and wait for the last replies. Return the requests per second. */
double crowd_run(struct crowd *c, const struct load *load, double ms);

/* Let all members wait for one key. After a pause, in which the server becomes idle, set this key. Return the
 * milliseconds from the SET until the last member has its answer. Each `turn` has a new key. */
double crowd_wake(struct crowd *c, int port, enum dialect dialect, int turn);

#endif
