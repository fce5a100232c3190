/* bootstrap.c -- see bootstrap.h. Each rank publishes its card in the store: a text of four words that describes the
 * process and its host. The card is readable text, because `ddpctl keys` can then show which ranks have joined. */
#include "core/bootstrap.h"

#include "base/clock.h"
#include "base/syscalls.h"
#include "core/call.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* SLACK_MS: extra time for which the other ranks wait, because rank 0 may fail at the deadline and publish the reason
 * a moment later. */
enum { KEY = BOOTSTRAP_KEY, CARD = 160, SLACK_MS = 500 };

/* Return the ms until the deadline, but at least 1. In a call of the store, 0 would select the default timeout. */
uint32_t bootstrap_remaining_ms(const struct bootstrap *bootstrap)
{
    uint64_t now = clock_ms();
    return now < bootstrap->deadline_ms ? (uint32_t)(bootstrap->deadline_ms - now) : 1;
}

static void rank_key(char key[KEY], const struct bootstrap *b, int rank)
{
    snprintf(key, KEY, "%s/rank/%d", b->prefix, rank);
}

static void what_key(char key[KEY], const struct bootstrap *b, const char *what)
{
    snprintf(key, KEY, "%s/%s", b->prefix, what);
}

/* --- the card of this rank ------------------------------------------------------------------------------- */

/* Read the kernel's boot id, or "unknown" without /proc. */
static void read_boot_id(char id[40])
{
    if (read_small_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", id, 36 + 1) < 0)
        snprintf(id, 40, "unknown");
}

/* Format the card of this rank: pid, PID namespace, boot id and host. Other ranks use the card to map the memory of
 * this rank, or to report why the mapping is impossible. */
static void make_card(char text[CARD], const char *test_host)
{
    char boot_id[40], host[64] = "";
    struct stat st = { 0 };

    read_boot_id(boot_id);
    if (stat("/proc/self/ns/pid", &st) != 0)
        st.st_ino = 0;
    gethostname(host, sizeof(host) - 1);
    if (test_host[0] != '\0') {
        snprintf(boot_id, sizeof(boot_id), "test:%.31s", test_host);
        snprintf(host, sizeof(host), "%.31s", test_host);
    }
    snprintf(text, CARD, "%d %" PRIu64 " %s %s", getpid(), (uint64_t)st.st_ino, boot_id,
             host[0] ? host : "unknown");
}

/* Set `key` to `value` if the key is missing or already has this value. If the key has another value, leave this value
 * unchanged, and set *theirs to a copy, which the caller frees. The store answers with the value that the key has after
 * the request. */
static ddp_status set_new(const struct bootstrap *b, const char *key, const void *value, size_t len,
                          char **theirs, struct ddp_err *err)
{
    void *found = NULL;
    size_t found_len = 0;
    ddp_status status = ddp_store_compare_set(b->store, key, "", 0, value, len, &found, &found_len, err);
    if (status == DDP_OK && (found_len != len || memcmp(found, value, len) != 0)) {
        *theirs = found;
        return DDP_OK;
    }
    free(found);
    /* Set the key again on PyTorch's store, because COMPARE_SET of old torch versions wakes no waiting rank. */
    return status == DDP_OK && !b->ddprun_store ? ddp_store_set(b->store, key, value, len, err) : status;
}

/* Publish the card of this rank: pid, PID namespace, boot id and host. If two processes have the same rank, the second
 * process fails and does not replace the first card. Otherwise the job would split into two groups that wait for each
 * other. */
static ddp_status leave_card(const struct bootstrap *b, struct ddp_err *err)
{
    char key[KEY], card[CARD], *theirs = NULL;

    rank_key(key, b, b->rank);
    make_card(card, b->test_host);
    ddp_status status = set_new(b, key, card, strlen(card), &theirs, err);
    if (status != DDP_OK)
        return ddp_wrap(err, "joining as rank %d", b->rank);
    if (theirs != NULL)
        status =
            ddp_fail(err, DDP_ERR_MISMATCH,
                     "rank %d has already joined as process \"%.*s\", but this process is \"%s\" (pid, pid "
                     "namespace, boot id, host); start each rank only once; if the processes are from "
                     "two runs, give each run its own TORCHELASTIC_RUN_ID",
                     b->rank, CARD, theirs, card);
    free(theirs);
    return status;
}

/* --- the cards of other ranks ------------------------------------------------------------------------------- */

/* List the ranks that have not published a card, as "1, 3", and return their number. Return -1 if the store fails
 * before a missing rank was found. */
static int list_missing(const struct bootstrap *b, char *list, size_t room)
{
    int missing = 0;
    size_t used = 0;

    list[0] = '\0';
    for (int r = 0; r < b->world_size; r++) {
        char key[KEY];
        const char *const keys[] = { key };
        int there = 1;
        rank_key(key, b, r);
        if (ddp_store_check(b->store, keys, 1, &there, NULL) != DDP_OK)
            return missing > 0 ? missing : -1;
        if (there)
            continue;
        missing++;
        if (used + 16 < room)
            used += (size_t)snprintf(list + used, room - used, "%s%d", used ? ", " : "", r);
    }
    return missing;
}

/* Fail because the time for `key` has passed. The error lists the ranks that have not joined. A ddprun store reports
 * missing ranks itself, by a named barrier. PyTorch's store has no such barrier, so this process must search for
 * missing ranks. */
static ddp_status name_missing(const struct bootstrap *b, const char *key, struct ddp_err *err)
{
    char list[512];
    int missing = list_missing(b, list, sizeof(list));
    if (missing < 0)
        return ddp_fail(err, DDP_ERR_TIMEOUT,
                        "not all %d ranks have joined within %g s, and the store no longer answers; check "
                        "that its process still runs",
                        b->world_size, b->timeout_ms / 1000.0);
    if (missing == 0)
        return ddp_fail(err, DDP_ERR_TIMEOUT,
                        "all %d ranks have joined, but no rank has set the store's key %s within %g s; check "
                        "the logs of all ranks; --timeout of ddprun or DDPRUN_INIT_TIMEOUT_MS sets the "
                        "default time limit",
                        b->world_size, key, b->timeout_ms / 1000.0);
    return ddp_fail(err, DDP_ERR_TIMEOUT,
                    "%d of %d ranks %s not joined within %g s: rank %s; check that all are started with "
                    "the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE",
                    missing, b->world_size, missing == 1 ? "has" : "have", b->timeout_ms / 1000.0, list);
}

/* Read the card of a rank. A peer may have written anything, so the length of each field is checked. */
ddp_status bootstrap_card(const struct bootstrap *bootstrap, int rank, struct bootstrap_card *card,
                          struct ddp_err *err)
{
    char key[KEY];
    void *text = NULL;
    size_t len;

    rank_key(key, bootstrap, rank);
    ddp_status status =
        ddp_store_get(bootstrap->store, key, bootstrap_remaining_ms(bootstrap), &text, &len, err);
    if (status == DDP_ERR_TIMEOUT)
        return name_missing(bootstrap, key, err);
    if (status != DDP_OK)
        return ddp_wrap(err, "waiting for rank %d", rank);
    if (len >= CARD ||
        sscanf(text, "%" SCNd32 " %" SCNu64 " %39s %63s", &card->pid, &card->pid_namespace, card->boot_id,
               card->host) != 4 ||
        card->pid <= 0)
        status =
            ddp_fail(err, DDP_ERR_CORRUPT,
                     "the store's key %s holds \"%.60s\" instead of pid, pid namespace, boot id and host of "
                     "rank %d; check that no other program writes this key",
                     key, (const char *)text, rank);
    free(text);
    return status;
}

/* Wait at a named barrier until all ranks have joined. A barrier's name can be used only once, but one worker may join
 * several times (several programs or contexts). So the name contains the number of earlier joins. Rank 0 counts the
 * joins in a key of the store. */
static ddp_status meet_by_name(const struct bootstrap *b, struct ddp_err *err)
{
    char counter[KEY], name[KEY + 24];
    int64_t met = 0;
    what_key(counter, b, "met");
    ddp_status status = ddp_store_add(b->store, counter, 0, &met, err);
    if (status != DDP_OK)
        return ddp_wrap(err, "joining as rank %d", b->rank);
    if (met < 0)
        return ddp_fail(err, DDP_ERR_CORRUPT, "the store's key %s holds %" PRId64 ": expected at least 0",
                        counter, met);
    snprintf(name, sizeof(name), met > 0 ? "%s/%" PRId64 : "%s", b->prefix, met);
    status = ddp_store_barrier(b->store, name, NULL, 0, bootstrap_remaining_ms(b), err);
    return status == DDP_OK && b->rank == 0 ? ddp_store_add(b->store, counter, 1, NULL, err) : status;
}

/* Wait until all ranks have joined. If the store is a ddprun store, wait at the named barrier first. If a rank is
 * missing, the barrier can report the host of the rank or how the rank ended. A missing card shows only that the rank
 * has not joined. */
ddp_status bootstrap_meet(const struct bootstrap *bootstrap, struct bootstrap_card *cards,
                          struct ddp_err *err)
{
    ddp_status status = leave_card(bootstrap, err);
    if (status == DDP_OK && bootstrap->ddprun_store)
        status = meet_by_name(bootstrap, err);
    for (int r = 0; r < bootstrap->world_size && status == DDP_OK && cards != NULL; r++)
        status = bootstrap_card(bootstrap, r, &cards[r], err);
    return status;
}

/* --- data of rank 0 for other ranks -------------------------------------------------------------------------- */

/* A published value begins with '+'; a published error begins with '-' and the number of its status. */

ddp_status bootstrap_publish(const struct bootstrap *bootstrap, const char *what, const void *data,
                             size_t len, struct ddp_err *err)
{
    char key[KEY], *theirs = NULL, *message = malloc(len + 1);
    if (message == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %zu bytes of %s", len, what);
    message[0] = '+';
    memcpy(message + 1, data, len);
    what_key(key, bootstrap, what);
    ddp_status status = set_new(bootstrap, key, message, len + 1, &theirs, err);
    if (theirs != NULL)
        status = ddp_fail(err, DDP_ERR_MISMATCH,
                          "another process has set the store's key %s before rank %d: perhaps another run "
                          "uses this store, too; give each run its own TORCHELASTIC_RUN_ID",
                          key, bootstrap->rank);
    free(theirs);
    free(message);
    return status;
}

void bootstrap_publish_error(const struct bootstrap *bootstrap, const char *what,
                             const struct ddp_err *reason)
{
    char key[KEY], message[CALL_REASON];
    const size_t len = call_encode_reason(message, reason);
    what_key(key, bootstrap, what);
    ddp_store_set(bootstrap->store, key, message, len, NULL);
}

/* Return the ms until the deadline plus SLACK_MS. Prevent an overflow, because the timeout may be UINT32_MAX. */
static uint32_t left_with_slack_ms(const struct bootstrap *b)
{
    const uint32_t left_ms = bootstrap_remaining_ms(b);
    return left_ms < UINT32_MAX - SLACK_MS ? left_ms + SLACK_MS : UINT32_MAX;
}

ddp_status bootstrap_fetch(const struct bootstrap *bootstrap, const char *what, void *data, size_t len,
                           struct ddp_err *err)
{
    char key[KEY];
    void *message = NULL;
    size_t found;

    what_key(key, bootstrap, what);
    ddp_status status =
        ddp_store_get(bootstrap->store, key, left_with_slack_ms(bootstrap), &message, &found, err);
    if (status == DDP_ERR_TIMEOUT)
        return name_missing(bootstrap, key, err);
    if (status != DDP_OK)
        return ddp_wrap(err, "waiting for %s", key);
    if (((char *)message)[0] == '-') {
        call_decode_reason(message, err);
        status = err->code;
    } else if (found != len + 1)
        status = ddp_fail(err, DDP_ERR_CORRUPT,
                          "the store's key %s holds %zu bytes instead of %zu; check that all ranks run "
                          "the same version",
                          key, found, len + 1);
    else
        memcpy(data, (char *)message + 1, len);
    free(message);
    return status;
}

bool bootstrap_is_published(const struct bootstrap *bootstrap, const char *what)
{
    char key[KEY];
    const char *const keys[] = { key };
    int there = 0;
    what_key(key, bootstrap, what);
    return ddp_store_check(bootstrap->store, keys, 1, &there, NULL) == DDP_OK && there;
}

/* Delete the key of `what`, so that another job with the same store does not find this key. */
ddp_status bootstrap_clear(const struct bootstrap *bootstrap, const char *what, struct ddp_err *err)
{
    char key[KEY];
    what_key(key, bootstrap, what);
    return ddp_store_delete(bootstrap->store, key, NULL, err);
}

ddp_status bootstrap_clear_card(const struct bootstrap *bootstrap, struct ddp_err *err)
{
    char key[KEY];
    rank_key(key, bootstrap, bootstrap->rank);
    return ddp_store_delete(bootstrap->store, key, NULL, err);
}
