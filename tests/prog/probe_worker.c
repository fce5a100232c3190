/* probe_worker.c -- a worker that ends in a given way, to test how its launcher reacts.
 *
 *     probe_worker RANK:VERB:VALUE:MS...
 *
 * The worker executes the first argument with its own RANK; -1 means every rank. Without such an argument the worker
 * executes `stay` with MS = 0. Verbs:
 *     exit    exit with VALUE, MS after all workers are there (MS = -1: at once)
 *     signal  send signal VALUE to itself, MS after all workers are there (MS = -1: at once)
 *     follow  exit with VALUE, MS after the launcher could know that rank 1 has ended
 *     stay    run for a minute; at SIGTERM, write a note, wait MS and die of SIGTERM
 *
 * The worker writes the times of its events into the notes (tests/bench/notes.h). */
#include "launched.h"
#include "tests/bench/notes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STAY_MS = 60000, ALL_THERE_MS = 30000, USAGE_ERROR = 98, CAME_TOO_LATE = 99 };

struct action {
    int value;
    long ms;
};

static struct notes *notes;
static struct note *mine;

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

static struct notes *map_notes(void)
{
    const char *path = getenv(NOTES_ENV);
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return NULL;
    void *p = mmap(NULL, sizeof(struct notes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p != MAP_FAILED ? p : NULL;
}

static void wait_for_all(void)
{
    for (int i = 0, waited = 0; i < notes->workers;) {
        if (notes->of[i].ready != 0) {
            i++;
            continue;
        }
        if (waited++ > ALL_THERE_MS)
            _exit(CAME_TOO_LATE);
        sleep_ms(1);
    }
}

static void wait_for_moment(long ms)
{
    if (ms < 0)
        return;
    wait_for_all();
    sleep_ms(ms);
}

static void do_exit(const struct action *a)
{
    wait_for_moment(a->ms);
    mine->done = notes_now();
    _exit(a->value);
}

static void do_signal(const struct action *a)
{
    wait_for_moment(a->ms);
    mine->done = notes_now();
    raise(a->value);
}

/* Wait until rank 1 has ended. A pidfd becomes readable at the moment when the parent gets SIGCHLD. */
static void do_follow(const struct action *a)
{
    wait_for_all();
    int fd = (int)syscall(SYS_pidfd_open, notes->of[1].pid, 0);
    if (fd >= 0)
        poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, ALL_THERE_MS);
    sleep_ms(a->ms);
    mine->done = notes_now();
    _exit(a->value);
}

static void on_term(int sig)
{
    (void)sig;
    if (mine->told == 0)
        mine->told = notes_now();
}

/* Wait a->ms before the end. Otherwise the kernel's work for the end of this worker would delay the other workers,
 * whose times are measured. */
static void do_stay(const struct action *a)
{
    for (int i = 0; i < STAY_MS && mine->told == 0; i += 1000)
        sleep_ms(1000);
    sleep_ms(a->ms);
    signal(SIGTERM, SIG_DFL);
    if (mine->told != 0)
        raise(SIGTERM);
}

static const struct {
    const char *name;
    void (*perform)(const struct action *);
} verbs[] = { { "exit", do_exit }, { "signal", do_signal }, { "follow", do_follow }, { "stay", do_stay } };

static int perform(const char *verb, const struct action *a)
{
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].name, verb) == 0) {
            if (verbs[i].perform == do_stay)
                signal(SIGTERM, on_term);
            mine->ready = notes_now();
            verbs[i].perform(a);
            return 0;
        }
    }
    fprintf(stderr, "probe_worker: what is '%s'?\n", verb);
    return USAGE_ERROR;
}

int main(int argc, char *argv[])
{
    int me = launched_rank();
    notes = map_notes();
    if (notes == NULL || me < 0 || me >= NOTES_MAX) {
        fprintf(stderr, "probe_worker: no notes at $" NOTES_ENV ", or no place in them for rank %d\n", me);
        return USAGE_ERROR;
    }
    mine = &notes->of[me];
    mine->pid = getpid();
    for (int i = 1; i < argc; i++) {
        struct action a;
        char verb[16];
        int rank;
        if (sscanf(argv[i], "%d:%15[a-z]:%d:%ld", &rank, verb, &a.value, &a.ms) != 4)
            return USAGE_ERROR;
        if (rank == me || rank == -1)
            return perform(verb, &a);
    }
    return perform("stay", &(struct action){ 0 });
}
