/* hosts.c -- see hosts.h. A list in Slurm's form has ranges of numbers in brackets: "n[1-2]p[0-3]" means n1p0, n1p1 and
 * so on. Such a list is never expanded, because a short text can describe thousands of hosts. Instead, the name of host
 * k is computed from k. */
#include "plan/hosts.h"

#include "base/endpoint.h"
#include "cli/cli.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 9, PORT_MAX = 65535 };

/* --- Slurm ---------------------------------------------------------------------------------------------- */

/* Parse a number of at most DIGITS_MAX digits, so that the number fits an int. Set *width to the number of digits,
 * because Slurm distinguishes "01" and "1". Return false if there is no digit. */
static bool parse_number(const char **at, const char *end, int *value, int *width)
{
    *value = *width = 0;
    while (*at < end && isdigit((unsigned char)**at) && *width < DIGITS_MAX) {
        *value = *value * 10 + (*(*at)++ - '0');
        ++*width;
    }
    return *width > 0;
}

/* A range inside brackets, such as "01-16" or "20": first number, last number, and minimum number of digits. */
struct range {
    int from, to, width;
};

/* Parse a range and the comma after the range. As in Slurm, the first number sets the minimum number of digits. */
static bool parse_range(const char **at, const char *end, struct range *r)
{
    int width;
    if (!parse_number(at, end, &r->from, &r->width))
        return false;
    r->to = r->from;
    if (*at < end && **at == '-') {
        ++*at;
        if (!parse_number(at, end, &r->to, &width))
            return false;
    }
    if (*at < end && *(*at)++ != ',')
        return false;
    return r->from <= r->to;
}

/* Return how many numbers the text between brackets describes, or 0 if the text is invalid. The size of a range is
 * computed from its first and last number, because counting all numbers of "[1-999999999]" would be slow. */
static long count_ranges(const char *at, const char *end)
{
    struct range r;
    long n = 0;
    while (at < end && n <= HOST_LIST_MAX) {
        if (!parse_range(&at, end, &r))
            return 0;
        n += r.to - r.from + 1L;
    }
    return n;
}

/* Format one of the numbers that the ranges between brackets describe, with leading zeros. `index` counts these numbers
 * from 0: in "01-16,20", index 0 gives "01" and index 16 gives "20". Write "" if `index` is too large. */
static void print_number(const char *at, const char *end, long index, char *out, size_t size)
{
    struct range r;
    out[0] = '\0';
    while (at < end && parse_range(&at, end, &r)) {
        if (index <= r.to - r.from) {
            snprintf(out, size, "%0*ld", r.width, r.from + index);
            return;
        }
        index -= r.to - r.from + 1L;
    }
}

/* Return the end of the item at `text`: the first comma outside brackets, or the end of the text. */
static const char *item_end(const char *text)
{
    bool inside = false;
    while (*text != '\0' && (inside || *text != ',')) {
        inside = *text == '[' || (inside && *text != ']');
        text++;
    }
    return text;
}

/* Return the number of hosts of an item, or 0 if the item is invalid. The sizes of several brackets are multiplied.
 * The loop stops when the product exceeds HOST_LIST_MAX, so the product cannot overflow. */
static long item_hosts(const char *at, const char *end)
{
    long n = at < end ? 1 : 0;
    while (n > 0 && n <= HOST_LIST_MAX && (at = memchr(at, '[', (size_t)(end - at))) != NULL) {
        const char *close = memchr(at, ']', (size_t)(end - at));
        n = close != NULL ? n * count_ranges(at + 1, close) : 0;
        if (close == NULL)
            break;
        at = close + 1;
    }
    return n;
}

/* Return the number of consecutive hosts that have the same number in the bracket at `at`. For example, in n[1-2]p[0-3]
 * the first number changes after 4 hosts. */
static long hosts_behind(const char *at, const char *end)
{
    const char *close = memchr(at, ']', (size_t)(end - at));
    return close != NULL && close + 1 < end ? item_hosts(close + 1, end) : 1;
}

/* Format the name of host `index` (from 0) of an item. For example, host 0 of the item "n[1-3]" is "n1". The numbers
 * from the brackets change like the digits of a counter: the number from the last bracket changes with each host, and
 * the number from an earlier bracket changes only after the later brackets have used all their numbers. */
static bool item_name(const char *at, const char *end, long index, char name[HOST_NAME_SIZE])
{
    size_t used = 0;
    while (at < end && used < HOST_NAME_SIZE) {
        if (*at != '[') {
            name[used++] = *at++;
            continue;
        }
        const char *close = memchr(at, ']', (size_t)(end - at));
        const long step = hosts_behind(at, end);
        print_number(at + 1, close, index / step, name + used, HOST_NAME_SIZE - used);
        used += strlen(name + used);
        index %= step;
        at = close + 1;
    }
    if (used >= HOST_NAME_SIZE)
        return false;
    name[used] = '\0';
    return used > 0;
}

/* Find the item that contains host `index`, and format only this host's name. */
static bool host_list_slurm_at(const char *text, int index, char name[HOST_NAME_SIZE])
{
    long left = index;
    while (*text != '\0') {
        const char *end = item_end(text);
        const long n = item_hosts(text, end);
        if (n == 0 || left < 0)
            return false;
        if (left < n)
            return item_name(text, end, left, name);
        left -= n;
        text = *end == ',' ? end + 1 : end;
    }
    return false;
}

bool host_list_slurm(const char *text, struct host_list *out)
{
    long n = 0;
    *out = (struct host_list){ .here = -1 };
    for (const char *at = text; *at != '\0';) {
        const char *end = item_end(at);
        const long more = item_hosts(at, end);
        n += more;
        if (more == 0 || n > HOST_LIST_MAX)
            return false;
        at = *end == ',' ? end + 1 : end;
    }
    out->n = (int)n;
    return host_list_slurm_at(text, 0, out->first);
}

/* --- names ---------------------------------------------------------------------------------------------- */

/* Return true if both names are equal up to the first dot. Schedulers often use short names, and machines long
 * names. */
static bool same_host(const char *a, const char *b)
{
    const size_t len = strcspn(a, ".");
    return len == strcspn(b, ".") && strncmp(a, b, len) == 0;
}

/* Find the next word of `text`, and set *text to the end of this word. Return false if no word is left. */
static bool next_word(const char **text, const char **word, size_t *len)
{
    *word = *text + strspn(*text, " \t\r\n");
    *len = strcspn(*word, " \t\r\n");
    *text = *word + *len;
    return *len > 0;
}

/* Return true if the text before `word` contains the same word. */
static bool is_before(const char *text, const char *word, size_t len)
{
    const char *other;
    size_t other_len;
    while (next_word(&text, &other, &other_len) && other < word)
        if (other_len == len && memcmp(other, word, len) == 0)
            return true;
    return false;
}

/* Parse a list of names. A name may be repeated, once for each slot of the host. Repeated names are usually
 * adjacent, so a comparison with the previous name avoids most searches. */
bool host_list_words(const char *text, bool counted, const char *here, struct host_list *out)
{
    const char *at = text, *word, *last = "";
    size_t len, last_len = 0;
    *out = (struct host_list){ .here = -1 };
    for (int i = 0, changes = 0; next_word(&at, &word, &len); i++) {
        char name[HOST_NAME_SIZE];
        if ((counted && i % 2 == 1) || (len == last_len && memcmp(word, last, len) == 0))
            continue;
        if (++changes > HOST_WORDS_MAX || len >= sizeof(name))
            return false;
        last = word, last_len = len;
        if (is_before(text, word, len))
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)len, word);
        if (out->n == 0)
            memcpy(out->first, name, sizeof(name));
        if (out->here < 0 && same_host(name, here))
            out->here = out->n;
        out->n++;
    }
    return out->n > 0;
}

/* Parse "4(x2),3": four tasks on each of the first two nodes, and three tasks on the third node. */
int host_list_tasks(const char *text, int node)
{
    const char *const end = text + strlen(text);
    while (text < end) {
        int tasks, times = 1, width;
        if (!parse_number(&text, end, &tasks, &width))
            return 0;
        if (strncmp(text, "(x", 2) == 0) {
            text += 2;
            if (!parse_number(&text, end, &times, &width) || *text++ != ')')
                return 0;
        }
        if (node < times)
            return tasks;
        node -= times;
        if (text < end && *text++ != ',')
            return 0;
    }
    return 0;
}

/* --- lists of users ------------------------------------------------------------------------------------- */

struct specs {
    struct host_spec *list;
    int n, cap;
};

/* The rest of an item after the host name, such as :2222:8. */
struct tail {
    const char *count; /* "" if not given */
    int port;          /* 0 if not given */
};

static ddp_status check_host_count(const char *name, const char *count, struct ddp_err *err)
{
    struct ddp_err expected = { .msg = "fewer digits" };
    if (cli_check_nproc(count, &expected) == DDP_OK && strlen(count) < HOST_COUNT_SIZE)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "host '%.64s': '%.64s' is not a number of workers; expected %s", name,
                    count, expected.msg);
}

/* Return true if `name` is a valid "host" or "user@host". The name of the user must also follow the rule for host names
 * (endpoint_is_host). A host with a colon must be an IPv6 address. So a mistyped item such as "a:2222:8:8" is rejected:
 * find_tail() finds no port and no count in this item, and the whole item becomes the name. */
static bool is_name(const char *name)
{
    const char *at = strchr(name, '@'), *host = at != NULL ? at + 1 : name;
    char six[HOST_NAME_SIZE];
    struct in6_addr unused;
    snprintf(six, sizeof(six), "%.*s", (int)strcspn(host, "%"), host);
    if (strchr(six, ':') != NULL && inet_pton(AF_INET6, six, &unused) != 1)
        return false;
    return endpoint_is_host(host, strlen(host)) &&
           (at == NULL || endpoint_is_host(name, (size_t)(at - name)));
}

static struct host_spec *find_spec(const struct specs *s, const char *name, int port)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->list[i].name, name) == 0 && s->list[i].port == port)
            return &s->list[i];
    return NULL;
}

/* Return the number of workers that `count` gives. If `count` is "", return 1, because mpirun also starts one worker
 * for a host without a count. If `count` is a word such as "gpu", return 0. */
static int slots_of(const char *count)
{
    return count[0] == '\0' ? 1 : strspn(count, "0123456789") == strlen(count) ? atoi(count) : 0;
}

/* Add a host. If the list already contains the host, increase the host's number of workers, as mpirun does. */
static ddp_status add_spec(struct specs *s, const char *name, const struct tail *tail, struct ddp_err *err)
{
    struct host_spec *known = find_spec(s, name, tail->port);
    const char *count = tail->count;
    if (!is_name(name))
        return ddp_fail(err, DDP_ERR_ARG,
                        "'%.64s' is not a host name; expected HOST or USER@HOST of letters, digits and the "
                        "characters '.-_:%%'; a part must not begin with '-'",
                        name);
    const int slots = slots_of(count);
    if (known != NULL && (slots == 0 || known->slots == 0 || known->slots > CLI_NPROC_MAX - slots))
        return ddp_fail(err, DDP_ERR_ARG, "host '%.64s' is in the list twice; list it once, as HOST:COUNT",
                        name);
    if (known != NULL) {
        known->slots += slots;
        snprintf(known->count, sizeof(known->count), "%d", known->slots);
        return DDP_OK;
    }
    if (s->n == HOST_WORDS_MAX)
        return ddp_fail(err, DDP_ERR_ARG, "more than %d hosts; use fewer hosts", HOST_WORDS_MAX);
    if (s->n == s->cap) {
        const int cap = s->cap > 0 ? 2 * s->cap : 16;
        struct host_spec *list = realloc(s->list, (size_t)cap * sizeof(*list));
        if (list == NULL)
            return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %d hosts", cap);
        s->list = list, s->cap = cap;
    }
    struct host_spec *spec = &s->list[s->n++];
    snprintf(spec->name, sizeof(spec->name), "%s", name);
    snprintf(spec->count, sizeof(spec->count), "%s", count);
    spec->slots = slots;
    spec->port = tail->port;
    return DDP_OK;
}

static ddp_status set_port(const char *name, const char *text, int *port, struct ddp_err *err)
{
    const char *at = text;
    *port = port_parse(&at);
    if (*port > 0 && *at == '\0')
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "host '%.64s': '%.64s' is not a port; expected a number from 1 to %d",
                    name, text, PORT_MAX);
}

/* Parse the rest of an item: "COUNT", "PORT" or "PORT:COUNT". If the rest is a single number from HOST_PORT_MIN to
 * PORT_MAX, it is the port. Any other single number is the count. If `counted` is true, a smaller number is a port,
 * too, because "slots=N" already gives the count. */
static ddp_status parse_tail(const char *name, char *text, bool counted, struct tail *out,
                             struct ddp_err *err)
{
    const char *at = text;
    char *colon = strchr(text, ':');
    int number = 0, width;
    const bool is_number = parse_number(&at, text + strlen(text), &number, &width) && *at == '\0';
    const bool is_port = is_number && (counted || number >= HOST_PORT_MIN) && number <= PORT_MAX;
    if (colon != NULL)
        *colon = '\0';
    if ((colon != NULL || is_port) && set_port(name, text, &out->port, err) != DDP_OK)
        return DDP_ERR_ARG;
    if (colon == NULL && is_port)
        return DDP_OK;
    out->count = colon != NULL ? colon + 1 : text;
    return check_host_count(name, out->count, err);
}

/* Return the colon after the host name. Return NULL if the item has no such colon, or is an IPv6 address without
 * brackets. Such an address has "::" or at least three colons. */
static char *find_tail(char *item)
{
    char *close = strrchr(item, ']'), *first = strchr(close != NULL ? close : item, ':');
    char *second = first != NULL ? strchr(first + 1, ':') : NULL;
    if (close == NULL && second != NULL && (second == first + 1 || strchr(second + 1, ':') != NULL))
        return NULL;
    return first;
}

/* Split an item into name, port and count. Remove the brackets around an IPv6 address, and keep the brackets of a
 * range. For `counted` see parse_tail(). */
static ddp_status split_item(char *item, bool counted, struct tail *out, struct ddp_err *err)
{
    char *user = strchr(item, '@'), *host = user != NULL ? user + 1 : item, *close = strchr(host, ']');
    const bool six = host[0] == '[' && close != NULL && memchr(host, ':', (size_t)(close - host)) != NULL;
    char *colon = find_tail(item);
    if (colon != NULL) {
        *colon = '\0';
        if (parse_tail(item, colon + 1, counted, out, err) != DDP_OK)
            return DDP_ERR_ARG;
    }
    if (six) {
        const size_t len = strlen(close + 1);
        memmove(host, host + 1, (size_t)(close - host - 1));
        memmove(close - 1, close + 1, len + 1);
    }
    return DDP_OK;
}

/* Add the host `name`, or the hosts of ranges in brackets. */
static ddp_status add_names(struct specs *s, const char *name, const struct tail *tail, struct ddp_err *err)
{
    struct host_list hosts;
    ddp_status status = DDP_OK;
    if (strchr(name, '[') == NULL)
        return strlen(name) < HOST_NAME_SIZE
                   ? add_spec(s, name, tail, err)
                   : ddp_fail(err, DDP_ERR_ARG,
                              "'%.64s...' is not a host name: too long; expected at most %d characters", name,
                              HOST_NAME_SIZE - 1);
    if (!host_list_slurm(name, &hosts) || hosts.n > HOST_WORDS_MAX)
        return ddp_fail(err, DDP_ERR_ARG,
                        "'%.64s' is not a list of hosts; expected a list such as node[01-16]", name);
    for (int i = 0; status == DDP_OK && i < hosts.n; i++) {
        char one[HOST_NAME_SIZE];
        status = host_list_slurm_at(name, i, one)
                     ? add_spec(s, one, tail, err)
                     : ddp_fail(err, DDP_ERR_ARG,
                                "'%.64s' contains a name that is too long; expected at most %d characters",
                                name, HOST_NAME_SIZE - 1);
    }
    return status;
}

/* Add the hosts of an item, which may contain ranges in brackets. `line` has the count and the port that a line of a
 * hostfile sets for all items in this line. The line's count replaces an item's count. */
static ddp_status add_host_item(struct specs *s, const char *text, size_t len, const struct tail *line,
                                struct ddp_err *err)
{
    char *name = strndup(text, len);
    struct tail tail = { .count = "" };
    if (name == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    ddp_status status = split_item(name, line->count[0] != '\0', &tail, err);
    if (status == DDP_OK && line->port > 0 && tail.port > 0)
        status = ddp_fail(err, DDP_ERR_ARG,
                          "'%.*s' and port=%d both set a port; leave out one of the "
                          "two",
                          len < 64 ? (int)len : 64, text, line->port);
    tail.count = line->count[0] != '\0' ? line->count : tail.count;
    tail.port = line->port > 0 ? line->port : tail.port;
    if (status == DDP_OK)
        status = add_names(s, name, &tail, err);
    free(name);
    return status;
}

static ddp_status add_items(struct specs *s, const char *list, const struct tail *line, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    while (status == DDP_OK) {
        const char *end = item_end(list);
        status = end > list ? add_host_item(s, list, (size_t)(end - list), line, err)
                            : ddp_fail(err, DDP_ERR_ARG, "a host name is empty; check the commas");
        if (*end == '\0')
            break;
        list = end + 1;
    }
    return status;
}

/* Pass the list to the caller, or free the list after an error. */
static ddp_status return_specs(struct specs *s, ddp_status status, struct host_spec **out, int *n)
{
    if (status != DDP_OK)
        free(s->list);
    else
        *out = s->list, *n = s->n;
    return status;
}

ddp_status host_specs_parse(const char *list, struct host_spec **out, int *n, struct ddp_err *err)
{
    struct specs s = { 0 };
    return return_specs(&s, add_items(&s, list, &(struct tail){ .count = "" }, err), out, n);
}

/* Remove the blanks around each '=', which Open MPI allows: "slots = 4". */
static void join_settings(char *line)
{
    char *to = line;
    for (const char *at = line; *at != '\0'; at++) {
        const char *next = at + strspn(at, " \t\r");
        if (*next == '=' || (next > at && to > line && to[-1] == '='))
            at = next;
        if (*at == '\0')
            break;
        *to++ = *at;
    }
    *to = '\0';
}

/* Add the host of a line that sets a user: "user=NAME" in Hydra's syntax, "username=NAME" in Open MPI's syntax. */
static ddp_status add_user(struct specs *s, const char *user, const char *item, const struct tail *line,
                           struct ddp_err *err)
{
    char *text;
    if (strchr(item, '@') != NULL)
        return ddp_fail(err, DDP_ERR_ARG,
                        "'%.64s' and user=%.64s both set a user; leave out one of the "
                        "two",
                        item, user);
    if (item_end(item)[0] != '\0' || user[strcspn(user, ",")] != '\0')
        return ddp_fail(err, DDP_ERR_ARG,
                        "user=%.64s: the line names several hosts or users; with user=NAME, write one line "
                        "for each host",
                        user);
    if (asprintf(&text, "%s@%s", user, item) < 0)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    const ddp_status status = add_items(s, text, line, err);
    free(text);
    return status;
}

/* In a line of a hostfile, a word such as "slots=4" changes one of these settings of the host. ddprun ignores the
 * words of LINE_NOTHING, which are for Open MPI (max_slots) or MPICH (ifname, binding). */
enum { LINE_SLOTS, LINE_USER, LINE_PORT, LINE_WORDS, LINE_NOTHING = LINE_WORDS };

/* A line of a hostfile may contain these words. Some words have several spellings, because Open MPI accepts several
 * spellings. Open MPI also accepts '-' for each '_' (see word_has_name). */
static const struct {
    const char *name;
    int sets;
} line_words[] = {
    { "slots", LINE_SLOTS },       { "count", LINE_SLOTS },       { "cpu", LINE_SLOTS },
    { "user", LINE_USER },         { "username", LINE_USER },     { "user_name", LINE_USER },
    { "port", LINE_PORT },         { "max_slots", LINE_NOTHING }, { "slots_max", LINE_NOTHING },
    { "max_cpu", LINE_NOTHING },   { "cpu_max", LINE_NOTHING },   { "max_count", LINE_NOTHING },
    { "count_max", LINE_NOTHING }, { "ifname", LINE_NOTHING },    { "binding", LINE_NOTHING },
};

/* Return true if `word` begins with `name` and '='. */
static bool word_has_name(const char *word, const char *name)
{
    while (*name != '\0' && (*word == *name || (*word == '-' && *name == '_')))
        word++, name++;
    return *name == '\0' && *word == '=';
}

/* Store the value of a word in `values`. For example, "slots=4" sets values[LINE_SLOTS] to "4". */
static ddp_status parse_word(const char *word, const char *values[LINE_WORDS], struct ddp_err *err)
{
    for (size_t i = 0; i < sizeof(line_words) / sizeof(line_words[0]); i++) {
        const int sets = line_words[i].sets;
        if (!word_has_name(word, line_words[i].name))
            continue;
        if (sets == LINE_NOTHING)
            return DDP_OK;
        if (values[sets] != NULL)
            return ddp_fail(err, DDP_ERR_ARG, "'%.64s': the line sets %s twice; remove one setting", word,
                            sets == LINE_SLOTS  ? "the number of workers"
                            : sets == LINE_USER ? "the user"
                                                : "the port");
        values[sets] = strchr(word, '=') + 1;
        return DDP_OK;
    }
    return ddp_fail(err, DDP_ERR_ARG, "'%.64s': unknown word; expected slots=N, user=NAME or port=N", word);
}

/* Parse a line without its comment: items, then optionally "slots=N", "user=NAME" and "port=N". */
static ddp_status add_line(struct specs *s, char *line, struct ddp_err *err)
{
    join_settings(line);
    char *rest, *item = strtok_r(line, " \t\r", &rest), *word;
    const char *values[LINE_WORDS] = { NULL };
    struct tail tail = { .count = "" };
    if (item == NULL)
        return DDP_OK;
    while ((word = strtok_r(NULL, " \t\r", &rest)) != NULL)
        if (parse_word(word, values, err) != DDP_OK)
            return DDP_ERR_ARG;
    if (values[LINE_SLOTS] != NULL && check_host_count(item, tail.count = values[LINE_SLOTS], err) != DDP_OK)
        return DDP_ERR_ARG;
    if (values[LINE_PORT] != NULL && set_port(item, values[LINE_PORT], &tail.port, err) != DDP_OK)
        return DDP_ERR_ARG;
    return values[LINE_USER] != NULL ? add_user(s, values[LINE_USER], item, &tail, err)
                                     : add_items(s, item, &tail, err);
}

ddp_status host_specs_parse_file(struct slice text, struct host_spec **out, int *n, struct ddp_err *err)
{
    struct specs s = { 0 };
    struct buf copy = { 0 };
    ddp_status status = DDP_OK;
    int number = 0;
    if (!buf_append(&copy, text.data, text.len) || !buf_append(&copy, "\n", 1))
        status = ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    for (size_t at = 0; status == DDP_OK && at < copy.len;) {
        struct ddp_err why;
        char *line = (char *)copy.data + at;
        const size_t len = (size_t)((char *)memchr(line, '\n', copy.len - at) - line);
        line[len] = '\0';
        at += len + 1;
        number++;
        if (strlen(line) < len)
            status =
                ddp_fail(&why, DDP_ERR_ARG, "the line contains a NUL byte; save the file as UTF-8 or ASCII");
        line[strcspn(line, "#")] = '\0';
        if (status == DDP_OK)
            status = add_line(&s, line, &why);
        if (status != DDP_OK)
            ddp_fail(err, status, "line %d: %s", number, why.msg);
    }
    buf_free(&copy);
    if (status == DDP_OK && s.n == 0)
        status = ddp_fail(err, DDP_ERR_ARG, "no host in the file; write one host in each line");
    return return_specs(&s, status, out, n);
}
