/* net_wire.h -- a pure module for the messages between ranks of different hosts: hello, answer and the head of a call.
 * Values travel in the sender's byte order. The hello has one number in that order, because the peer must reject a
 * machine with another byte order. */
#ifndef WORKER_CPU_NET_WIRE_H
#define WORKER_CPU_NET_WIRE_H

#include "core/call.h"
#include "ddp/error.h"

/* Sizes in bytes of the messages and of some fields. All fields of a message have fixed offsets and are little-endian,
 * except the number for the byte order.
 *
 *     connecting rank                        accepting rank
 *     hello: run, nonce, from, to    ->
 *                                    <-  answer: welcome, or the reason for a rejection
 *     then, in both directions, for each call: a head, and the values of the call */
enum { NET_HELLO = 264, NET_ANSWER = 8, NET_HEAD = 40, NET_RUN = 112, NET_NONCE = 16, NET_HOST = 64 };

struct net_hello {
    uint8_t nonce[NET_NONCE]; /* random; from the store; equal on all ranks of this run */
    char run[NET_RUN];        /* "ddp/<job>/<attempt>"; if the text is too long, only its end */
    char host[NET_HOST];      /* name of the sender's host */
    int32_t pid;              /* pid of the sender */
    int32_t from, to;         /* rank of the sender, rank of the receiver */
    int32_t lane;             /* number of the lane (net_plan.h) that uses the connection */
    int32_t world;            /* number of ranks of the job */
};

/* One row for each answer: its name, and the text that a rejected rank reports as the reason. */
#define NET_ANSWER_LIST(X)                                                                              \
    X(WELCOME, "welcome")                                                                               \
    X(FOREIGN, "the connecting program is not a rank of libddp, or uses another version or byte order") \
    X(OTHER_RUN, "the two ranks belong to different jobs, attempts or runs")                            \
    X(OTHER_RANK, "the two ranks have conflicting values of RANK or WORLD_SIZE")                        \
    X(TWICE, "the two ranks are already connected")

enum net_answer {
#define X(name, words) NET_##name,
    NET_ANSWER_LIST(X)
#undef X
        NET_ANSWERS
};

void net_encode_hello(uint8_t bytes[NET_HELLO], const struct net_hello *hello);

/* Decode a hello into *out, and return the answer to send. NET_WELCOME means that nonce, run, world and `to` equal
 * those of `mine`; mine->to is this rank. After NET_FOREIGN, out->from is -1 and all other members are 0. The caller
 * must still check that a connection from the sender's rank and lane is expected. */
enum net_answer net_decode_hello(const uint8_t bytes[NET_HELLO], const struct net_hello *mine,
                                 struct net_hello *out);

/* Return true if the `n` bytes may be the beginning of a hello. */
bool net_is_hello_prefix(const uint8_t *bytes, size_t n);

void net_encode_answer(uint8_t bytes[NET_ANSWER], enum net_answer answer);
/* Return the decoded answer, or NET_ANSWERS if the bytes are not an answer. */
enum net_answer net_decode_answer(const uint8_t bytes[NET_ANSWER]);
const char *net_answer_text(enum net_answer answer);

/* Encode the head of call number `seq` of `rank`. */
void net_encode_head(uint8_t bytes[NET_HEAD], const struct call *call, uint64_t seq, int rank);

/* Compare two heads. The text of DDP_ERR_MISMATCH names both calls, beginning with the call of the lower rank. If
 * `theirs` is not a valid head, the text names only the call of this rank. */
ddp_status net_compare_heads(const uint8_t mine[NET_HEAD], const uint8_t theirs[NET_HEAD],
                             struct ddp_err *err);

/* --- DDP_PORT_RANGE --------------------------------------------------------------------------------------- */

/* The range of ports on which the ranks of a job listen, for example "20000-20100". */

struct net_ports {
    int low, high; /* lowest and highest port; both are 0 if the kernel chooses the port */
};

/* Parse "LOW-HIGH", "PORT" or "" (the kernel chooses). After DDP_ERR_ENV, `err` describes the valid form. */
ddp_status net_ports_parse(const char *text, struct net_ports *out, struct ddp_err *err);

/* Return the port for try number `turn` of local rank `rank`. Return 0 if the kernel chooses the port, or -1 after
 * all ports were tried. Ranks begin at different ports, so that ranks rarely try the same port. */
int net_ports_try(const struct net_ports *ports, int rank, int turn);

#endif
