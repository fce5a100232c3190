/* signals.c -- see signals.h. */
#include "node/signals.h"

#include "contain/procfs.h"

#include <stdint.h>
#include <sys/epoll.h>
#include <unistd.h>

/* SIGCHLD and SIGCONT are ours whatever was inherited: an ignored SIGCHLD lets children vanish without a status, and
 * a process goes on at SIGCONT whether it ignores it or not. */
static bool is_wanted(const struct signal_row *row)
{
    struct sigaction now;
    if (row->act == SIGNAL_NONE)
        return false;
    if (row->act == SIGNAL_CHILD || row->act == SIGNAL_RESUME)
        return true;
    return sigaction(row->number, NULL, &now) == 0 && now.sa_handler != SIG_IGN;
}

void signal_watch_block(sigset_t *watched)
{
    sigemptyset(watched);
    for (int i = 0; i < SIGNAL_ROWS; i++) {
        if (is_wanted(&signal_rows[i]))
            sigaddset(watched, signal_rows[i].number);
        if (signal_rows[i].act == SIGNAL_NONE)
            signal(signal_rows[i].number, SIG_IGN);
    }
    signal(SIGCHLD, SIG_DFL);
    signal(SIGCONT, SIG_DFL);
    sigprocmask(SIG_BLOCK, watched, NULL);
}

struct signal_sender signal_watch_sender(int code, int pid, unsigned uid)
{
    struct signal_sender sender = { .kernel = code > 0, .pid = pid, .uid = uid };
    if (!sender.kernel && pid > 0)
        procfs_line(pid, "comm", sender.name, sizeof(sender.name));
    return sender;
}

/* --- exits ------------------------------------------------------------------------------------------------ */

/* The kernel wakes the watchers of a pidfd in the moment its process ends, and an epoll set hands out what is ready in
 * the order in which it became so. That order is all we want from it: SIGCHLD still says when to look, and waitpid how
 * each worker ended, so a pidfd that could not be had costs nothing but the order. */

void exits_open(struct exits *x)
{
    x->epoll = epoll_create1(EPOLL_CLOEXEC);
}

void exits_watch(struct exits *x, pid_t pid)
{
    int pidfd = x->epoll < 0 ? -1 : pids_hold(pid);
    if (pidfd < 0)
        return;
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = (uint64_t)pidfd << 32 | (uint32_t)pid };
    if (epoll_ctl(x->epoll, EPOLL_CTL_ADD, pidfd, &event) != 0)
        close(pidfd);
}

pid_t exits_next(struct exits *x)
{
    struct epoll_event event;
    /* One at a time: what is left in the set keeps its place. */
    if (x->epoll < 0 || epoll_wait(x->epoll, &event, 1, 0) != 1)
        return 0;
    const int pidfd = (int)(event.data.u64 >> 32);
    epoll_ctl(x->epoll, EPOLL_CTL_DEL, pidfd,
              NULL); /* or it stays in the set as long as anybody has a copy */
    close(pidfd);
    return (pid_t)(uint32_t)event.data.u64;
}

/* Who ended between the last look in here and the waitpid that took him still has his pidfd in the set. */
void exits_close(struct exits *x)
{
    while (exits_next(x) > 0)
        continue;
    if (x->epoll >= 0)
        close(x->epoll);
    x->epoll = -1;
}
