/* store.h -- a blocking client of the key-value store.
 *
 * The client uses PyTorch's TCPStore protocol, so the client works with ddprun, ddp-rendezvous and the TCPStore of
 * torch 1.13 or newer. The client detects the dialect of the server while connecting. Keys are byte strings. Like
 * PyTorch's clients, this client puts a '/' in front of each key, so ddp_store_get(s, "a") and TCPStore.get("a") mean
 * the same key.
 *
 * Every call has a deadline. A connection carries one call at a time, so several threads that share a handle take
 * turns. After DDP_ERR_CLOSED, DDP_ERR_IO or DDP_ERR_CORRUPT, the handle returns DDP_ERR_CLOSED from every call until
 * it is closed. The same is true after DDP_ERR_TIMEOUT from a call that never waits, because then the store hangs. */
#ifndef DDP_STORE_H
#define DDP_STORE_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_store ddp_store;

/* Limits of the protocol, checked before anything is sent (DDP_ERR_LIMIT). */
#define DDP_STORE_MAX_KEY   8192u      /* bytes of a key, with the '/' */
#define DDP_STORE_MAX_VALUE (8u << 20) /* bytes of a value */
#define DDP_STORE_MAX_KEYS  131072u    /* keys in one list */

typedef struct ddp_store_options {
    size_t size;                 /* sizeof(ddp_store_options), set by DDP_STORE_OPTIONS_INIT */
    uint32_t connect_timeout_ms; /* 0 = 60 000; refused connections are retried with growing pauses */
    uint32_t timeout_ms;         /* deadline of each call without a timeout argument; 0 = 300 000 */
    /* The identity of the caller, sent to a ddprun store (opcode IDENTIFY) so that a diagnosis can name this
     * connection. The identity is sent only if `role` is not NULL, because PyTorch's TCPStore would close the
     * connection. */
    const char *role; /* "worker", "agent", "ctl" */
    const char *job;  /* job id, NULL = "none" */
    int rank;         /* -1 = none */
    int world_size;   /* 0 = unknown */
    int attempt;      /* restart count */
} ddp_store_options;

#define DDP_STORE_OPTIONS_INIT                                \
    {                                                         \
        sizeof(ddp_store_options), 0, 0, NULL, NULL, -1, 0, 0 \
    }

/* Connect to host:port (a name, an IPv4 or an IPv6 literal). `options` may be NULL. After DDP_OK the caller closes
 * *out with ddp_store_close. DDP_ERR_TIMEOUT means that no server answered in time, and err describes the last
 * attempt. DDP_ERR_CORRUPT means that the server is not a store. */
DDP_API ddp_status ddp_store_connect(const char *host, int port, const ddp_store_options *options,
                                     ddp_store **out, struct ddp_err *err);

/* Close the connection and free the handle. NULL is allowed. */
DDP_API void ddp_store_close(ddp_store *store);

/* Replace the value of a key. Key and value are copied to the wire before the call returns. */
DDP_API ddp_status ddp_store_set(ddp_store *store, const char *key, const void *value, size_t len,
                                 struct ddp_err *err);

/* Wait until the key exists, then return a copy of its value, which the caller frees. A NUL follows the value and is
 * not counted in *len. timeout_ms 0 = the handle's. DDP_ERR_TIMEOUT names the key. */
DDP_API ddp_status ddp_store_get(ddp_store *store, const char *key, uint32_t timeout_ms, void **value,
                                 size_t *len, struct ddp_err *err);

/* Add to a counter and return the result in *sum (may be NULL). A counter is a decimal text. A missing key counts as
 * 0. */
DDP_API ddp_status ddp_store_add(ddp_store *store, const char *key, int64_t delta, int64_t *sum,
                                 struct ddp_err *err);

/* Set `key` to `desired` if its value is `expected`. expected_len 0 also matches a missing key. *current (may be
 * NULL) becomes a copy of the key's final value, which the caller frees. */
DDP_API ddp_status ddp_store_compare_set(ddp_store *store, const char *key, const void *expected,
                                         size_t expected_len, const void *desired, size_t desired_len,
                                         void **current, size_t *current_len, struct ddp_err *err);

/* Wait until all `n` keys exist. timeout_ms 0 = the handle's. DDP_ERR_TIMEOUT names the first missing key. */
DDP_API ddp_status ddp_store_wait(ddp_store *store, const char *const keys[], size_t n, uint32_t timeout_ms,
                                  struct ddp_err *err);

/* Set *all to 1 if every key exists, otherwise to 0. Returns at once. */
DDP_API ddp_status ddp_store_check(ddp_store *store, const char *const keys[], size_t n, int *all,
                                   struct ddp_err *err);

/* Remove a key. *removed (may be NULL) becomes 1 if the key existed, otherwise 0. */
DDP_API ddp_status ddp_store_delete(ddp_store *store, const char *key, int *removed, struct ddp_err *err);

/* Return the number of keys in the store, including counters of the protocol itself. */
DDP_API ddp_status ddp_store_num_keys(ddp_store *store, int64_t *n, struct ddp_err *err);

/* Wait at barrier `name` with the given ranks (members NULL = all ranks of the world). Only a ddprun store has
 * barriers (otherwise DDP_ERR_UNSUPPORTED), and the options need `rank`. Each name can be used only once. The
 * deadline is the first arrival plus its timeout.
 *
 *   DDP_OK: all members have arrived.
 *   DDP_ERR_TIMEOUT: err lists the missing ranks and the state of each.
 *   DDP_ERR_PEER_LOST: a member's process has ended.
 *   DDP_ERR_ABORTED: cancelled.
 *   DDP_ERR_MISMATCH: the name was used before, or members or this rank do not match. */
DDP_API ddp_status ddp_store_barrier(ddp_store *store, const char *name, const uint32_t *members, size_t n,
                                     uint32_t timeout_ms, struct ddp_err *err);

/* Send a JSON object as one CONTROL call, and return the answer, a JSON object as text that the caller frees. Only
 * with a ddprun store. */
DDP_API ddp_status ddp_store_control(ddp_store *store, const char *request, uint32_t timeout_ms, char **reply,
                                     struct ddp_err *err);

/* Return 'A' = torch up to 2.0, 'C' = torch 2.2 and newer, 'D' = a ddprun store (C plus ddprun's opcodes). */
DDP_API char ddp_store_dialect(const ddp_store *store);

/* Copy the numeric address of this end of the connection to `address` (`room` bytes; 64 are enough). The host uses
 * this address to reach the store. */
DDP_API ddp_status ddp_store_local_address(const ddp_store *store, char *address, size_t room,
                                           struct ddp_err *err);

#ifdef __cplusplus
}
#endif
#endif
