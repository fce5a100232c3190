/* cgroup_path.c -- see cgroup_path.h.
 *
 *     /proc/self/cgroup      0::/user.slice/session-3.scope                     our group, seen from the root
 *                            4:cpu,memory:/jobs/7                               the same of a hierarchy of version 1
 *     /proc/self/mountinfo   35 24 0:30 /user.slice /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw
 *                                       root        where          options     type   source  options
 *
 * A mount shows the hierarchy from its root downwards. In a container the root may be our own group, and a path that
 * begins with /.. lies outside of what can be seen. Spaces and the like are written as \040 in both files. */
#include "contain/cgroup_path.h"

#include <stdio.h>
#include <string.h>

/* The end of the word that begins at `at`: words are separated by one space, lines by a newline. */
static const char *word_end(const char *at)
{
    return at + strcspn(at, " \n");
}

/* Behind `n` words, NULL when the line is shorter. */
static const char *skip_words(const char *at, int n)
{
    for (; n > 0; n--) {
        at = word_end(at);
        if (*at != ' ')
            return NULL;
        at++;
    }
    return at;
}

static bool is_octal(const char *p)
{
    return p[0] >= '0' && p[0] <= '3' && p[1] >= '0' && p[1] <= '7' && p[2] >= '0' && p[2] <= '7';
}

/* Copy the bytes up to `end`, \040 becomes a space. False when they do not fit. */
static bool unescape(const char *from, const char *end, char out[CGROUP_PATH_MAX])
{
    size_t n = 0;
    while (from < end) {
        if (n + 1 >= CGROUP_PATH_MAX)
            return false;
        if (*from == '\\' && end - from >= 4 && is_octal(from + 1)) {
            out[n++] = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            out[n++] = *from++;
        }
    }
    out[n] = '\0';
    return true;
}

/* "rw,relatime" */
static bool begins_rw(const char *options)
{
    return strncmp(options, "rw", 2) == 0 && strchr(", \n", options[2]) != NULL;
}

/* Is `word` one of the `len` characters "cpu,memory"? */
static bool lists(const char *names, size_t len, const char *word)
{
    const size_t n = strlen(word);
    for (const char *end = names + len; names < end; names++) {
        size_t part = strcspn(names, ", :\n");
        if (part == n && memcmp(names, word, n) == 0)
            return true;
        names += part;
    }
    return false;
}

/* At "- cgroup cgroup rw,memory". */
static bool is_wanted(const char *fs, const char *super, bool v2)
{
    if (v2)
        return strncmp(fs, "- cgroup2 ", 10) == 0;
    return strncmp(fs, "- cgroup ", 9) == 0 && super != NULL &&
           lists(super, (size_t)(word_end(super) - super), "memory");
}

/* One line of mountinfo; false when it is another mount. */
static bool parse_mount(const char *line, bool v2, struct cgroup_mount *m)
{
    const char *root = skip_words(line, 3);
    const char *where = root != NULL ? skip_words(root, 1) : NULL;
    const char *options = where != NULL ? skip_words(where, 1) : NULL;
    const char *fs = options;
    /* Optional fields, in any number, end with a lone dash. */
    while (fs != NULL && strncmp(fs, "- ", 2) != 0)
        fs = skip_words(fs, 1);
    const char *super = fs != NULL ? skip_words(fs, 3) : NULL;
    if (fs == NULL || !is_wanted(fs, super, v2))
        return false;
    m->writable = begins_rw(options) && (super == NULL || begins_rw(super));
    return unescape(root, word_end(root), m->root) && unescape(where, word_end(where), m->where);
}

/* The line at *text, which moves to the next one; NULL at the end. */
static const char *next_line(const char **text)
{
    const char *line = *text;
    if (*line == '\0')
        return NULL;
    *text += strcspn(line, "\n");
    *text += **text == '\n';
    return line;
}

bool cgroup_next_mount(const char **mounts, bool v2, struct cgroup_mount *m)
{
    const char *line;
    while ((line = next_line(mounts)) != NULL)
        if (parse_mount(line, v2, m))
            return true;
    return false;
}

bool cgroup_own(const char *groups, bool v2, char group[CGROUP_PATH_MAX])
{
    const char *line;
    while ((line = next_line(&groups)) != NULL) {
        const char *end = line + strcspn(line, "\n");
        const char *names = memchr(line, ':', (size_t)(end - line));
        const char *path = names != NULL ? memchr(names + 1, ':', (size_t)(end - names - 1)) : NULL;
        if (path == NULL || path[1] != '/')
            continue;
        const size_t len = (size_t)(path - names - 1);
        if (v2 ? len == 0 && line[0] == '0' : lists(names + 1, len, "memory"))
            return unescape(path + 1, end, group);
    }
    return false;
}

const char *cgroup_below(const char *group, const char *root)
{
    size_t len = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(group, "/..", 3) == 0 || strncmp(group, root, len) != 0 ||
        (group[len] != '/' && group[len] != '\0'))
        return NULL;
    return strcmp(group + len, "/") == 0 ? "" : group + len;
}

bool cgroup_locate(const char *groups, const char *mounts, char dir[CGROUP_PATH_MAX], const char **why)
{
    char group[CGROUP_PATH_MAX];
    struct cgroup_mount m;
    *why = "no cgroup v2 is mounted";
    if (!cgroup_own(groups, true, group)) {
        *why = "this kernel has no cgroup v2";
        return false;
    }
    while (cgroup_next_mount(&mounts, true, &m)) {
        const char *rest = cgroup_below(group, m.root);
        if (rest == NULL)
            *why = "our own group lies outside of the mounted cgroup v2";
        else if (!m.writable)
            *why = "cgroup v2 is mounted read-only";
        else if ((size_t)snprintf(dir, CGROUP_PATH_MAX, "%s%s", m.where, rest) < CGROUP_PATH_MAX)
            return true;
    }
    return false;
}

/* A job id may hold anything but slash and newline; the digits of the cookie make the name unique. */
void cgroup_name(char out[CGROUP_NAME_MAX], const char *job, const char *cookie)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
    int n = snprintf(out, CGROUP_NAME_MAX, "ddprun-%.64s-%.8s", job, cookie);
    for (int i = 0; i < n; i++)
        if (strchr(plain, out[i]) == NULL)
            out[i] = '_';
}

bool cgroup_is_name(const char *name)
{
    const size_t len = strlen(name), digits = 8, front = strlen("ddprun-");
    return len > front + digits && strncmp(name, "ddprun-", front) == 0 && name[len - digits - 1] == '-' &&
           strspn(name + len - digits, "0123456789abcdef") == digits;
}

bool cgroup_is_populated(const char *events)
{
    const char *line;
    while ((line = next_line(&events)) != NULL)
        if (strncmp(line, "populated ", 10) == 0)
            return line[10] != '0';
    return false;
}
