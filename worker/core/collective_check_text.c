/* collective_check_text.c -- see collective_check_text.h. */
#include "core/collective_check_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names of parameters are the program's, and may be anything. */
static void put_line(char *to, size_t room, const char *line)
{
    snprintf(to, room, "\n%s", line);
    for (char *c = to + 1; *c != '\0'; c++)
        if (*c == '\n')
            *c = ' ';
}

size_t detail_put(char text[DETAIL_TEXT], const struct detail_said *said)
{
    const char *const lines[] = { said->call, said->what, said->before };
    size_t len = (size_t)snprintf(text, DETAIL_TEXT, "%d", said->rank);
    for (size_t i = 0; i < 3; i++) {
        put_line(text + len, DETAIL_TEXT - len, lines[i]);
        len += strlen(text + len);
    }
    return len;
}

/* Up to the next newline; what is too long is no line of ours. */
static bool take_line(const char **at, char line[DETAIL_LINE])
{
    if (**at != '\n')
        return false;
    const size_t len = strcspn(*at + 1, "\n");
    if (len >= DETAIL_LINE)
        return false;
    memcpy(line, *at + 1, len);
    line[len] = '\0';
    *at += len + 1;
    return true;
}

bool detail_take(const char *text, struct detail_said *said)
{
    char *end;
    const long rank = strtol(text, &end, 10);
    const char *at = end;
    if (end == text || rank < 0 || rank > (1 << 20))
        return false;
    said->rank = (int)rank;
    return take_line(&at, said->call) && take_line(&at, said->what) && take_line(&at, said->before) &&
           *at == '\0';
}

static const char *or_nothing(const char *line)
{
    return line[0] != '\0' ? line : "nothing of the kind";
}

ddp_status detail_compare(const struct detail_said *a, const struct detail_said *b, struct ddp_err *err)
{
    const struct detail_said *low = a->rank < b->rank ? a : b, *high = low == a ? b : a;
    if (strcmp(low->call, high->call) != 0)
        return ddp_fail(err, DDP_ERR_MISMATCH, "ranks disagree: rank %d called %s, rank %d called %s",
                        low->rank, low->call, high->rank, high->call);
    if (strcmp(low->what, high->what) != 0)
        return ddp_fail(err, DDP_ERR_MISMATCH,
                        "ranks disagree about what %s is for: on rank %d it is %s, on rank %d %s", low->call,
                        low->rank, or_nothing(low->what), high->rank, or_nothing(high->what));
    if (strcmp(low->before, high->before) != 0)
        return ddp_fail(
            err, DDP_ERR_MISMATCH,
            "ranks do not have the same values after a call: on rank %d %s, on rank %d %s; something "
            "wrote into the buffer while the call ran, or memory is damaged",
            low->rank, or_nothing(low->before), high->rank, or_nothing(high->before));
    return DDP_OK;
}

bool detail_leaves_same(enum call_kind kind)
{
    return kind == CALL_ALL_REDUCE || kind == CALL_BROADCAST || kind == CALL_ALL_GATHER;
}
