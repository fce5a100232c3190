/* meeting.c -- see meeting.h.
 *
 * Rank 0 gathers the cards of all ranks, numbers the hosts, makes the page of its own host and gives both to all
 * through the store. On every other host the lowest rank makes the page and gives its description to the ranks there.
 * So on one host it takes a single message. A rank that fails gives the reason instead, so that all fail at once and
 * with the same text, and none by time-out. */
#include "cpu/meeting.h"

#include "cpu/net_plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* The message of rank 0 to all. */
struct hello {
    struct segment_offer offer; /* of host 0's page */
    uint8_t nonce[SHM_NONCE];
    uint32_t hosts;
    uint16_t host_of[]; /* of each rank */
};

static const char all_hosts[] = "hosts";

static size_t hello_bytes(int world)
{
    return sizeof(struct hello) + (size_t)world * sizeof(uint16_t);
}

/* The key of the message from the first rank of `host` to the others there. */
static void page_key(char key[32], int host)
{
    snprintf(key, 32, "page/%d", host);
}

/* --- who is where --------------------------------------------------------------------------------------- */

/* The boot id tells kernels apart even where every host is called "localhost"; the pid namespace tells
 * containers apart, between which /proc/<pid> and pidfds would mean other processes. */
static bool same_host(const struct bootstrap_card *a, const struct bootstrap_card *b)
{
    return strcmp(a->boot_id, b->boot_id) == 0 && a->pid_namespace == b->pid_namespace;
}

/* Number the hosts by their lowest rank; first[h] is that rank. */
static ddp_status number_hosts(const struct bootstrap_card *cards, int world, struct hello *hello, int *first,
                               struct ddp_err *err)
{
    for (int r = 0; r < world; r++) {
        uint32_t h = r > 0 ? hello->host_of[r - 1] : 0; /* mostly the host of the rank before */
        if (r > 0 && !same_host(&cards[r], &cards[first[h]]))
            for (h = 0; h < hello->hosts && !same_host(&cards[r], &cards[first[h]]); h++)
                ;
        if (h == NET_HOSTS_MAX)
            return ddp_fail(err, DDP_ERR_UNSUPPORTED, "the cpu backend joins at most %d hosts",
                            NET_HOSTS_MAX);
        if (h >= hello->hosts)
            first[hello->hosts++] = r;
        hello->host_of[r] = (uint16_t)h;
    }
    return DDP_OK;
}

/* As number_hosts does it: a new host has the next number, so each has a rank. */
static bool is_numbered(const uint16_t *host_of, int world, uint32_t hosts)
{
    uint32_t seen = 0;
    for (int r = 0; r < world; r++) {
        if (host_of[r] > seen)
            return false;
        seen += host_of[r] == seen;
    }
    return seen == hosts;
}

/* Find our place in the table. Everything is computed from this one table, which is checked first. */
static ddp_status read_hello(const struct bootstrap *b, const struct hello *hello, struct meeting *out,
                             struct ddp_err *err)
{
    size_t bytes = (size_t)b->world_size * sizeof(*out->host_of);
    if (hello->hosts > NET_HOSTS_MAX || !is_numbered(hello->host_of, b->world_size, hello->hosts))
        return ddp_fail(err, DDP_ERR_CORRUPT,
                        "the store's key %s/%s holds a table of %u hosts that rank 0 has not written",
                        b->prefix, all_hosts, hello->hosts);
    out->host_of = malloc(bytes);
    if (out->host_of == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for %d ranks", b->world_size);
    memcpy(out->host_of, hello->host_of, bytes);
    memcpy(out->nonce, hello->nonce, SHM_NONCE);
    out->hosts = (int)hello->hosts;
    out->host = out->host_of[b->rank];
    for (int r = 0; r < b->world_size; r++) {
        out->local_rank += r < b->rank && out->host_of[r] == out->host;
        out->locals += out->host_of[r] == out->host;
    }
    if (out->locals <= SHM_WORLD_MAX)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_UNSUPPORTED, "%d ranks on one host: the cpu backend joins at most %d there",
                    out->locals, SHM_WORLD_MAX);
}

/* --- the page ------------------------------------------------------------------------------------------- */

/* The pids go in before anybody can see the page: every rank needs them to watch the others from the
 * first barrier on. `cards` may be NULL, then they are asked for. */
static ddp_status make_page(const struct bootstrap *b, const struct bootstrap_card *cards, struct meeting *m,
                            struct segment_offer *offer, struct ddp_err *err)
{
    ddp_status status = segment_create(&m->segment, shm_total_bytes(m->locals), err);
    struct shm_control *control = m->segment.base;
    for (int r = 0, i = 0; r < b->world_size && status == DDP_OK; r++) {
        struct bootstrap_card card;
        if (m->host_of[r] != m->host)
            continue;
        if (cards != NULL)
            card = cards[r];
        else if ((status = bootstrap_card(b, r, &card, err)) != DDP_OK)
            break;
        control->ranks[i].pid = card.pid;
        control->ranks[i++].rank = r;
        snprintf(control->host, sizeof(control->host), "%s", card.host);
    }
    return status == DDP_OK ? segment_describe(&m->segment, offer, err) : status;
}

/* The first rank of a host that is not the first. */
static ddp_status make_page_here(const struct bootstrap *b, struct meeting *m, struct ddp_err *err)
{
    struct segment_offer offer;
    char key[32];

    page_key(key, m->host);
    ddp_status status = make_page(b, NULL, m, &offer, err);
    if (status == DDP_OK)
        status = bootstrap_publish(b, key, &offer, sizeof(offer), err);
    if (status != DDP_OK)
        bootstrap_publish_error(b, key, err);
    return status;
}

/* The size of the page is computed, not received. A page that is missing may have been removed by a maker that failed
 * meanwhile: then the reason of that rank counts. */
static ddp_status find_page(const struct bootstrap *b, const char *key, const struct segment_offer *offer,
                            struct meeting *m, struct ddp_err *err)
{
    struct hello *again = malloc(hello_bytes(b->world_size));
    struct ddp_err refusal = { 0 };
    size_t bytes = strcmp(key, all_hosts) == 0 ? hello_bytes(b->world_size) : sizeof(*offer);
    ddp_status status = segment_attach(&m->segment, offer, shm_total_bytes(m->locals), err);

    if (status != DDP_OK && again != NULL && bootstrap_fetch(b, key, again, bytes, &refusal) != DDP_OK)
        *err = refusal;
    free(again);
    return err->code;
}

/* --- roles ---------------------------------------------------------------------------------------------- */

/* Rank 0's part. The others get the reason of each failure. */
static ddp_status lead_hosts(const struct bootstrap *b, struct bootstrap_card *cards, int *first,
                             struct hello *hello, struct meeting *m, struct ddp_err *err)
{
    ddp_status status = bootstrap_meet(b, cards, err);
    if (status == DDP_OK && getrandom(hello->nonce, SHM_NONCE, 0) != SHM_NONCE)
        status = ddp_fail(err, DDP_ERR_IO, "getrandom: %s", strerror(errno));
    if (status == DDP_OK)
        status = number_hosts(cards, b->world_size, hello, first, err);
    if (status == DDP_OK)
        status = read_hello(b, hello, m, err);
    if (status == DDP_OK)
        status = make_page(b, cards, m, &hello->offer, err);
    if (status == DDP_OK)
        status = bootstrap_publish(b, all_hosts, hello, hello_bytes(b->world_size), err);
    if (status != DDP_OK)
        bootstrap_publish_error(b, all_hosts, err);
    return status;
}

static ddp_status lead_all(const struct bootstrap *b, struct hello *hello, struct meeting *m,
                           struct ddp_err *err)
{
    struct bootstrap_card *cards = calloc((size_t)b->world_size, sizeof(*cards));
    int *first = calloc((size_t)b->world_size, sizeof(*first));
    ddp_status status = cards != NULL && first != NULL
                            ? lead_hosts(b, cards, first, hello, m, err)
                            : ddp_fail(err, DDP_ERR_NOMEM, "no memory for %d ranks", b->world_size);
    free(cards);
    free(first);
    return status;
}

/* The part of all other ranks. */
static ddp_status follow_host(const struct bootstrap *b, struct hello *hello, struct meeting *m,
                              struct ddp_err *err)
{
    struct segment_offer offer;
    char key[32];
    ddp_status status = bootstrap_meet(b, NULL, err);
    if (status == DDP_OK)
        status = bootstrap_fetch(b, all_hosts, hello, hello_bytes(b->world_size), err);
    if (status == DDP_OK)
        status = read_hello(b, hello, m, err);
    if (status != DDP_OK || m->host == 0)
        return status == DDP_OK ? find_page(b, all_hosts, &hello->offer, m, err) : status;
    if (m->local_rank == 0)
        return make_page_here(b, m, err);
    page_key(key, m->host);
    status = bootstrap_fetch(b, key, &offer, sizeof(offer), err);
    return status == DDP_OK ? find_page(b, key, &offer, m, err) : status;
}

ddp_status meeting_join(const struct bootstrap *bootstrap, struct meeting *out, struct ddp_err *err)
{
    int world = bootstrap->world_size;
    *out = (struct meeting){ .segment = { .fd = -1 } };
    if (world > NET_WORLD_MAX)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED, "a world of %d ranks: the cpu backend joins at most %d",
                        world, NET_WORLD_MAX);
    struct hello *hello = calloc(1, hello_bytes(world));
    if (hello == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for %d ranks", world);
    ddp_status status =
        bootstrap->rank == 0 ? lead_all(bootstrap, hello, out, err) : follow_host(bootstrap, hello, out, err);
    free(hello);
    if (status != DDP_OK)
        meeting_close(out);
    return status;
}

void meeting_close(struct meeting *meeting)
{
    segment_close(&meeting->segment);
    free(meeting->host_of);
    meeting->host_of = NULL;
}

ddp_status meeting_over(const struct bootstrap *bootstrap, struct meeting *meeting, struct ddp_err *err)
{
    char key[32];
    segment_hide(&meeting->segment);
    ddp_status status = bootstrap_clear_card(bootstrap, err);
    if (status != DDP_OK || meeting->local_rank != 0)
        return status;
    page_key(key, meeting->host);
    return bootstrap_clear(bootstrap, meeting->host == 0 ? all_hosts : key, err);
}

void meeting_refuse(const struct bootstrap *bootstrap, const struct meeting *meeting,
                    const struct ddp_err *reason)
{
    char key[32];
    page_key(key, meeting->host);
    if (meeting->local_rank == 0)
        bootstrap_publish_error(bootstrap, meeting->host == 0 ? all_hosts : key, reason);
}
