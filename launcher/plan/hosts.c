/* hosts.c -- see hosts.h.
 *
 * A list in Slurm's form is never expanded. The number of hosts of an item is the product of its brackets' sizes. The
 * name of host k is computed from k as the digits of a number are, where the last bracket is the lowest digit. */
#include "plan/hosts.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { DIGITS_MAX = 9 };

/* --- Slurm ---------------------------------------------------------------------------------------------- */

/* Parse a number of at most DIGITS_MAX (nine) digits, which always fits an int. Store its number of digits in *width,
 * because "01" and "1" are different hosts in Slurm. */
static bool take_number(const char **at, const char *end, int *value, int *width)
{
    *value = *width = 0;
    while (*at < end && isdigit((unsigned char)**at) && *width < DIGITS_MAX) {
        *value = *value * 10 + (*(*at)++ - '0');
        ++*width;
    }
    return *width > 0;
}

/* A range such as "01-16" or "20" inside brackets: first and last number, and the digits to pad them to. */
struct range {
    int from, to, width;
};

/* Parse a range. The first number determines the digits of all numbers, as in Slurm. */
static bool take_range(const char **at, const char *end, struct range *r)
{
    int width;
    if (!take_number(at, end, &r->from, &r->width))
        return false;
    r->to = r->from;
    if (*at < end && **at == '-') {
        ++*at;
        if (!take_number(at, end, &r->to, &width))
            return false;
    }
    if (*at < end && *(*at)++ != ',')
        return false;
    return r->from <= r->to;
}

/* Return how many numbers the text between brackets has; 0 = the text is invalid. Compute the size of a range without
 * a loop, because a range such as "[1-999999999]" must not take a second. */
static long count_ranges(const char *at, const char *end)
{
    struct range r;
    long n = 0;
    while (at < end && n <= HOST_LIST_MAX) {
        if (!take_range(&at, end, &r))
            return 0;
        n += r.to - r.from + 1L;
    }
    return n;
}

/* Format number `index` of the ranges with its leading zeros; "" if there are fewer numbers. */
static void print_number(const char *at, const char *end, long index, char *out, size_t size)
{
    struct range r;
    out[0] = '\0';
    while (at < end && take_range(&at, end, &r)) {
        if (index <= r.to - r.from) {
            snprintf(out, size, "%0*ld", r.width, r.from + index);
            return;
        }
        index -= r.to - r.from + 1L;
    }
}

/* Return the end of the item at `text`: a comma outside brackets, or the end of the text. */
static const char *item_end(const char *text)
{
    bool inside = false;
    while (*text != '\0' && (inside || *text != ',')) {
        inside = *text == '[' || (inside && *text != ']');
        text++;
    }
    return text;
}

/* Return the number of hosts of an item; 0 = the item is invalid. The sizes of several brackets are multiplied
 * ("r[1-4]n[01-16]"). The product is compared with its limit after each bracket, so a long is large enough. */
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

/* Return how many hosts follow for each number of the brackets at `at`: the product of the later brackets' sizes. */
static long hosts_behind(const char *at, const char *end)
{
    const char *close = memchr(at, ']', (size_t)(end - at));
    return close != NULL && close + 1 < end ? item_hosts(close + 1, end) : 1;
}

/* Format the name of host number `index` of an item. */
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

/* Skip items by their number of hosts, without building names. */
bool host_list_slurm_at(const char *text, int index, char name[HOST_NAME_SIZE])
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

/* --- texts ---------------------------------------------------------------------------------------------- */

/* Return whether two names mean the same host. Compare only the part before the first dot, because schedulers write
 * short names and machines often know their long name. */
static bool same_host(const char *a, const char *b)
{
    const size_t len = strcspn(a, ".");
    return len == strcspn(b, ".") && strncmp(a, b, len) == 0;
}

/* Find the next word of `text`; truncate it if it is too long. False: no more words. */
static bool take_word(const char **text, const char **word, size_t *len)
{
    *word = *text + strspn(*text, " \t\r\n");
    *len = strcspn(*word, " \t\r\n");
    *text = *word + *len;
    return *len > 0;
}

static bool is_before(const char *text, const char *word, size_t len)
{
    const char *other;
    size_t other_len;
    while (take_word(&text, &other, &other_len) && other < word)
        if (other_len == len && memcmp(other, word, len) == 0)
            return true;
    return false;
}

/* Parse a list of words. A repeated name means another slot of the same host. Repeated names are usually adjacent, so
 * compare with the previous name first. */
bool host_list_words(const char *text, bool counted, const char *here, struct host_list *out)
{
    const char *at = text, *word, *last = "";
    size_t len, last_len = 0;
    *out = (struct host_list){ .here = -1 };
    for (int i = 0, changes = 0; take_word(&at, &word, &len); i++) {
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

/* Parse "4(x2),3", which means four tasks on each of the first two nodes and three on the third. Return 0 for any
 * other form. */
int host_list_tasks(const char *text, int node)
{
    const char *const end = text + strlen(text);
    while (text < end) {
        int tasks, times = 1, width;
        if (!take_number(&text, end, &tasks, &width))
            return 0;
        if (strncmp(text, "(x", 2) == 0) {
            text += 2;
            if (!take_number(&text, end, &times, &width) || *text++ != ')')
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
