/* shm.c -- see shm.h. Ranks find the memory through /proc/<pid>/fd, which every process of the same user may open.
 * shm_open would leave a name in /dev/shm if all ranks are killed before they unlink it. */
#include "cpu/shm.h"

#include "base/buf.h"
#include "base/limits.h"
#include "base/syscalls.h"
#include "cpu/net_plan.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static ddp_status map_segment(struct segment *s, size_t bytes, int fd, int flags, struct ddp_err *err)
{
    char why[MEMORY_ERROR_MAX];
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (base == MAP_FAILED)
        return ddp_fail(err, DDP_ERR_NOMEM, "cannot map %zu bytes of shared memory: %s", bytes,
                        memory_error_text(errno, why));
    /* Large pages cause fewer TLB misses in large reductions. Systems without large pages ignore this call. */
    madvise(base, bytes, MADV_HUGEPAGE);
    *s = (struct segment){ .base = base, .bytes = bytes, .fd = fd };
    return DDP_OK;
}

/* Call posix_fallocate with all signals blocked. Without the signal mask, a periodic timer could interrupt every call,
 * and the loop below would never end. The mask delays SIGINT and SIGTERM, too. */
static int allocate_pages(int fd, size_t bytes)
{
    sigset_t all, before;
    int error;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* Before Linux 6.9 a signal handler ends the call with EINTR and frees the pages. */
    do
        error = posix_fallocate(fd, 0, (off_t)bytes);
    while (error == EINTR);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Set the size of a new memory file, allocate its pages, and seal the file. Without posix_fallocate the first access to
 * each page would allocate the page. The kernel would then kill the worker with SIGBUS when memory is short.
 * F_SEAL_SEAL prevents later changes of the seals. */
static ddp_status fill_segment(int fd, size_t bytes, struct ddp_err *err)
{
    char why[MEMORY_ERROR_MAX];
    if (ftruncate(fd, (off_t)bytes) != 0)
        return ddp_fail(err, DDP_ERR_NOMEM, "cannot create %zu bytes of shared memory: %s", bytes,
                        memory_error_text(errno, why));
    int error = allocate_pages(fd, bytes);
    if (error != 0)
        return ddp_fail(err, DDP_ERR_NOMEM, "cannot allocate %zu bytes of shared memory: %s", bytes,
                        memory_error_text(error, why));
    if (fcntl(fd, F_ADD_SEALS, SEALS) != 0)
        return ddp_fail(err, DDP_ERR_IO, "cannot seal shared memory: %s", strerror(errno));
    return DDP_OK;
}

/* Create a segment. The descriptor is close-on-exec. Otherwise a program that a worker starts would keep the memory
 * allocated. */
ddp_status segment_create(struct segment *out, size_t bytes, struct ddp_err *err)
{
    *out = (struct segment){ .fd = -1 };
    char why[MEMORY_ERROR_MAX];
    int fd = sys_memfd_create("ddp", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return ddp_fail(err, DDP_ERR_IO, "cannot create shared memory: memfd_create: %s",
                        memory_error_text(errno, why));
    ddp_status status = fill_segment(fd, bytes, err);
    if (status == DDP_OK)
        status = map_segment(out, bytes, fd, MAP_SHARED, err);
    if (status != DDP_OK)
        close(fd);
    return status;
}

ddp_status segment_create_private(struct segment *out, size_t bytes, struct ddp_err *err)
{
    *out = (struct segment){ .fd = -1 };
    return map_segment(out, bytes, -1, MAP_PRIVATE | MAP_ANONYMOUS, err);
}

ddp_status segment_describe(const struct segment *segment, struct segment_offer *offer, struct ddp_err *err)
{
    struct stat st;
    if (fstat(segment->fd, &st) != 0)
        return ddp_fail(err, DDP_ERR_IO, "cannot examine shared memory: fstat: %s", strerror(errno));
    *offer = (struct segment_offer){ getpid(), segment->fd, st.st_dev, st.st_ino };
    return DDP_OK;
}

/* Check that `fd` is the offered file, with the expected size and seals. Also check that this user owns the file,
 * because another owner could change the file. */
static ddp_status recognize(int fd, const struct segment_offer *offer, size_t bytes, struct ddp_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return ddp_fail(err, DDP_ERR_IO, "cannot examine shared memory: fstat: %s", strerror(errno));
    int seals = fcntl(fd, F_GET_SEALS);
    if (st.st_dev != offer->device || st.st_ino != offer->inode || st.st_size != (off_t)bytes || seals < 0 ||
        (seals & SEALS) != SEALS)
        return ddp_fail(err, DDP_ERR_CORRUPT,
                        "descriptor %d of pid %d is not this job's shared memory: the size (%lld bytes, "
                        "expected: %zu), the inode, the device number or the seals differ; restart the job",
                        offer->fd, offer->pid, (long long)st.st_size, bytes);
    if (st.st_uid != geteuid())
        return ddp_fail(
            err, DDP_ERR_CORRUPT,
            "the shared memory of pid %d belongs to uid %u, but this rank has uid %u; all ranks must "
            "run as the same user",
            offer->pid, (unsigned)st.st_uid, (unsigned)geteuid());
    return DDP_OK;
}

ddp_status segment_attach(struct segment *out, const struct segment_offer *offer, size_t bytes,
                          struct ddp_err *err)
{
    char path[64];
    *out = (struct segment){ .fd = -1 };
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", offer->pid, offer->fd);
    /* O_NONBLOCK prevents a wait in open(): `path` is a descriptor of another process, and may now be a pipe */
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ddp_fail(err, DDP_ERR_IO,
                        "cannot open shared memory %s: %s; all ranks must run as the same user", path,
                        strerror(errno));
    ddp_status status = recognize(fd, offer, bytes, err);
    if (status == DDP_OK)
        status = map_segment(out, bytes, fd, MAP_SHARED, err);
    close(fd);
    out->fd = -1;
    return status;
}

void segment_hide(struct segment *segment)
{
    if (segment->fd >= 0)
        close(segment->fd);
    segment->fd = -1;
}

/* Unmap and close a segment. Do nothing if the segment was never created or is already closed. */
static void segment_close(struct segment *segment)
{
    if (segment->base == NULL)
        return;
    segment_hide(segment);
    munmap(segment->base, segment->bytes);
    segment->base = NULL;
}

/* --- the control page ------------------------------------------------------------------------------------- */

/* Limits for the bytes of a slot. SLOT_MOST fits into the second-level cache. SLOTS_TOTAL limits all slots
 * together, but no slot is smaller than SLOT_LEAST. */
enum { SLOT_MOST = 256 << 10, SLOT_LEAST = 16 << 10, SLOTS_TOTAL = 64 << 20 };

/* Return the size of the control page in bytes. Round the size up to a multiple of SEGMENT_PAGE, where the slots
 * begin. */
size_t shm_control_bytes(int world)
{
    size_t bytes = sizeof(struct shm_control) + (size_t)world * sizeof(struct shm_rank);
    return round_up(bytes, SEGMENT_PAGE);
}

size_t shm_slot_bytes(int world)
{
    size_t share = SLOTS_TOTAL / SHM_SLOTS / (size_t)world / SEGMENT_PAGE * SEGMENT_PAGE;
    return share > SLOT_MOST ? SLOT_MOST : share < SLOT_LEAST ? SLOT_LEAST : share;
}

static size_t shm_total_bytes(int world)
{
    return shm_control_bytes(world) + (size_t)world * SHM_SLOTS * shm_slot_bytes(world);
}

void *shm_slot(struct shm_control *control, int world, int rank, unsigned which)
{
    size_t number = (size_t)rank * SHM_SLOTS + which;
    return (char *)control + shm_control_bytes(world) + number * shm_slot_bytes(world);
}

const struct shm_mark *shm_mark_of(const struct shm_control *control, int rank, uint64_t seq)
{
    return &control->ranks[rank].marks[seq & 1];
}

const struct shm_mark *shm_last_mark(const struct shm_control *control, int rank)
{
    const struct shm_mark *marks = control->ranks[rank].marks;
    return &marks[marks[1].seq > marks[0].seq];
}

/* Claim the right to write the abort text. The claiming rank then writes the text and sets abort_ready, so no
 * reader sees a half-written text. If that rank dies before it sets abort_ready, the other ranks detect its death
 * and report that death instead. */
bool shm_abort_claim(struct shm_control *control)
{
    uint32_t nobody = 0;
    return atomic_compare_exchange_strong(&control->abort_claimed, &nobody, 1);
}

void shm_abort_publish(struct shm_control *control, ddp_status code, const char *words)
{
    control->abort_code = code;
    snprintf(control->abort_words, sizeof(control->abort_words), "%s", words);
    atomic_store(&control->abort_ready, 1);
    futex_wake_all(&control->phase);
}

/* Return the error of the rank that has aborted, or DDP_OK. Every barrier calls this function. If no rank has aborted,
 * this function is fast, because it only loads one number. */
ddp_status shm_aborted(struct shm_control *control, struct ddp_err *err)
{
    if (!atomic_load_explicit(&control->abort_ready, memory_order_acquire))
        return DDP_OK;
    /* The text may have no NUL. */
    return ddp_fail(err, (ddp_status)control->abort_code, "%.*s", (int)sizeof(control->abort_words) - 1,
                    control->abort_words);
}

/* --- blocks of ddp_shared_alloc --------------------------------------------------------------------------- */

/* Bytes between two blocks: without them, blocks with sizes of powers of two would compete for the same cache
 * lines. */
enum { BETWEEN = SEGMENT_PAGE };

/* Set *number to the lowest free number of a region. All ranks get the same number, because all ranks create and free
 * regions in the same order. */
ddp_status regions_reserve(struct regions *regions, int32_t *number, struct ddp_err *err)
{
    for (size_t i = 0; i < regions->count; i++) {
        if (regions->list[i].segment.base == NULL) {
            *number = (int32_t)i;
            return DDP_OK;
        }
    }
    struct region *list = realloc(regions->list, (regions->count + 1) * sizeof(*list));
    if (list == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for a table of %zu shared blocks",
                        regions->count + 1);
    regions->list = list;
    *number = (int32_t)regions->count++;
    list[*number] = (struct region){ .segment = { .fd = -1 } };
    return DDP_OK;
}

size_t region_segment_bytes(size_t bytes, int world, size_t *stride)
{
    if (bytes > SIZE_MAX / 2 / (size_t)world - 2 * SEGMENT_PAGE - BETWEEN)
        return 0;
    *stride = round_up(bytes, SEGMENT_PAGE) + BETWEEN;
    return *stride * (size_t)world;
}

/* Find the region of a block. Do not add sizes to the address `block`, because the sum could overflow. Compare
 * differences of addresses instead. */
struct shm_place regions_find(const struct regions *regions, const void *block, size_t bytes)
{
    for (size_t i = 0; i < regions->count; i++) {
        const struct region *r = &regions->list[i];
        uintptr_t mine = (uintptr_t)r->segment.base + (size_t)regions->rank * r->stride,
                  at = (uintptr_t)block;
        if (r->segment.base != NULL && at >= mine && at - mine <= r->bytes && bytes <= r->bytes - (at - mine))
            return (struct shm_place){ (int32_t)i, at - mine };
    }
    return (struct shm_place){ -1, 0 };
}

void *regions_at(const struct regions *regions, int rank, struct shm_place place, size_t bytes)
{
    if (place.region < 0 || (size_t)place.region >= regions->count)
        return NULL;
    const struct region *r = &regions->list[place.region];
    if (r->segment.base == NULL || place.offset > r->bytes || bytes > r->bytes - place.offset)
        return NULL;
    return (char *)r->segment.base + (size_t)rank * r->stride + place.offset;
}

void region_close(struct region *region)
{
    segment_close(&region->segment);
}

void regions_close(struct regions *regions)
{
    for (size_t i = 0; i < regions->count; i++)
        region_close(&regions->list[i]);
    free(regions->list);
    *regions = (struct regions){ 0 };
}

/* --- meeting ---------------------------------------------------------------------------------------------- */

/* Each rank writes a card (struct bootstrap_card). Rank 0 collects all cards and numbers the hosts. Host 0 is the host
 * of rank 0. The ranks create and publish the pages as follows:
 *
 *     rank 0                  creates the page of host 0; publishes the host of each rank, and where this page is
 *     lowest rank elsewhere   creates its host's page and publishes where the page is
 *
 * If one of these ranks fails, it publishes its error instead. All ranks that wait for its message then fail at once
 * with the same text. */

/* The message of rank 0 to all ranks. */
struct hello {
    struct segment_offer offer; /* where the page of host 0 is */
    uint8_t nonce[SHM_NONCE];
    uint32_t hosts;
    uint16_t host_of[]; /* host of each rank */
};

static const char all_hosts[] = "hosts";

static size_t hello_bytes(int world)
{
    return sizeof(struct hello) + (size_t)world * sizeof(uint16_t);
}

static void page_key(char key[32], int host)
{
    snprintf(key, 32, "page/%d", host);
}

/* --- places of ranks ------------------------------------------------------------------------------------ */

/* Return true if two ranks count as ranks of one host: the boot id and the PID namespace are equal. pidfds do not work
 * between PID namespaces, for example between two containers. */
static bool same_host(const struct bootstrap_card *a, const struct bootstrap_card *b)
{
    /* The boot id distinguishes kernels with equal host names. */
    return strcmp(a->boot_id, b->boot_id) == 0 && a->pid_namespace == b->pid_namespace;
}

/* Number the hosts in the order of their lowest ranks. Set first[h] to the lowest rank of host h. */
static ddp_status number_hosts(const struct bootstrap_card *cards, int world, struct hello *hello, int *first,
                               struct ddp_err *err)
{
    for (int r = 0; r < world; r++) {
        uint32_t h = r > 0 ? hello->host_of[r - 1] : 0; /* first try the host of the previous rank */
        if (r > 0 && !same_host(&cards[r], &cards[first[h]]))
            for (h = 0; h < hello->hosts && !same_host(&cards[r], &cards[first[h]]); h++)
                ;
        if (h == NET_HOSTS_MAX)
            return ddp_fail(err, DDP_ERR_UNSUPPORTED, "the cpu backend supports at most %d hosts",
                            NET_HOSTS_MAX);
        if (h >= hello->hosts)
            first[hello->hosts++] = r;
        hello->host_of[r] = (uint16_t)h;
    }
    return DDP_OK;
}

/* Return true if `host_of` may be a result of number_hosts, which numbers the hosts in the order of their lowest
 * ranks. */
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

/* Find this rank's host in hello->host_of. Check this table first, because its numbers are used as indices. */
static ddp_status read_hello(const struct bootstrap *b, const struct hello *hello, struct meeting *out,
                             struct ddp_err *err)
{
    size_t bytes = (size_t)b->world_size * sizeof(*out->host_of);
    if (hello->hosts > NET_HOSTS_MAX || !is_numbered(hello->host_of, b->world_size, hello->hosts))
        return ddp_fail(err, DDP_ERR_CORRUPT,
                        "the store's key %s/%s has an invalid table of %u hosts; another program may have "
                        "written the key",
                        b->prefix, all_hosts, hello->hosts);
    out->host_of = malloc(bytes);
    if (out->host_of == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %d ranks", b->world_size);
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
    return ddp_fail(err, DDP_ERR_UNSUPPORTED, "%d ranks on one host: the cpu backend supports at most %d",
                    out->locals, SHM_WORLD_MAX);
}

/* --- the page ------------------------------------------------------------------------------------------- */

/* Create this host's page, with the pids, which every rank needs from the first barrier on. If `cards` is NULL,
 * read the pids from the store. */
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

/* Create and publish the page of this host, which is not host 0; called on the host's first rank. */
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

/* Map this host's page. If the page cannot be mapped, the rank that created it may have failed and closed it. If that
 * rank has published an error in the store, return this error. */
static ddp_status find_page(const struct bootstrap *b, const char *key, const struct segment_offer *offer,
                            struct meeting *m, struct ddp_err *err)
{
    struct hello *again = malloc(hello_bytes(b->world_size));
    struct ddp_err refusal = { 0 };
    size_t bytes = strcmp(key, all_hosts) == 0 ? hello_bytes(b->world_size) : sizeof(*offer);
    /* The size is computed, because a size from a peer may be wrong. */
    ddp_status status = segment_attach(&m->segment, offer, shm_total_bytes(m->locals), err);

    if (status != DDP_OK && again != NULL && bootstrap_fetch(b, key, again, bytes, &refusal) != DDP_OK)
        *err = refusal;
    free(again);
    return err->code;
}

/* --- roles ---------------------------------------------------------------------------------------------- */

/* Do rank 0's part of meeting_join. After a failure, publish the reason for the other ranks. */
static ddp_status lead_hosts(const struct bootstrap *b, struct bootstrap_card *cards, int *first,
                             struct hello *hello, struct meeting *m, struct ddp_err *err)
{
    ddp_status status = bootstrap_meet(b, cards, err);
    if (status == DDP_OK && sys_getrandom(hello->nonce, SHM_NONCE, 0) != SHM_NONCE)
        status = ddp_fail(err, DDP_ERR_IO, "cannot read random bytes: getrandom: %s", strerror(errno));
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
                            : ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %d ranks", b->world_size);
    free(cards);
    free(first);
    return status;
}

/* Do meeting_join's work on a rank other than 0. */
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
        return ddp_fail(err, DDP_ERR_UNSUPPORTED, "WORLD_SIZE=%d: the cpu backend supports at most %d ranks",
                        world, NET_WORLD_MAX);
    struct hello *hello = calloc(1, hello_bytes(world));
    if (hello == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %d ranks", world);
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
