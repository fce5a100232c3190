/* worker_env.c -- see worker_env.h. The part that all workers share (struct env_base) is computed once per node,
 * because a node may start 256 workers. For each worker only about 40 texts are formatted. */
#include "tables/worker_env.h"

#include "base/buf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* initial size of the buffer for all rows; the buffer grows if a value is long */
enum { ROWS_BYTES = 2048 };

const char *worker_env_name(enum worker_env_var var)
{
    static const char *const names[WORKER_ENV_VARS] = {
#define X(name, ...) [ENV_##name] = #name,
        WORKER_ENV_LIST(X)
#undef X
    };
    return names[var];
}

/* Return true if `entry` is "NAME=..." for the `len` characters of `name`. The first characters are compared
 * before the call of strncmp, because this function is called thousands of times. */
static bool is_named(const char *entry, const char *name, size_t len)
{
    return entry[0] == name[0] && strncmp(entry, name, len) == 0 && entry[len] == '=';
}

const char *env_find(char *const *block, const char *name)
{
    size_t len = strlen(name);
    for (; *block != NULL; block++)
        if (is_named(*block, name, len))
            return *block + len + 1;
    return NULL;
}

const char *env_sources_find(const struct env_sources *sources, const char *name)
{
    const size_t len = strlen(name);
    for (size_t i = sources->n; i-- > 0;)
        if (is_named(sources->overrides[i], name, len))
            return sources->overrides[i] + len + 1;
    return env_find(sources->inherited, name);
}

/* Return true if two "KEY=VALUE" texts have the same KEY. */
static bool same_name(const char *a, const char *b)
{
    while (*a == *b && *a != '=' && *a != '\0')
        a++, b++;
    return *a == *b;
}

/* Return true if one of the entries has the KEY `name`. */
static bool names_one(const char *name, const char *const *entries, size_t n)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (is_named(entries[i], name, len))
            return true;
    return false;
}

/* Set the facts that depend on inherited variables, by torchrun's rules. */
void env_facts_inherit(struct env_facts *facts, char *const *inherited, const char *const *overrides,
                       size_t n)
{
    const char *async = env_find(inherited, worker_env_name(ENV_TORCH_NCCL_ASYNC_ERROR_HANDLING));
    const char *async_old = env_find(inherited, worker_env_name(ENV_NCCL_ASYNC_ERROR_HANDLING));
    const char *hip = env_find(inherited, worker_env_name(ENV_HIP_VISIBLE_DEVICES));
    const char *omp = worker_env_name(ENV_OMP_NUM_THREADS);
    facts->nccl_async = async != NULL ? async : "1";
    facts->nccl_async_old = async_old != NULL ? async_old : "1";
    facts->hip = hip != NULL && *hip != '\0';
    facts->set_omp =
        facts->local_world_size > 1 && env_find(inherited, omp) == NULL && !names_one(omp, overrides, n);
}

/* Set names[i] to the variable's name in row i of the table, or to NULL if this row does not apply. */
static void names_set(const struct env_facts *f, const char *names[WORKER_ENV_VARS])
{
#define X(name, format, value, when, text) names[ENV_##name] = (when) ? #name : NULL;
    WORKER_ENV_LIST(X)
#undef X
}

/* Return true if a row sets the variable of `entry`. The inherited value of this variable, such as the RANK of an
 * outer job, is then dropped. */
static bool is_set_by_us(const char *entry, const char *const names[WORKER_ENV_VARS])
{
    for (int i = 0; i < WORKER_ENV_VARS; i++)
        if (names[i] != NULL && names_one(names[i], &entry, 1))
            return true;
    return false;
}

/* A hash table of variable names. A free place is NULL. At least half of the places are free, so a search is short even
 * with thousands of variables: Kubernetes sets seven variables for each service. */
struct listed {
    const char **place; /* owned array; the entries are borrowed */
    size_t mask;
};

static bool listed_init(struct listed *listed, size_t most)
{
    size_t places = 64;
    while (places < 2 * most)
        places *= 2;
    *listed = (struct listed){ .place = calloc(places, sizeof(*listed->place)), .mask = places - 1 };
    return listed->place != NULL;
}

/* Return a hash of the name before the '='. */
static size_t hash_name(const char *entry)
{
    const uint64_t hash = hash_bytes(HASH_START, entry, strcspn(entry, "="));
    return (size_t)(hash ^ hash >> 32);
}

/* Add an entry. Return false if the table already has the name, because the first of two equal names is used, as in
 * getenv(3). */
static bool listed_add(struct listed *listed, const char *entry)
{
    size_t at = hash_name(entry) & listed->mask;
    while (listed->place[at] != NULL && !same_name(listed->place[at], entry))
        at = (at + 1) & listed->mask;
    if (listed->place[at] != NULL)
        return false;
    listed->place[at] = entry;
    return true;
}

static void list_entry(struct env_base *base, struct listed *listed, const char *entry)
{
    if (listed_add(listed, entry))
        base->entries[base->n++] = entry;
}

/* Add the overrides to `base` first. Then add the inherited variables. Leave out a variable that an override or a row
 * of the table replaces. */
bool env_base_init(struct env_base *base, const struct env_facts *facts, char *const *inherited,
                   const char *const *overrides, size_t n)
{
    const char *names[WORKER_ENV_VARS];
    struct listed listed;
    size_t most = n;
    names_set(facts, names);
    /* a worker never inherits the shared memory of an outer job's flight recorder */
    names[ENV_DDPRUN_FLIGHT_SHM] = worker_env_name(ENV_DDPRUN_FLIGHT_SHM);
    for (char *const *p = inherited; *p != NULL; p++)
        most++;
    *base = (struct env_base){ .entries = calloc(most + 1, sizeof(*base->entries)) };
    if (!listed_init(&listed, most) || base->entries == NULL) {
        free(listed.place);
        env_base_free(base);
        return false;
    }
    for (size_t i = n; i-- > 0;) /* backwards, so that the last of two equal names is used */
        list_entry(base, &listed, overrides[i]);
    base->n_overrides = base->n;
    for (int i = 0; i < WORKER_ENV_VARS; i++) {
        base->replaced[i] = names_one(worker_env_name((enum worker_env_var)i), overrides, n);
        base->dropped[i] = names[i] != NULL || base->replaced[i];
    }
    for (; *inherited != NULL; inherited++)
        if (!is_set_by_us(*inherited, names))
            list_entry(base, &listed, *inherited);
    free(listed.place);
    return true;
}

void env_base_free(struct env_base *base)
{
    free(base->entries);
    *base = (struct env_base){ 0 };
}

/* Append "KEY=VALUE\0" for each row that applies, and set *n to the number of these rows. */
static bool format_rows(struct buf *text, const struct env_facts *f, const struct env_base *base, size_t *n)
{
    bool ok = true;
    *n = 0;
#define X(name, format, value, when, help)                                               \
    if ((when) && !base->replaced[ENV_##name]) {                                         \
        ok = ok && buf_printf(text, #name "=" format, value) && buf_append(text, "", 1); \
        ++*n;                                                                            \
    }
    WORKER_ENV_LIST(X)
#undef X
    return ok;
}

/* Build the environment. Some rows, such as USE_LIBUV, begin to apply only after env_base_init. So `base` may contain
 * the inherited variables of these rows. Leave out such a variable if its row applies now. */
bool worker_env_init(struct worker_env *env, const struct env_facts *facts, const struct env_base *base)
{
    const char *names[WORKER_ENV_VARS];
    struct buf text = { 0 };
    size_t rows;
    *env = (struct worker_env){ 0 };
    names_set(facts, names);
    for (int i = 0; i < WORKER_ENV_VARS; i++)
        if (base->dropped[i])
            names[i] = NULL;
    if (buf_reserve(&text, ROWS_BYTES) == NULL || !format_rows(&text, facts, base, &rows))
        goto no_memory;
    env->block = calloc(rows + base->n + 1, sizeof(*env->block));
    if (env->block == NULL)
        goto no_memory;
    env->text = (char *)text.data;
    for (char *p = env->text; env->n < rows; p += strlen(p) + 1)
        env->block[env->n++] = p;
    for (size_t i = 0; i < base->n; i++)
        if (i < base->n_overrides || !is_set_by_us(base->entries[i], names))
            env->block[env->n++] = (char *)base->entries[i]; /* execve's argument type has no const */
    env->n_set = rows + base->n_overrides;
    return true;

no_memory:
    buf_free(&text);
    return false;
}

void worker_env_free(struct worker_env *env)
{
    free(env->block);
    free(env->text);
    *env = (struct worker_env){ 0 };
}
