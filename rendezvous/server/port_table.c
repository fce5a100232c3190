/* port_table.c -- see port_table.h.
 *
 * A listener and an old connection, as /proc/net/tcp shows them (addresses in the host's byte order, all in hex but the
 * uid and the inode):
 *
 *     0: 0100007F:72D8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 31337 1 ...
 *     1: 0100007F:72D8 0100007F:C350 06 00000000:00000000 03:00000B7A 00000000     0        0 0 3 ...
 *
 * Inode 0 means that no process has it any more: the kernel waits for stray packets (TIME_WAIT). */
#include "server/port_table.h"

#include <stdio.h>
#include <string.h>

enum { STATE_LISTEN = 0x0a };

/* One line: "sl: LOCAL:PORT REMOTE:PORT STATE queues timer retransmissions uid timeout inode ..." */
static bool parse_line(const char *line, int *port, unsigned *state, struct port_holder *out)
{
    unsigned local_port = 0;
    int n = sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %u %*s %lu", &local_port,
                   state, &out->uid, &out->inode);
    *port = (int)local_port;
    return n == 4;
}

/* The connections of a listener have its port too, and may come first; so a line is kept only until a better one. */
bool port_table_find(const char *table, int port, struct port_holder *out)
{
    *out = (struct port_holder){ 0 };
    for (const char *line = table; line != NULL && *line != '\0';) {
        struct port_holder row = { 0 };
        unsigned state;
        int row_port;
        const char *end = strchr(line, '\n');
        if (parse_line(line, &row_port, &state, &row) && row_port == port) {
            if (row.inode == 0)
                out->leftover = out->inode == 0; /* TIME_WAIT and the like */
            else if (out->inode == 0 || state == STATE_LISTEN)
                *out = row;
            if (state == STATE_LISTEN)
                break;
        }
        line = end != NULL ? end + 1 : NULL;
    }
    return out->inode != 0;
}

/* ", for 45 s", ", for 12 min", ", for 3 h"; nothing when it is not known. */
static int put_age(char *text, size_t size, long age_s)
{
    if (age_s <= 0)
        return 0;
    if (age_s < 120)
        return snprintf(text, size, ", for %ld s", age_s);
    return age_s < 7200 ? snprintf(text, size, ", for %ld min", age_s / 60)
                        : snprintf(text, size, ", for %ld h", age_s / 3600);
}

/* ", rank 1 of ddprun job k3", ", a worker of torchrun job none"; nothing when it is of no job. */
static void put_job(char *text, size_t size, const struct port_holder *h)
{
    if (h->job[0] != '\0')
        snprintf(text, size, ", %s%s of %s job %s", h->rank[0] != '\0' ? "rank " : "a worker", h->rank,
                 h->by_torchrun ? "torchrun" : "ddprun", h->job);
}

/* "redis-server (pid 812, user redis, for 3 h: redis-server *:6379)" */
static void put_process(const struct port_holder *h, char *text, size_t size)
{
    char age[40] = "", job[120] = "";
    put_age(age, sizeof(age), h->age_s);
    put_job(job, sizeof(job), h);
    snprintf(text, size, "%s (pid %d%s%s%s%s%s%s)", h->name, h->pid, h->user[0] != '\0' ? ", user " : "",
             h->user, age, job, h->command[0] != '\0' ? ": " : "", h->command);
}

/* The best that is known comes first; each line is one grade less certain. */
char *port_holder_words(const struct port_holder *holder, char *text, size_t size)
{
    if (holder->pid > 0)
        put_process(holder, text, size);
    else if (holder->inode != 0 && holder->user[0] != '\0')
        snprintf(text, size, "a process of user %s (its pid cannot be seen by this user)", holder->user);
    else if (holder->inode != 0)
        snprintf(text, size, "a process of user id %u (its pid cannot be seen by this user)", holder->uid);
    else if (holder->leftover)
        snprintf(text, size, "old connections that are still closing (a minute at most)");
    else
        snprintf(text, size, "a process that cannot be seen from here");
    return text;
}
