/* leftovers.c -- see leftovers.h.
 *
 * A process is killed when its environment, as the kernel keeps it, has the cookie: 128 random bits, given to the
 * workers of one job only. That alone makes a stranger impossible; what remains is that a pid may change its owner
 * between the look and the signal. So a pidfd is opened first, then environment and start time are read, and the
 * signal goes to the pidfd: had the pid changed hands in between, the pidfd's process would be gone and the signal
 * would reach nobody.
 *
 * /proc is read in ascending order, and new pids are higher than their parents', so a chain of processes that fork
 * and die runs towards us. Once in 4 million forks pids wrap around: hence the second look. */
#include "contain/leftovers.h"

#include "contain/hurry.h"
#include "contain/pids.h"
#include "contain/procfs.h"
#include "tables/worker_env.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MARK_MAX = 32 + COOKIE_CHARS,     /* "DDPRUN_COOKIE=<cookie>" and the NUL that ends an entry */
    CHASES = 40,                      /* times */
    LOOKS = 50,                       /* at the next */
    AHEAD = 16,                       /* numbers */
    BLOCK = 64 * 1024,                /* is read at a time; */
    ENVIRONMENT_MAX = 8 * 1024 * 1024 /* more than the kernel lets anybody have */
};

/* Is the entry `mark` (with its NUL) in this piece of an environment? `first` = the piece begins with an entry. */
static bool has_mark(const char *piece, size_t len, const char *mark, size_t mark_len, bool first)
{
    const char *at = piece, *found;
    while ((found = memmem(at, len - (size_t)(at - piece), mark, mark_len)) != NULL) {
        if ((found == piece && first) || (found > piece && found[-1] == '\0'))
            return true;
        at = found + 1;
    }
    return false;
}

/* Piece by piece, with the end of one kept in front of the next, so that no entry is cut in two. */
static bool environment_has(int fd, const char *cookie)
{
    char piece[BLOCK], mark[MARK_MAX];
    const char *name = worker_env_name(ENV_DDPRUN_COOKIE);
    size_t mark_len = (size_t)snprintf(mark, sizeof(mark), "%s=%.*s", name, COOKIE_CHARS, cookie) + 1;
    size_t kept = 0, total = 0;
    ssize_t n;
    bool found = false, first = true;
    while (!found && total < ENVIRONMENT_MAX && (n = read(fd, piece + kept, sizeof(piece) - kept)) > 0) {
        size_t len = kept + (size_t)n;
        found = has_mark(piece, len, mark, mark_len, first);
        kept = len < mark_len ? len : mark_len;
        first = first && kept == len;
        memmove(piece, piece + len - kept, kept);
        total += (size_t)n;
    }
    return found;
}

bool leftovers_is_marked(int pid, const char *cookie)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/environ", pid != 0 ? pid : (int)getpid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool found = fd >= 0 && environment_has(fd, cookie);
    if (fd >= 0)
        close(fd);
    return found;
}

/* True when it was one of them. The cheap looks come first: most processes are of somebody else. */
static bool kill_one(const struct leftovers *l, pid_t pid)
{
    struct proc_stat stat;
    if (pid == getpid() || !leftovers_is_marked(pid, l->cookie))
        return false;
    int pidfd = pids_hold(pid);
    bool ours = pidfd >= 0 && procfs_stat(pid, &stat) && stat.start_ticks >= l->start_ticks &&
                leftovers_is_marked(pid, l->cookie) && pids_signal(pidfd, SIGKILL);
    if (pidfd >= 0)
        close(pidfd);
    return ours;
}

/* Could it be one of ours at all? */
static bool is_of_this_user(DIR *proc, const char *name)
{
    struct stat st;
    return geteuid() == 0 || (fstatat(dirfd(proc), name, &st, 0) == 0 && st.st_uid == geteuid());
}

/* How many were there? */
static int kill_pass(const struct leftovers *l)
{
    int found = 0;
    DIR *proc = opendir("/proc");
    if (proc == NULL)
        return 0;
    for (struct dirent *e; (e = readdir(proc)) != NULL;) {
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid > 0 && is_of_this_user(proc, e->d_name) && kill_one(l, pid))
            found++;
    }
    closedir(proc);
    return found;
}

/* --- chains of processes ------------------------------------------------------------------------------------- */

/* One for the looks of the chase: a number that is not given away costs one call. */
static bool kill_newborn(const struct leftovers *l, pid_t pid)
{
    struct proc_stat stat;
    int pidfd = pids_hold(pid);
    if (pidfd < 0)
        return false;
    bool ours = leftovers_is_marked(pid, l->cookie) && procfs_stat(pid, &stat) &&
                stat.start_ticks >= l->start_ticks && pids_signal(pidfd, SIGKILL);
    close(pidfd);
    return ours;
}

/* A link of a chain that has the processor for itself lives a tenth of a millisecond, a list of /proc takes
 * many. But numbers are given in ascending order, so the next links will be found right above the newest
 * one: wait for them there. */
static int chase(const struct leftovers *l)
{
    int found = 0;
    for (int round = 0; round < CHASES; round++) {
        const pid_t newest = pids_newest();
        for (int look = 0; look < LOOKS && newest > 0; look++)
            for (pid_t pid = newest + 1; pid <= newest + AHEAD; pid++)
                found += kill_newborn(l, pid);
    }
    return found;
}

/* One who has been sent SIGKILL has his environment until he is gone, and is counted once only: while the number found
 * falls, nobody new is among them. */
bool leftovers_kill(struct leftovers *l, uint64_t limit_ms)
{
    uint64_t end = clock_ms() + limit_ms;
    int before = 0, clean_looks = 0;
    struct hurry hurry = { 0 };
    if (!pids_can_hold())
        return false;
    hurry_begin(&hurry);
    while (clean_looks < 2 && clock_ms() < end) {
        int found = kill_pass(l);
        l->killed += found > before ? found - before : 0;
        clean_looks = found == 0 ? clean_looks + 1 : 0;
        if (found > 0 && found <= before) { /* the dying need a moment, or there is a chain */
            poll(NULL, 0, 1);
            l->killed += chase(l);
        }
        before = found;
    }
    hurry_end(&hurry);
    return clean_looks == 2;
}
