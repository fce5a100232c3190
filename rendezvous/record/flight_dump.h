/* flight_dump.h -- compares the flight records of several ranks, and finds the ranks that are behind or made a
 * different call. The module is pure: its input is the text of files or a list of calls, and its output is JSON in the
 * format of a store's answer. */
#ifndef RENDEZVOUS_RECORD_FLIGHT_DUMP_H
#define RENDEZVOUS_RECORD_FLIGHT_DUMP_H

#include "base/buf.h"
#include "ddp/error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

/* Limits of a record. The limits of texts are bytes including the NUL. Longer texts are cut. */
enum {
    FLIGHT_CALLS_MAX = 1 << 16,
    FLIGHT_NAME_MAX = 40,
    FLIGHT_TYPE_MAX = 16,
    FLIGHT_GROUP_MAX = 64,
    FLIGHT_PLACE_MAX = 128,
    FLIGHT_HOST_MAX = 64,
    FLIGHT_WHY_MAX = 256,
    FLIGHT_CALL_WORDS = 256,
    FLIGHT_OPEN_MAX = 16, /* maximum number of calls that flight_open_calls returns */
    /* maximum number of different stacks that a record keeps; the stacks of the earliest calls are left out */
    FLIGHT_STACKS_MAX = 64,
    FLIGHT_FRAMES_MAX = 64, /* maximum number of frames of a stack; only the innermost are kept */
    FLIGHT_SIDES_MAX = 16,  /* maximum number of sides; all ranks of a side have the same call and stack */
};

enum flight_kind { FLIGHT_COLLECTIVE, FLIGHT_SEND, FLIGHT_RECEIVE };

/* A call: the fields in which all ranks must agree, and its progress. */
struct flight_entry {
    uint64_t seq, n;
    uint64_t n_out; /* for an all_gather: number of elements of all outputs together; 0 = unknown */
    int64_t created_ns, completed_ns; /* times of the creation and of the completion, in ns; 0 until then */
    int32_t root;
    uint32_t order; /* position in the record */
    enum flight_kind kind;
    int32_t peer; /* for a send or a receive: rank of the peer; -1 if unknown, or if any rank may send */
    char group
        /* name of the process group; `seq` counts the calls of this group; "" for the group of all ranks */
        [FLIGHT_GROUP_MAX];
    char name[FLIGHT_NAME_MAX], dtype[FLIGHT_TYPE_MAX], op[FLIGHT_TYPE_MAX], state[FLIGHT_NAME_MAX];
    char place[FLIGHT_PLACE_MAX]; /* place in the user's code: "evaluate (train.py:11)"; "" = unknown */
    uint64_t stack; /* hash of the frames; equal stacks have equal hashes on all ranks; 0 = no frames */
};

/* The call stack from which a rank has made one or more calls. Most calls of a training loop have the same few stacks,
 * so a record keeps each stack once. */
struct flight_stack {
    uint64_t hash;
    cJSON *frames; /* owned JSON array, innermost frame first; members: "function", "file", "line", "user" */
};

/* The record of one rank. */
struct flight_dump {
    int rank, world_size, pid, attempt; /* `pid` is 0 if unknown; PyTorch's records have no pid */
    int64_t step;                       /* training step; -1 = none */
    int64_t time_ns;                    /* when the record was written, in ns since 1970; 0 = unknown */
    char host[FLIGHT_HOST_MAX], job[FLIGHT_HOST_MAX]; /* "" = unknown */
    char why[FLIGHT_WHY_MAX];                         /* why the record was written */
    struct flight_entry *calls; /* array of n calls, owned; sorted by group and number, without duplicates */
    size_t n;
    struct flight_entry *p2p; /* array of n_p2p, owned: open sends and receives, in the order of the record */
    size_t n_p2p;
    struct flight_stack *stacks; /* array of n_stacks, owned; NULL = none */
    size_t n_stacks;
};

/* Read one record from `text`: a record of libddp (record/flight.h, docs/libddp.md), or a record of PyTorch as pickle
 * or as JSON. `file` is the name of the record's file. If a record of PyTorch has no member "rank", the rank is the
 * number at the end of this name, or before one of its extensions. After DDP_OK the caller frees the dump with
 * flight_dump_free. After DDP_ERR_CORRUPT, `err` has the reason. */
ddp_status flight_dump_read(struct flight_dump *dump, const char *file, struct slice text,
                            struct ddp_err *err);
void flight_dump_free(struct flight_dump *dump);

/* Find the calls in which other ranks may wait for the rank of this record. A group has up to two such calls: the first
 * call that is not completed, and the last call. Search at most FLIGHT_OPEN_MAX / 2 groups: the latest groups, and
 * always the group of all ranks. The calls of the latest group come last. Return the number of calls. `calls` points
 * into the record. */
size_t flight_open_calls(const struct flight_dump *dump, const struct flight_entry *calls[FLIGHT_OPEN_MAX]);

/* Search the group of all ranks for a half-started call: the GPUs of some ranks have started the call, but the GPUs of
 * other ranks have not. Return NULL if there is no such call. The result is borrowed from the records. */
const struct flight_entry *flight_half_started(const struct flight_dump *dumps, size_t n);
/* Return true if the record contains this call in the state "scheduled". */
bool flight_is_scheduled(const struct flight_dump *dump, const struct flight_entry *call);

/* Format a call as "all_reduce #17 (f32 x 1024, sum)", cut to 256 bytes. Return `out`. */
const char *flight_call_words(char out[FLIGHT_CALL_WORDS], const struct flight_entry *call);

/* Sort the calls of a record and remove duplicates. Call this after filling a record without flight_dump_read, which
 * sorts the calls itself. */
void flight_dump_sort(struct flight_dump *dump);

/* Sort the records by rank and compare them. ddpctl compares the records in files. The search for a hang
 * (diagnosis/hang.c) compares the last calls of all ranks. Return the result, which the caller frees (cJSON_Delete), or
 * NULL if memory is short. */
cJSON *flight_compare(struct flight_dump *dumps, size_t n);

#endif
