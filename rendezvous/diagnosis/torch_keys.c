/* torch_keys.c -- see torch_keys.h. A key begins with a path that names the group. The rest of the key (the tail) is
 * compared with the rows of torch_keys.h. Keys are bytes from workers without a NUL at the end, so all texts are
 * slices, and no function reads beyond the end of a slice. */
#include "diagnosis/torch_keys.h"

#include "base/text.h"
#include "diagnosis/findings.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_SHOWN = 60, /* longest name of a worker or barrier in a text, in bytes */
    DIGITS_MAX = 9,  /* maximum number of digits of a number; a longer number is not a rank */
};

/* The rows of torch_keys.h, with the kind as index. `where` is a set of the flags TORCH_IN_GROUP, TORCH_IN_RPC
 * and TORCH_ELSEWHERE. */
static const struct row {
    const char *json, *tail, *words;
    uint8_t where;
    int8_t owner;
    uint8_t when;
} rows[TORCH_KEY_KINDS] = {
#define X(kind, json, where, tail, owner, when, words) \
    [TORCH_KEY_##kind] = { json, tail, words, where, owner, TORCH_##when },
    TORCH_KEYS(X)
#undef X
};

/* --- comparing ------------------------------------------------------------------------------------------ */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Return the number of digits at the beginning of the text. Return 0 if there are more than DIGITS_MAX. */
static size_t digits(struct slice text)
{
    const char *p = text.data;
    size_t n = 0;
    while (n < text.len && is_digit(p[n]))
        n++;
    return n <= DIGITS_MAX ? n : 0;
}

/* Return the value of `n` digits. digits() has limited n to DIGITS_MAX. */
static int64_t value_of(const char *digits, size_t n)
{
    int64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value = 10 * value + (digits[i] - '0');
    return value;
}

/* Return the text without its first `n` bytes. `n` is at most the length. */
static struct slice behind(struct slice text, size_t n)
{
    return slice_of((const char *)text.data + n, text.len - n);
}

static bool fits_tail(const char *tail, struct slice text, struct torch_key *out);

/* Match '#' or '@' with a number. Match all digits at once, because the tail "@/#" must find rank 12 in "0/12", not
 * rank 1. */
static bool number_fits(const char *tail, struct slice text, struct torch_key *out)
{
    const size_t n = digits(text);
    if (n == 0 || !fits_tail(tail + 1, behind(text, n), out))
        return false;
    /* Store the number last, because a failed match must not change `out`. */
    *(*tail == '#' ? &out->rank : &out->number) = value_of(text.data, n);
    return true;
}

static bool is_special(char c)
{
    return c == '#' || c == '@' || c == '*';
}

/* Return the next position in `text` where the first letter of `tail` matches, or a position after the end. */
static size_t next_place(const char *tail, struct slice text, size_t from)
{
    if (*tail == '\0')
        return text.len;
    if (is_special(*tail) || from == text.len)
        return from;
    const char *at = memchr((const char *)text.data + from, *tail, text.len - from);
    return at != NULL ? (size_t)(at - (const char *)text.data) : text.len + 1;
}

/* Match '*' with as few bytes as possible. In "*:last_worker" the name is then the part before ":". At the end of a
 * row, '*' matches the whole rest. A row with two '*' may need quadratic time, so torch_key_read limits the length of
 * a key. */
static bool text_fits(const char *tail, struct slice text, struct torch_key *out)
{
    for (size_t n = next_place(tail + 1, text, 0); n <= text.len; n = next_place(tail + 1, text, n + 1)) {
        if (fits_tail(tail + 1, behind(text, n), out)) {
            out->name = slice_of(text.data, n);
            return true;
        }
        if (n == text.len)
            break;
    }
    return false;
}

/* Return true if the pattern `tail` matches the whole text. Compare letters with memcmp, because this function must be
 * fast: every awaited key is compared with all rows. */
static bool fits_tail(const char *tail, struct slice text, struct torch_key *out)
{
    const size_t n = strcspn(tail, "#@*");
    if (text.len < n || memcmp(text.data, tail, n) != 0)
        return false;
    tail += n;
    text = behind(text, n);
    if (*tail == '\0')
        return text.len == 0;
    return *tail == '*' ? text_fits(tail, text, out) : number_fits(tail, text, out);
}

/* Return false if the letters at the end of `tail` differ from the end of `text`. Most tails end with letters, so this
 * fast check makes most calls of fits_tail unnecessary. */
static bool ends_alike(const char *tail, struct slice text)
{
    const size_t len = strlen(tail);
    size_t n = 0;
    while (n < len && !is_special(tail[len - 1 - n]))
        n++;
    return text.len >= n && memcmp((const char *)text.data + text.len - n, tail + len - n, n) == 0;
}

/* Find the first row whose pattern matches `tail`, the last part of a key. */
static bool find_row(struct slice tail, int where, struct torch_key *out)
{
    for (int kind = TORCH_KEY_NONE + 1; kind < TORCH_KEY_KINDS; kind++) {
        if ((rows[kind].where & where) == 0 || !ends_alike(rows[kind].tail, tail) ||
            !fits_tail(rows[kind].tail, tail, out))
            continue;
        out->kind = (enum torch_key_kind)kind;
        if (out->rank < 0)
            out->rank = rows[kind].owner;
        return true;
    }
    return false;
}

/* --- the path ------------------------------------------------------------------------------------------- */

/* Each function below skips one part at the beginning of the path, if it is there, and returns the rest. */

/* Store the name of the group, cut to TORCH_GROUP_MAX. */
static void name_group(struct torch_key *out, struct slice name)
{
    snprintf(out->group, sizeof(out->group), "%.*s", (int)name.len, (const char *)name.data);
}

/* Return the bytes before the next slash. */
static struct slice step(struct slice path)
{
    const char *slash = path.len > 0 ? memchr(path.data, '/', path.len) : NULL;
    return slice_of(path.data, slash != NULL ? (size_t)(slash - (const char *)path.data) : path.len);
}

/* Return true for the name of a device. Any other text between two double slashes is the name of a group. */
static bool is_device(struct slice name)
{
    static const char *const devices[] = { "cpu", "cuda", "xpu", "mps", "hpu", "npu", "mtia", "meta" };
    for (size_t i = 0; i < sizeof(devices) / sizeof(*devices); i++)
        if (slice_equal(name, slice_str(devices[i])))
            return true;
    return false;
}

/* Skip a prefix of torch 2.x such as "0//1//cpu//", which names nested groups and then the device. Store the name of
 * the innermost group, because the key belongs to this group. */
static struct slice skip_steps(struct slice path, struct torch_key *out)
{
    for (struct slice name = step(path); name.len > 0 && slice_begins_with(behind(path, name.len), "//");
         name = step(path)) {
        if (!is_device(name))
            name_group(out, name);
        path = behind(path, name.len + 2);
    }
    return path;
}

/* Skip the group: "pg_wrapper:1/" in a job with TORCH_DISTRIBUTED_DEBUG=DETAIL, or "1/" of torch 1.13. "0" without a
 * slash is not a group: in torch 1.13 this is the key of an NCCL id. */
static struct slice skip_group(struct slice path, struct torch_key *out)
{
    static const char wrapper[] = "pg_wrapper:";
    const struct slice name = step(path);
    const bool is_wrapper = slice_begins_with(name, wrapper);
    const bool is_number = out->group[0] == '\0' && name.len > 0 && digits(name) == name.len;
    if (name.len == path.len || (!is_wrapper && !is_number))
        return path;
    name_group(out, is_wrapper ? behind(name, sizeof(wrapper) - 1) : name);
    return behind(path, name.len + 1);
}

/* Find the group of a barrier from the text after the colon of its key. From torch 2.1 on, this text is the name of the
 * group. In torch 1.13, this text is the name plus 1: "1" means the default group, whose name is 0. */
static void name_barrier(struct torch_key *out)
{
    const bool on_top = out->group[0] == '\0';
    const struct slice name = out->name;
    const bool counts = on_top && name.len > 0 && digits(name) == name.len;
    const int64_t count = counts ? value_of(name.data, name.len) : 0;
    out->of_all = on_top || !slice_equal(slice_str(out->group), name);
    if (counts)
        snprintf(out->group, sizeof(out->group), "%lld", (long long)(count > 0 ? count - 1 : 0));
    else
        name_group(out, name);
}

/* Skip "/worker/attempt_0/", the beginning of all keys of PyTorch up to 2.5. The number is the attempt. */
static struct slice skip_attempt(struct slice path)
{
    static const char prefix[] = "/worker/attempt_";
    if (!slice_begins_with(path, prefix))
        return path;
    const struct slice rest = behind(path, sizeof(prefix) - 1);
    const size_t n = digits(rest);
    return n > 0 && slice_begins_with(behind(rest, n), "/") ? behind(rest, n + 1) : path;
}

/* Parse the part of a process group's key after "default_pg/". */
static bool read_group(struct slice path, struct torch_key *out)
{
    if (!find_row(skip_group(skip_steps(path, out), out), TORCH_IN_GROUP, out))
        return false;
    if (out->kind == TORCH_KEY_BARRIER || out->kind == TORCH_KEY_BARRIER_LAST)
        name_barrier(out);
    return true;
}

/* Parse "rpc_prefix_0/". The number is 0 for the first call to init_rpc in a process, and 1 for the second. */
static bool read_rpc(struct slice path, struct torch_key *out)
{
    const size_t n = digits(path);
    out->is_rpc = n > 0 && slice_begins_with(behind(path, n), "/");
    return out->is_rpc && find_row(behind(path, n + 1), TORCH_IN_RPC, out);
}

/* Find the row of a key. TCPStore puts a slash in front of each key, but not in front of "init/". The key of a user's
 * program may match a row by chance. This only leads to a wrong word in a report or to a useless check. */
bool torch_key_read(struct slice key, struct torch_key *out)
{
    /* Keys of PyTorch have at most KEY_MAX bytes. Longer keys are not compared with the rows, because a client may send
     * many long keys, and each comparison takes time. */
    enum { KEY_MAX = 512 };
    static const char group[] = "default_pg/", rpc[] = "rpc_prefix_";
    *out = (struct torch_key){ .rank = -1, .number = -1 };
    if (key.len > KEY_MAX || key.len == 0)
        return false;
    const struct slice path = skip_attempt(slice_begins_with(key, "/") ? behind(key, 1) : key);
    if (slice_begins_with(path, group))
        return read_group(behind(path, sizeof(group) - 1), out);
    if (slice_begins_with(path, rpc))
        return read_rpc(behind(path, sizeof(rpc) - 1), out);
    if (find_row(path, TORCH_ELSEWHERE, out) &&
        slice_begins_with(key, "/") != (out->kind == TORCH_KEY_CLIENTS))
        return true;
    out->kind = TORCH_KEY_NONE;
    return false;
}

/* --- texts ---------------------------------------------------------------------------------------------- */

/* Return true for the default group. Texts leave out its name, because the user has not chosen it. */
static bool is_default_group(const struct torch_key *key)
{
    return key->group[0] == '\0' || strcmp(key->group, "0") == 0;
}

/* Append the name of the PyTorch function that the user has called, because users do not know the key. */
bool torch_key_append_setup(const struct torch_key *key, struct buf *out)
{
    if (key->is_rpc)
        return buf_printf(out, "init_rpc");
    if (is_default_group(key))
        return buf_printf(out, "init_process_group");
    return buf_printf(out, "new_group (group ") && text_append(out, slice_str(key->group), TORCH_GROUP_MAX) &&
           buf_printf(out, ")");
}

/* Append the value of a placeholder in a text of torch_keys.h: ${rank}, ${number}, ${setup} or ${name}. */
static bool append_word(void *user, struct slice word, struct buf *out)
{
    const struct torch_key *key = user;
    if (slice_equal(word, slice_str("rank")))
        return buf_printf(out, "%lld", (long long)key->rank);
    if (slice_equal(word, slice_str("number")))
        return buf_printf(out, "%lld", (long long)key->number);
    if (slice_equal(word, slice_str("setup")))
        return torch_key_append_setup(key, out);
    return text_append(out, key->name, NAME_SHOWN);
}

/* Append the text of the key. Then append the key's group, because each group numbers its ranks from 0. Leave out the
 * default group. For the key of a barrier, also leave out the group, because the text of a barrier already names the
 * group. */
bool torch_key_append(const struct torch_key *key, struct buf *out)
{
    struct torch_key copy = *key;
    const bool names_group = key->kind == TORCH_KEY_BARRIER || key->kind == TORCH_KEY_BARRIER_LAST;
    bool ok = finding_fill(out, rows[key->kind].words, append_word, &copy);
    if (key->is_rpc)
        return ok && buf_printf(out, " for RPC");
    if (names_group || is_default_group(key))
        return ok;
    return ok && buf_printf(out, " in group ") && text_append(out, slice_str(key->group), TORCH_GROUP_MAX);
}

/* --- questions ------------------------------------------------------------------------------------------ */

enum torch_when torch_key_when(const struct torch_key *key)
{
    return key->kind == TORCH_KEY_NONE ? TORCH_LATER : (enum torch_when)rows[key->kind].when;
}

bool torch_key_is_for_all(const struct torch_key *key)
{
    return key->of_all || key->is_rpc || key->group[0] == '\0' || strcmp(key->group, "0") == 0;
}

/* Return true if two keys belong to the same setup. Compare the names of groups as text. All ranks of a job run the
 * same version of PyTorch, so a group has the same name on all ranks. */
bool torch_key_same_setup(const struct torch_key *a, const struct torch_key *b)
{
    return torch_key_when(a) == TORCH_SETUP && torch_key_when(b) == TORCH_SETUP && a->is_rpc == b->is_rpc &&
           (is_default_group(a) ? is_default_group(b) : strcmp(a->group, b->group) == 0);
}

/* The counter of a barrier begins with the first prefix. The keys for the setup of a group begin with the other
 * prefixes. The store calls hub/torch_observer.c only for keys with these prefixes, so other keys cost no parsing. */
const char *const torch_key_prefixes[] = {
    "store_based_barrier_key:", "/default_pg/", "//worker/attempt_", "/rpc_prefix_", "init/", NULL
};

/* Return true for the counter of a barrier: the last component of the key begins with torch_key_prefixes[0].
 * The comparison is fast, because the last component of most other counters begins with another byte. */
bool torch_key_counts(struct slice key)
{
    const char *p = key.data;
    size_t at = key.len;
    while (at > 0 && p[at - 1] != '/')
        at--;
    return slice_begins_with(behind(key, at), torch_key_prefixes[0]);
}

bool torch_key_may_set_up(struct slice key)
{
    for (const char *const *prefix = torch_key_prefixes + 1; *prefix != NULL; prefix++)
        if (slice_begins_with(key, *prefix))
            return true;
    return false;
}

/* --- as JSON -------------------------------------------------------------------------------------------- */

/* Return the object even if a member is missing because memory is short: each member is optional. */
cJSON *torch_key_json(const struct torch_key *key)
{
    struct buf text = { 0 };
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "kind", rows[key->kind].json);
    if (torch_key_append(key, &text) && buf_append(&text, "", 1))
        cJSON_AddStringToObject(o, "text", (const char *)text.data);
    text.len = 0;
    if (key->group[0] != '\0' && text_append(&text, slice_str(key->group), TORCH_GROUP_MAX) &&
        buf_append(&text, "", 1))
        cJSON_AddStringToObject(o, "group", (const char *)text.data);
    if (key->rank >= 0)
        cJSON_AddNumberToObject(o, "rank", (double)key->rank);
    if (key->number >= 0)
        cJSON_AddNumberToObject(o, "number", (double)key->number);
    buf_free(&text);
    return o;
}

/* --- torch notes ------------------------------------------------------------------------------------------ */

struct torch_client *torch_client_at(struct torch_client **at)
{
    if (*at == NULL)
        *at = calloc(1, sizeof(**at));
    return *at;
}

void torch_client_free(struct torch_client **at)
{
    if (*at != NULL)
        free((*at)->owner);
    free(*at);
    *at = NULL;
}

/* In torch_meets, a barrier with id i is in row i modulo the number of rows. So a new barrier overwrites the oldest
 * barrier. Ids begin with 1, because 0 means "no barrier". */

const struct torch_meet *torch_meets_of_id(const struct torch_meets *meets, uint32_t id)
{
    const struct torch_meet *meet = &meets->meet[id % TORCH_MEETS_MAX];
    return id != 0 && meet->id == id ? meet : NULL;
}

/* Search from the latest barrier, because most searches find the latest barrier. */
struct torch_meet *torch_meets_find(struct torch_meets *meets, struct slice key)
{
    for (uint32_t i = 0; i < TORCH_MEETS_MAX && i < meets->last_id; i++) {
        struct torch_meet *meet = &meets->meet[(meets->last_id - i) % TORCH_MEETS_MAX];
        if (slice_equal(torch_meet_key(meet), key))
            return meet;
    }
    return NULL;
}

/* Record a new barrier. The first barrier has the id 1, the second has the id 2. So ids show the order of the
 * barriers. */
struct torch_meet *torch_meets_make(struct torch_meets *meets, struct slice key)
{
    const uint32_t id = ++meets->last_id;
    struct torch_meet *meet = &meets->meet[id % TORCH_MEETS_MAX];
    *meet = (struct torch_meet){ .id = id, .len = (uint32_t)key.len };
    memcpy(meet->key, key.data, key.len);
    return meet;
}
