/* signal_watch.c -- see signal_watch.h. */
#include "node/signal_watch.h"

#include "contain/procfs.h"

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
