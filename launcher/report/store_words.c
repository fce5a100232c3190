/* store_words.c -- see store_words.h.
 *
 * A node that was frozen finds a closed connection when it goes on, and would look for the fault in the store or in the
 * network. It knows better: its own timers rang too late, and the store has left it a last word. Without a pause of its
 * own that word means that the way between the two loses what this side says. */
#include "report/store_words.h"

#include <stdio.h>

typedef char words[FINDING_SUBJECT_MAX];

/* "this ddprun (node 1, n1, pid 77)": the others name it so, but for the first words. */
static const char *who(words out, const struct store_loss *l)
{
    if (l->node_rank >= 0)
        snprintf(out, sizeof(words), "this ddprun (node %d, %.100s, pid %d)", l->node_rank, l->host, l->pid);
    else
        snprintf(out, sizeof(words), "this ddprun (%.100s, pid %d)", l->host, l->pid);
    return out;
}

static const char *verdict(char out[FINDING_SUBJECT_MAX * 2], const struct store_loss *l)
{
    if (l->dropped[0] != '\0')
        snprintf(out, FINDING_SUBJECT_MAX * 2, "it was given up as %.120s (--node_timeout is %.3g s)",
                 l->dropped, (double)l->node_timeout_ms / 1000);
    else
        snprintf(out, FINDING_SUBJECT_MAX * 2, "%.200s", l->how);
    return out;
}

bool store_loss_finding(const struct store_loss *l, struct finding *out)
{
    words name, time;
    char why[FINDING_SUBJECT_MAX * 2];
    if (l->stood_ms == 0 && l->dropped[0] == '\0')
        return false;
    snprintf(time, sizeof(time), "%.3g s", (double)l->stood_ms / 1000);
    if (l->stood_ms > 0)
        finding_make(out, FINDING_NODE_STOOD_STILL, who(name, l), "time", time, "words", verdict(why, l),
                     NULL);
    else
        finding_make(out, FINDING_NODE_UNHEARD, who(name, l), "words", verdict(why, l), NULL);
    return true;
}
