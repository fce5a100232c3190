/* environment.c -- see environment.h.
 *
 * The tables of environment.h become arrays of rows here, and a loop reads all rows. A new variable is one line in
 * environment.h. After the loop, further checks compare the values with each other. */
#include "core/environment.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct number_row {
    const char *name;
    size_t at;
    int least, most, missing;
    bool core;
};

struct text_row {
    const char *name;
    size_t at, bytes;
    const char *missing;
    bool core;
};

static const struct number_row numbers[] = {
#define X(field, name, least, most, missing, core) \
    { name, offsetof(struct worker_env, field), least, most, missing, core },
    WORKER_ENV_NUMBERS(X)
#undef X
};

static const struct text_row texts[] = {
#define X(field, name, bytes, missing, core) \
    { name, offsetof(struct worker_env, field), bytes, missing, core },
    WORKER_ENV_TEXTS(X)
#undef X
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct reader {
    struct worker_env *out;
    env_lookup lookup;
    void *user;
    struct ddp_err *err;
};

/* Return the value of a variable, or NULL if the variable is unset or empty. */
static const char *env_value(const struct reader *r, const char *name)
{
    const char *value = r->lookup(r->user, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Read a decimal number within the limits of the row. Unlike atoi, reject trailing characters. */
static ddp_status read_env_number(const struct reader *r, const struct number_row *row)
{
    int *field = (int *)(void *)((char *)r->out + row->at);
    const char *value = env_value(r, row->name);
    char *end;

    *field = row->missing;
    if (value == NULL)
        return DDP_OK;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (*end != '\0' || end == value || errno != 0 || number < row->least || number > row->most)
        return ddp_fail(r->err, DDP_ERR_ENV, "%s=%.100s: expected a number from %d to %d", row->name, value,
                        row->least, row->most);
    *field = (int)number;
    return DDP_OK;
}

/* Read a text. Reject a text that is too long, because a cut host name could be the name of another host. */
static ddp_status read_env_text(const struct reader *r, const struct text_row *row)
{
    const char *value = env_value(r, row->name);
    if (value == NULL)
        value = row->missing;
    size_t len = strlen(value);
    if (len >= row->bytes)
        return ddp_fail(r->err, DDP_ERR_ENV,
                        "%s=%.100s...: expected a text of at most %zu bytes, but this text has %zu",
                        row->name, value, row->bytes - 1, len);
    memcpy((char *)r->out + row->at, value, len + 1);
    return DDP_OK;
}

/* Append `name` to lists[1] if the variable is set (`there`), otherwise to lists[0]. Count the names of each list in
 * `counts`. */
static void note(char (*lists)[256], size_t counts[2], bool there, const char *name)
{
    size_t used = strlen(lists[there]);
    snprintf(lists[there] + used, sizeof(lists[there]) - used, "%s%s", used ? ", " : "", name);
    counts[there]++;
}

/* Check that either all four main variables are set, or none. */
static ddp_status check_core(const struct reader *r)
{
    char lists[2][256] = { "", "" };
    size_t counts[2] = { 0, 0 };

    for (size_t i = 0; i < COUNT(numbers); i++)
        if (numbers[i].core)
            note(lists, counts, env_value(r, numbers[i].name) != NULL, numbers[i].name);
    for (size_t i = 0; i < COUNT(texts); i++)
        if (texts[i].core)
            note(lists, counts, env_value(r, texts[i].name) != NULL, texts[i].name);
    if (counts[false] == 0 || counts[true] == 0)
        return DDP_OK;
    return ddp_fail(r->err, DDP_ERR_ENV,
                    "%s: missing, but %s %s set; start the program with ddprun, or set all of "
                    "these variables; to run a single rank, unset all of these variables",
                    lists[false], lists[true], counts[true] == 1 ? "is" : "are");
}

/* Check that `value` is below `limit`, the value of another variable. */
static ddp_status check_below(const struct reader *r, const char *name, int value, const char *limit_name,
                              int limit)
{
    if (value < limit)
        return DDP_OK;
    return ddp_fail(r->err, DDP_ERR_ENV, "%s=%d: expected a number from 0 to %d, because %s is %d", name,
                    value, limit - 1, limit_name, limit);
}

/* Set the local rank and the local world size. Without the LOCAL_* variables, assume that all ranks are on this host.
 * The start of the context checks this assumption. */
static ddp_status set_local_ranks(const struct reader *r)
{
    struct worker_env *e = r->out;

    if (e->local_world_size < 0)
        e->local_world_size = e->world_size;
    if (e->local_world_size > e->world_size)
        return ddp_fail(r->err, DDP_ERR_ENV,
                        "LOCAL_WORLD_SIZE=%d: expected a number from 1 to %d, because WORLD_SIZE is %d",
                        e->local_world_size, e->world_size, e->world_size);
    if (e->local_rank < 0)
        e->local_rank = e->rank % e->local_world_size;
    return check_below(r, "LOCAL_RANK", e->local_rank, "LOCAL_WORLD_SIZE", e->local_world_size);
}

/* Read all variables. Check the four main variables first, because an error about a missing main variable is the most
 * useful. */
ddp_status worker_env_read(struct worker_env *out, env_lookup lookup, void *user, struct ddp_err *err)
{
    const struct reader r = { out, lookup, user, err };
    ddp_status status = check_core(&r);

    for (size_t i = 0; status == DDP_OK && i < COUNT(numbers); i++)
        status = read_env_number(&r, &numbers[i]);
    for (size_t i = 0; status == DDP_OK && i < COUNT(texts); i++)
        status = read_env_text(&r, &texts[i]);
    if (status == DDP_OK)
        status = check_below(&r, "RANK", out->rank, "WORLD_SIZE", out->world_size);
    return status == DDP_OK ? set_local_ranks(&r) : status;
}
