/* recorder.c -- see recorder.h.
 *
 * The recorder installs a handler for SIGUSR1 only if the program has none, because the program's handler must keep
 * working. If the program installs a handler later, that handler replaces this one. A signal handler can read only
 * global data, so the active recorders (struct sigusr1) are in a global table. */
#include "core/recorder.h"

#include "base/clock.h"
#include "record/flight.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* --- SIGUSR1 -------------------------------------------------------------------------------------------- */

/* PLACES: maximum number of recorders that write their files at SIGUSR1. */
enum { PLACES = 8, HANDLER_WAIT_MS = 2000 };

static _Atomic(struct sigusr1 *) listening[PLACES];
static _Atomic int inside; /* number of running handlers */

/* Call all listeners from the signal handler. sigusr1_leave waits until `inside` is 0. */
static void on_sigusr1(int sig)
{
    (void)sig;
    atomic_fetch_add(&inside, 1);
    for (int i = 0; i < PLACES; i++) {
        struct sigusr1 *listener = atomic_load(&listening[i]);
        if (listener != NULL)
            listener->received(listener);
    }
    atomic_fetch_sub(&inside, 1);
}

static bool reserve_listener(struct sigusr1 *listener)
{
    for (int i = 0; i < PLACES; i++) {
        struct sigusr1 *none = NULL;
        if (atomic_compare_exchange_strong(&listening[i], &none, listener))
            return true;
    }
    return false;
}

static bool is_unhandled(const struct sigaction *now)
{
    return !(now->sa_flags & SA_SIGINFO) && now->sa_handler == SIG_DFL;
}

/* Add a listener, and install the handler if the program has none. SA_RESTART restarts interrupted system calls. */
static void sigusr1_listen(struct sigusr1 *listener)
{
    struct sigaction now, handler = { .sa_handler = on_sigusr1, .sa_flags = SA_RESTART };
    sigemptyset(&handler.sa_mask);
    if (reserve_listener(listener) && sigaction(SIGUSR1, NULL, &now) == 0 && is_unhandled(&now))
        sigaction(SIGUSR1, &handler, NULL);
}

/* Remove a listener. Another thread may be running the handler with this listener, so wait until no handler runs. Wait
 * at most HANDLER_WAIT_MS, because the disk may hang. Return false if a handler still runs; the caller must then not
 * free the listener. Leave the handler installed, because a late signal would otherwise end the process. */
static bool sigusr1_leave(struct sigusr1 *listener)
{
    for (int i = 0; i < PLACES; i++) {
        struct sigusr1 *own = listener;
        atomic_compare_exchange_strong(&listening[i], &own, NULL);
    }
    for (int ms = 0; ms < HANDLER_WAIT_MS && atomic_load(&inside) != 0; ms++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    return atomic_load(&inside) == 0;
}

/* --- memory --------------------------------------------------------------------------------------------- */

/* Return true if `fd` is the file that the launcher has named, and if the file is sealed. The seals prevent a change of
 * the file's size. */
static bool is_meant(int fd, const struct flight_page *page)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_dev == page->device && st.st_ino == page->inode &&
           (uint64_t)st.st_size / FLIGHT_PAGE_BYTES > page->index &&
           (fcntl(fd, F_GET_SEALS) & seals) == seals;
}

/* Map the page that the launcher shares with this worker. Return NULL if the launcher has ended, or if its /proc entry
 * is not accessible. */
static struct flight *map_page(const char *text)
{
    struct flight_page page;
    char path[64];
    void *base = MAP_FAILED;
    if (!flight_page_parse(text, &page))
        return NULL;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", page.pid, page.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && is_meant(fd, &page))
        base = mmap(NULL, FLIGHT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                    (off_t)(page.index * FLIGHT_PAGE_BYTES));
    if (fd >= 0)
        close(fd);
    return base != MAP_FAILED ? base : NULL;
}

static struct flight *map_own(void)
{
    void *base = mmap(NULL, FLIGHT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return base != MAP_FAILED ? base : NULL;
}

static void fill_names(struct flight *f)
{
    for (unsigned i = 0; i < CALL_KINDS && i < FLIGHT_KINDS; i++)
        snprintf(f->kinds[i], FLIGHT_WORD, "%s", call_rules[i].word);
    for (unsigned i = 0; i < FLIGHT_NAMES && ddp_dtype_size((ddp_dtype)i) > 0; i++)
        snprintf(f->dtypes[i], FLIGHT_WORD, "%s", ddp_dtype_name((ddp_dtype)i));
    for (unsigned i = 0; i < FLIGHT_NAMES && strcmp(ddp_op_name((ddp_op)i), "?") != 0; i++)
        snprintf(f->ops[i], FLIGHT_WORD, "%s", ddp_op_name((ddp_op)i));
}

/* Write the head of the page. If a process has several contexts one after the other, the page describes the last
 * context. */
static void fill_flight_head(struct flight *f, const struct recorder_setup *s)
{
    memset(f, 0, sizeof(*f));
    f->rank = s->rank;
    f->world_size = s->world_size;
    f->attempt = s->attempt;
    f->pid = getpid();
    f->wall_ns = (int64_t)(clock_unix_us() * 1000) - (int64_t)clock_ns();
    snprintf(f->job, sizeof(f->job), "%.*s", FLIGHT_NAME - 1, s->job);
    snprintf(f->backend, sizeof(f->backend), "%.*s", FLIGHT_WORD - 1, s->backend);
    if (gethostname(f->host, sizeof(f->host) - 1) != 0)
        f->host[0] = '\0';
    fill_names(f);
    atomic_store_explicit(&f->magic, FLIGHT_MAGIC, memory_order_release);
}

/* Create the last directory of the path if that directory does not exist. */
static void make_directory(const char *path)
{
    char directory[RECORDER_PATH];
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path)
        return;
    memcpy(directory, path, (size_t)(slash - path));
    directory[slash - path] = '\0';
    mkdir(directory, 0777);
}

/* Write the file in the signal handler. `listener` is the first member of its recorder, so the cast is valid. */
static void recorder_on_sigusr1(struct sigusr1 *listener)
{
    recorder_write((struct recorder *)listener, "SIGUSR1");
}

void recorder_open(struct recorder *r, const struct recorder_setup *s)
{
    static const char end[] = ".tmp";
    *r = (struct recorder){ .bucket = -1 };
    if (s->page[0] != '\0')
        r->flight = map_page(s->page);
    if (r->flight == NULL && s->pattern[0] != '\0')
        r->flight = map_own();
    if (r->flight == NULL)
        return;
    fill_flight_head(r->flight, s);
    if (s->pattern[0] == '\0' || !flight_path(r->path, sizeof(r->path) - sizeof(end), s->pattern, s->rank)) {
        r->path[0] = '\0';
        return;
    }
    memcpy(r->temporary, r->path, sizeof(r->path));
    strcat(r->temporary, end);
    make_directory(r->path);
    r->sigusr1.received = recorder_on_sigusr1;
    sigusr1_listen(&r->sigusr1);
}

/* Close the recorder. Do not clear the page, because the launcher reads it after this process has ended. */
bool recorder_close(struct recorder *r)
{
    if (r->flight == NULL)
        return true;
    if (!sigusr1_leave(&r->sigusr1))
        return false;
    munmap(r->flight, FLIGHT_PAGE_BYTES);
    r->flight = NULL;
    return true;
}

/* --- calls ---------------------------------------------------------------------------------------------- */

uint64_t recorder_now(const struct recorder *r)
{
    return r->flight != NULL ? clock_ns() : 0;
}

void recorder_begin(struct recorder *r, const struct call *call, uint64_t seq, uint32_t timeout_ms,
                    bool blocks)
{
    if (r->flight == NULL)
        return;
    const bool has_values = call_rules[call->kind].in != AT_NONE;
    const struct flight_begin begin = { .seq = seq,
                                        .n = call->n,
                                        .bytes = has_values ? call->n * ddp_dtype_size(call->dtype) : call->n,
                                        .created_ns = r->posted_ns,
                                        .now_ns = clock_ns(),
                                        .kind = (unsigned)call->kind,
                                        .dtype = has_values ? (unsigned)call->dtype : FLIGHT_NAMES,
                                        .op = call_rules[call->kind].reduces ? (unsigned)call->op
                                                                             : FLIGHT_NAMES,
                                        .root = (uint32_t)call->root,
                                        .timeout_ms = call->timeout_ms ? call->timeout_ms : timeout_ms,
                                        .bucket = r->bucket,
                                        .state = blocks ? FLIGHT_STARTED : FLIGHT_SCHEDULED };
    r->op = flight_add(r->flight, &begin);
    r->posted_ns = 0;
}

/* Store the ticket of a call, and mark the call as ended if it has failed or is complete. recorder_complete() may have
 * run before the ticket was stored. In this case recorder_complete() has not marked the call. */
void recorder_end(struct recorder *r, ddp_status status, uint64_t ticket)
{
    if (r->flight == NULL)
        return;
    atomic_store(&r->op->ticket, ticket);
    if (status == DDP_OK && ticket > atomic_load(&r->done))
        return;
    flight_finish(r->flight, r->op, status == DDP_OK ? FLIGHT_COMPLETED : FLIGHT_FAILED, clock_ns());
}

/* Mark all calls up to `ticket` as done, the latest call first. Earlier calls have lower tickets, so stop at the first
 * call that is already marked. */
void recorder_complete(struct recorder *r, uint64_t ticket)
{
    if (r == NULL || r->flight == NULL)
        return;
    struct flight *f = r->flight;
    const uint64_t before = atomic_exchange(&r->done, ticket), now_ns = clock_ns();
    const uint64_t records = atomic_load(&f->records);
    for (uint64_t i = 1; i <= FLIGHT_OPS && i <= records; i++) {
        struct flight_op *op = &f->op[(records - i) % FLIGHT_OPS];
        const uint64_t its = atomic_load(&op->ticket);
        if (its != 0 && its <= before)
            break;
        if (its != 0 && its <= ticket && flight_state(atomic_load(&op->call)) == FLIGHT_SCHEDULED)
            flight_finish(f, op, FLIGHT_COMPLETED, now_ns);
    }
}

void recorder_step(struct recorder *r, uint64_t step)
{
    if (r->flight != NULL)
        atomic_store_explicit(&r->flight->step, step + 1, memory_order_relaxed);
}

/* --- the file ------------------------------------------------------------------------------------------- */

bool recorder_write(struct recorder *r, const char *why)
{
    if (r->flight == NULL || r->path[0] == '\0' || atomic_exchange(&r->busy, 1) != 0)
        return false;
    const int error = errno;
    const bool ok = flight_file_write(r->flight, r->path, r->temporary, why);
    if (ok)
        flight_note_kept(r->flight);
    errno = error;
    atomic_store(&r->busy, 0);
    return ok;
}
