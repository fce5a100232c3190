/* lacks.c -- see lacks.h. One row for each thing that we use and can do without.
 *
 * Old kernels lack a call, and containers forbid it by a filter; both are found out by trying. What is done
 * instead works, but less well, and a user who wonders why reads it under --verbose. `grave` is what lets
 * processes go without their SIGTERM: that is said to everybody. */
#include "contain/lacks.h"

#include "contain/pids.h"
#include "contain/procfs.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A call with arguments that make no sense fails in one way where it exists, and in another where it does
 * not, or where a filter of system calls forbids it. */
static bool has_call(long result)
{
    return result >= 0 || (errno != ENOSYS && errno != EPERM);
}

/* A NULL pointer of size 0 is refused before anything is made. */
static bool has_clone3(void)
{
    return has_call(syscall(SYS_clone3, NULL, (size_t)0));
}

/* A range that holds no descriptor: nothing is closed. */
static bool has_close_range(void)
{
    return has_call(syscall(SYS_close_range, ~0U, ~0U, 0U));
}

/* Process 1 belongs to somebody else for all but root; who can be seen at all can be looked at this far. */
static bool shows_all(void)
{
    return !procfs_is_ours() || access("/proc/1/stat", F_OK) == 0;
}

static const struct {
    bool (*has)(void);
    bool grave;
    const char *words;
} rows[] = {
    { procfs_is_ours, true,
      "/proc is not mounted for this PID namespace: what workers start themselves hears no SIGTERM, it is "
      "killed when they are "
      "gone; mount it with 'mount -t proc proc /proc' (docker and podman do by themselves)" },
    { shows_all, false,
      "/proc hides the processes of other users (hidepid): children of a worker that has changed its user "
      "hear no SIGTERM, "
      "they are killed when their parents are gone" },
    { pids_can_hold, false,
      "this kernel or a filter has no pidfd_open (Linux 5.3): processes are told apart by their start time, "
      "and of workers "
      "that fail in the same moment the first cannot be told; what another start has left behind is not "
      "looked for" },
    { has_clone3, false,
      "this kernel or a filter has no clone3 (Linux 5.7): workers join their control group after birth" },
    { has_close_range, false,
      "this kernel or a filter has no close_range (Linux 5.9): descriptors are closed one by one when a "
      "worker starts" },
};

/* Tried anew at each call: it is asked a handful of times in the life of a job, and a cache would have to be
 * right. */
const char *lacks_words(size_t n, bool only_grave, bool *grave)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if ((only_grave && !rows[i].grave) || rows[i].has())
            continue;
        if (n-- > 0)
            continue;
        *grave = rows[i].grave;
        return rows[i].words;
    }
    return NULL;
}
