/* contain.c -- see contain.h. */
#include "contain.h"

#include <stdio.h>
#include <stdlib.h>

enum { WORDS_MAX = 512 };

struct contain {
    enum contain_kind kind; /* the chosen one, never CONTAIN_AUTO */
    char words[WORDS_MAX];
};

ddp_status contain_open(const struct contain_options *options, struct contain **out, struct ddp_err *err)
{
    if (options->kind != CONTAIN_AUTO && options->kind != CONTAIN_PLAIN)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED, "this layer of --contain is not available here");
    struct contain *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    c->kind = CONTAIN_PLAIN;
    snprintf(c->words, sizeof(c->words), "guardian and agent, which watch each other");
    *out = c;
    return DDP_OK;
}

const char *contain_words(const struct contain *c)
{
    return c->words;
}

ddp_status contain_attempt(struct contain *c, int attempt, struct ddp_err *err)
{
    (void)c;
    (void)attempt;
    (void)err;
    return DDP_OK;
}

int contain_cgroup_fd(const struct contain *c)
{
    (void)c;
    return -1;
}

bool contain_kill(struct contain *c)
{
    (void)c;
    return false;
}

bool contain_gone(const struct contain *c)
{
    (void)c;
    return true;
}

void contain_remove(struct contain *c)
{
    (void)c;
}

void contain_close(struct contain *c)
{
    free(c);
}
