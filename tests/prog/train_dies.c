/* train_dies.c -- the program train, killed at a point that the test chooses. libddp's calls are wrapped (see the
 * Makefile); train itself is unchanged.
 *
 *     DIE=WHERE:RANK:N     WHERE   before   RANK dies before it meets other ranks in step N
 *                                  in       RANK dies in the all-reduce of this step, before the last rank arrives
 *                                  after    RANK dies after this all-reduce
 *                                  saving   RANK dies while it writes the first file of the N-th checkpoint
 *                                  naming   RANK dies after the last write, before the checkpoint gets its name
 *                                  flipping RANK does not die: a bit of its averaged gradient changes after step N
 *     DIE_FILE=PATH        the file that is created a moment before the death
 *
 * RANK dies only in the first attempt of a job. */
#include "ddp/ckpt.h"
#include "ddp/reducer.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

ddp_status __real_ddp_reducer_forward(ddp_reducer *reducer);
ddp_status __real_ddp_reducer_ready(ddp_reducer *reducer, size_t i);
ddp_status __real_ddp_reducer_finish(ddp_reducer *reducer);
ddp_status __real_ddp_ckpts_save(ddp_ckpts *ckpts, const ddp_ckpt_point *point, const ddp_ckpt_block *blocks,
                                 size_t n, struct ddp_err *err);
int __real_fsync(int fd);
int __real_renameat(int old_dir, const char *old, int new_dir, const char *new);

ddp_status __wrap_ddp_reducer_forward(ddp_reducer *reducer);
ddp_status __wrap_ddp_reducer_ready(ddp_reducer *reducer, size_t i);
ddp_status __wrap_ddp_reducer_finish(ddp_reducer *reducer);
ddp_status __wrap_ddp_ckpts_save(ddp_ckpts *ckpts, const ddp_ckpt_point *point, const ddp_ckpt_block *blocks,
                                 size_t n, struct ddp_err *err);
int __wrap_fsync(int fd);
int __wrap_renameat(int old_dir, const char *old, int new_dir, const char *new);

static int steps, saves;
static bool has_met; /* this rank has met the other ranks in this step */
static atomic_bool is_saving;

static int number_of(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : 0;
}

/* Return true if DIE names this place (`where`) and this number of a step or checkpoint (`n`). Set *rank to the rank
 * that dies. */
static bool is_now(const char *where, int n, int *rank)
{
    char what[16];
    int when;
    const char *die = getenv("DIE");
    if (die == NULL || number_of("TORCHELASTIC_RESTART_COUNT") > 0 ||
        sscanf(die, "%15[a-z]:%d:%d", what, rank, &when) != 3)
        return false;
    return strcmp(what, where) == 0 && when == n;
}

static void leave_file(void)
{
    close(open(getenv("DIE_FILE"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

static void die(void)
{
    leave_file();
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static void die_if(const char *where, int n)
{
    int rank;
    if (is_now(where, n, &rank) && rank == number_of("RANK"))
        die();
}

static void rest(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 5 * 1000 * 1000 }, NULL);
}

/* Return true if the first thread sleeps now. With DIE=in, the last rank comes to the all-reduce only after the death.
 * So if the first thread sleeps for a long time, it waits for the last rank. */
static bool sleeps(void)
{
    char text[512] = "";
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t len = read(fd, text, sizeof(text) - 1);
    close(fd);
    const char *state = len > 0 ? strrchr(text, ')') : NULL;
    return state != NULL && state[1] == ' ' && state[2] == 'S';
}

/* Die when the first thread sleeps in five checks in a row. A single check could find a short sleep before the wait for
 * the last rank. */
static void *die_asleep(void *unused)
{
    for (int seen = 0; seen < 5; seen = sleeps() ? seen + 1 : 0)
        rest();
    die();
    return unused;
}

static void come_late(void)
{
    while (access(getenv("DIE_FILE"), F_OK) != 0)
        rest();
}

static void be_caught_inside(void)
{
    int rank;
    pthread_t thread;
    if (!is_now("in", steps, &rank))
        return;
    if (rank == number_of("RANK"))
        pthread_create(&thread, NULL, die_asleep, NULL);
    else if (number_of("RANK") == number_of("WORLD_SIZE") - 1)
        come_late();
}

ddp_status __wrap_ddp_reducer_forward(ddp_reducer *reducer)
{
    steps++;
    has_met = false;
    return __real_ddp_reducer_forward(reducer);
}

ddp_status __wrap_ddp_reducer_ready(ddp_reducer *reducer, size_t i)
{
    if (!has_met) {
        die_if("before", steps);
        be_caught_inside();
    }
    has_met = true;
    return __real_ddp_reducer_ready(reducer, i);
}

ddp_status __wrap_ddp_reducer_finish(ddp_reducer *reducer)
{
    int rank;
    ddp_status status = __real_ddp_reducer_finish(reducer);
    die_if("after", steps);
    if (is_now("flipping", steps, &rank) && rank == number_of("RANK"))
        *(unsigned char *)ddp_reducer_grad(reducer, 0) ^= 0x40;
    return status;
}

ddp_status __wrap_ddp_ckpts_save(ddp_ckpts *ckpts, const ddp_ckpt_point *point, const ddp_ckpt_block *blocks,
                                 size_t n, struct ddp_err *err)
{
    struct ddp_err ignored;
    ddp_ckpts_wait(ckpts, &ignored); /* later calls of fsync and renameat are then for the new checkpoint */
    saves++;
    is_saving = true;
    return __real_ddp_ckpts_save(ckpts, point, blocks, n, err);
}

int __wrap_fsync(int fd)
{
    if (is_saving)
        die_if("saving", saves);
    return __real_fsync(fd);
}

int __wrap_renameat(int old_dir, const char *old, int new_dir, const char *new)
{
    if (is_saving)
        die_if("naming", saves);
    return __real_renameat(old_dir, old, new_dir, new);
}
