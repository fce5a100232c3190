/* signal_watch.c -- see signal_watch.h. */
#include "node/signal_watch.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
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
    char path[64], name[64];
    if (sender.kernel || pid <= 0)
        return sender;
    snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, name, sizeof(name));
    if (fd >= 0)
        close(fd);
    if (n > 1)
        signal_sender_name(&sender, name, (size_t)n - 1); /* without the newline */
    return sender;
}
