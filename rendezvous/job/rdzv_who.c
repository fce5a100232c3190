/* rdzv_who.c -- a node's name in a sentence that two users read: "node 1 (n1, pid 77)", "n1 (pid 77)" when it has no rank.
 *
 * Rank and pid tell two nodes of one host apart. Two machines that are named alike ("localhost") may have equal pids,
 * too, so beside such a namesake a node has its address. */
#include "job/rdzv_core.h"

#include <stdio.h>
#include <string.h>

struct who rdzv_who(const struct rdzv_join *j)
{
    struct who who = { .node_rank = j->elastic ? -1 : j->node_rank, .pid = j->pid };
    rdzv_copy_text(who.host, sizeof(who.host), j->host);
    rdzv_copy_text(who.addr, sizeof(who.addr), j->addr);
    return who;
}

static bool needs_address(const struct who *who, const struct who *beside)
{
    return strcmp(who->host, beside->host) == 0 && who->addr[0] != '\0' &&
           strcmp(who->addr, beside->addr) != 0;
}

/* The host is cut, so that a long one cannot push the other node's value out of the sentence. */
const char *rdzv_name_who(who_name out, const struct who *who, const struct who *beside)
{
    const bool at = needs_address(who, beside), ranked = who->node_rank >= 0;
    char rank[32] = "";
    if (ranked)
        snprintf(rank, sizeof(rank), "node %" PRId32 " (", who->node_rank);
    snprintf(out, sizeof(who_name), "%s%.120s%s%s%spid %d)", rank, who->host, ranked ? ", " : " (",
             at ? who->addr : "", at ? ", " : "", who->pid);
    return out;
}
