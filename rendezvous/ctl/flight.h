/* flight.h -- compare the flight records of several ranks: which ranks are behind, and which ranks made a different
 * call. Reads libddp's records (record/flight.h, docs/libddp.md) and PyTorch's, as pickle or as JSON. Pure: the input
 * is the text of files, the output is JSON in the format of a store's answer. */
#ifndef RENDEZVOUS_CTL_FLIGHT_H
#define RENDEZVOUS_CTL_FLIGHT_H

#include "base/buf.h"
#include "ddp/error.h"

#include <cjson/cJSON.h>
#include <stdint.h>

enum {
    FLIGHT_CALLS_MAX = 1 << 16,
    FLIGHT_NAME_MAX = 40,
    FLIGHT_TYPE_MAX = 16,
    FLIGHT_GROUP_MAX = 64,
    FLIGHT_PLACE_MAX = 128,
    FLIGHT_HOST_MAX = 64,
    FLIGHT_WHY_MAX = 256
};

/* A call: the fields in which all ranks must agree, and its progress. */
struct flight_entry {
    uint64_t seq, n;
    int64_t created_ns, completed_ns; /* 0 = not created or not completed yet */
    int32_t root;
    uint32_t order; /* position in the record */
    char group
        [FLIGHT_GROUP_MAX]; /* each process group numbers its calls separately; "" = the world of libddp */
    char name[FLIGHT_NAME_MAX], dtype[FLIGHT_TYPE_MAX], op[FLIGHT_TYPE_MAX], state[FLIGHT_NAME_MAX];
    char place[FLIGHT_PLACE_MAX]; /* place in the user's code: "evaluate (train.py:11)"; "" = unknown */
};

struct flight_dump {
    int rank, world_size, pid, attempt;
    int64_t step; /* training step; -1 = none */
    int64_t time_ns;
    char host[FLIGHT_HOST_MAX], job[FLIGHT_HOST_MAX], why[FLIGHT_WHY_MAX];
    struct flight_entry *calls; /* array of n calls, owned; sorted by group and number, without duplicates */
    size_t n;
};

/* Read one record. `file` is the name of the file, because PyTorch writes the rank only at the end of this name.
 * After DDP_OK the caller frees the dump with flight_dump_free. After DDP_ERR_CORRUPT, `err` has the reason. */
ddp_status flight_dump_read(struct flight_dump *dump, const char *file, struct slice text,
                            struct ddp_err *err);
void flight_dump_free(struct flight_dump *dump);

/* Compare the records and sort them by rank. Return the result, which the caller frees (cJSON_Delete), or NULL if
 * memory is short. */
cJSON *flight_compare(struct flight_dump *dumps, size_t n);

#endif
