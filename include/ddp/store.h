/* store.h -- a blocking client of the key-value store.
 *
 * The client works with ddprun, ddp-rendezvous and the TCPStore of torch 1.13 or newer, and detects the version of
 * the protocol while connecting. Keys are byte strings. Like PyTorch's clients, this client puts a '/' in front of
 * each key, so ddp_store_get(s, "a") and TCPStore.get("a") read the same key.
 *
 * Every call has a deadline. Several threads may share a handle; their calls are executed one after the other. After
 * DDP_ERR_CLOSED, DDP_ERR_IO or DDP_ERR_CORRUPT, the handle is unusable: every call except ddp_store_close returns
 * DDP_ERR_CLOSED. After a DDP_ERR_TIMEOUT of a call that waits for a key or a barrier, the handle stays usable if
 * the store still answers. After a DDP_ERR_TIMEOUT of any other call, the handle is unusable, because a working store
 * answers such a call at once. */
#ifndef DDP_STORE_H
#define DDP_STORE_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_store ddp_store;

/* Limits of the protocol. A call whose request exceeds a limit sends nothing and returns DDP_ERR_LIMIT. */
#define DDP_STORE_MAX_KEY   8192u      /* bytes of a key, with the '/' that libddp puts before it */
#define DDP_STORE_MAX_VALUE (8u << 20) /* bytes of a value */
#define DDP_STORE_MAX_KEYS  131072u    /* keys in a list */

typedef struct ddp_store_options {
    size_t size;                 /* sizeof(ddp_store_options), set by DDP_STORE_OPTIONS_INIT */
    uint32_t connect_timeout_ms; /* time for connecting, with retries; 0 means 60 000 ms */
    uint32_t timeout_ms;         /* timeout of each call without a timeout argument; 0 means 300 000 ms */
    /* The identity of the caller, which the client sends in the request IDENTIFY, so that the diagnosis of a ddprun
     * store can name the caller. Set `role` only if the store is a ddprun store, because PyTorch's TCPStore closes the
     * connection at this request. If `role` is NULL, the client sends no identity. */
    const char *role; /* "worker", "agent", "ctl" */
    const char *job;  /* job id; NULL means the job id "none" */
    int rank;         /* -1 if the caller has no rank */
    int world_size;   /* 0 if unknown */
    int attempt;      /* restart count */
} ddp_store_options;

#define DDP_STORE_OPTIONS_INIT                                \
    {                                                         \
        sizeof(ddp_store_options), 0, 0, NULL, NULL, -1, 0, 0 \
    }

/* Connect to host:port. `host` is a name, an IPv4 address or an IPv6 address. `options` may be NULL. After DDP_OK the
 * caller closes *out with ddp_store_close. DDP_ERR_TIMEOUT means that no server answered in time; `err` describes the
 * last attempt. DDP_ERR_CORRUPT means that the server is not a store. */
DDP_API ddp_status ddp_store_connect(const char *host, int port, const ddp_store_options *options,
                                     ddp_store **out, struct ddp_err *err);

/* Close the connection and free the handle. NULL is allowed. */
DDP_API void ddp_store_close(ddp_store *store);

/* Replace the value of a key. The caller may change or free key and value after the call. */
DDP_API ddp_status ddp_store_set(ddp_store *store, const char *key, const void *value, size_t len,
                                 struct ddp_err *err);

/* Wait until the key exists, and return a copy of its value, which the caller frees. A NUL follows the value, but *len
 * does not count it. If timeout_ms is 0, the timeout of the handle applies. After DDP_ERR_TIMEOUT, `err` names the
 * key. */
DDP_API ddp_status ddp_store_get(ddp_store *store, const char *key, uint32_t timeout_ms, void **value,
                                 size_t *len, struct ddp_err *err);

/* Add to a counter, and return the new value in *sum, which may be NULL. The store keeps a counter as decimal text. A
 * missing key counts as 0. */
DDP_API ddp_status ddp_store_add(ddp_store *store, const char *key, int64_t delta, int64_t *sum,
                                 struct ddp_err *err);

/* Set `key` to `desired` if the present value of `key` is equal to `expected`. If the key does not exist and
 * expected_len is 0, set the key, too. After the call, *current is a copy of the new value, or of the old value if the
 * old value was not replaced. If the key does not exist after the call, *current is a copy of `expected`. The caller
 * frees *current. `current` may be NULL, but only *current shows whether the value was replaced. */
DDP_API ddp_status ddp_store_compare_set(ddp_store *store, const char *key, const void *expected,
                                         size_t expected_len, const void *desired, size_t desired_len,
                                         void **current, size_t *current_len, struct ddp_err *err);

/* Wait until all `n` keys exist. If timeout_ms is 0, the timeout of the handle applies. DDP_ERR_TIMEOUT names the first
 * missing key if the store still answers. */
DDP_API ddp_status ddp_store_wait(ddp_store *store, const char *const keys[], size_t n, uint32_t timeout_ms,
                                  struct ddp_err *err);

/* Set *all to 1 if all keys exist, else to 0, without waiting for keys. */
DDP_API ddp_status ddp_store_check(ddp_store *store, const char *const keys[], size_t n, int *all,
                                   struct ddp_err *err);

/* Remove a key. *removed becomes 1 if the key existed, else 0; `removed` may be NULL. */
DDP_API ddp_status ddp_store_delete(ddp_store *store, const char *key, int *removed, struct ddp_err *err);

/* Set *n to the number of keys in the store, including keys that the protocol itself uses. */
DDP_API ddp_status ddp_store_num_keys(ddp_store *store, int64_t *n, struct ddp_err *err);

/* Wait at the barrier `name` until all members have arrived. If `members` is NULL, all ranks are members. Use each name
 * only once. The first arrival sets the deadline. Only a ddprun store has barriers (else DDP_ERR_UNSUPPORTED), and the
 * options must have `rank`.
 *
 *     DDP_OK: all members have arrived.
 *     DDP_ERR_TIMEOUT: err lists the missing ranks and the state of each.
 *     DDP_ERR_PEER_LOST: the process of a member has ended.
 *     DDP_ERR_ABORTED: the barrier was cancelled.
 *     DDP_ERR_MISMATCH: the name was used before, the lists of members differ, or this rank is not a member. */
DDP_API ddp_status ddp_store_barrier(ddp_store *store, const char *name, const uint32_t *members, size_t n,
                                     uint32_t timeout_ms, struct ddp_err *err);

/* Send the JSON object `request` as a CONTROL request, and return the answer, a JSON object that the caller frees.
 * Only a ddprun store has CONTROL. */
DDP_API ddp_status ddp_store_control(ddp_store *store, const char *request, uint32_t timeout_ms, char **reply,
                                     struct ddp_err *err);

/* Return the version of the server's protocol: 'A' for torch up to 2.0, 'B' for torch 2.1, 'C' for torch 2.2 and newer,
 * 'D' for a ddprun store (like C, with the requests of ddprun). If the options had no `role`, return 'C' for a ddprun
 * store. */
DDP_API char ddp_store_dialect(const ddp_store *store);

/* Write the numeric address of this end of the connection to `address`, which has `room` bytes; 64 are enough. */
DDP_API ddp_status ddp_store_local_address(const ddp_store *store, char *address, size_t room,
                                           struct ddp_err *err);

#ifdef __cplusplus
}
#endif
#endif
