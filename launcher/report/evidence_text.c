/* evidence_text.c -- see evidence_text.h. Kernels differ in what they write, and a container may hide half
 * of it: what is not there is never an error, only one fact less. */
#include "report/evidence_text.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* The next line of `text`, without its newline; false at the end. */
static bool next_line(struct slice *text, struct slice *line)
{
    if (text->len == 0)
        return false;
    const char *p = text->data, *end = memchr(p, '\n', text->len);
    line->data = p;
    line->len = end != NULL ? (size_t)(end - p) : text->len;
    size_t used = line->len + (end != NULL);
    *text = slice_of(p + used, text->len - used);
    return true;
}

/* A number of 10 or 16; false when there is none. Stops at the first other character. */
static bool number_at(const char *p, size_t len, int base, unsigned long long *value)
{
    char digits[24];
    char *end;
    size_t n = len < sizeof(digits) - 1 ? len : sizeof(digits) - 1;
    memcpy(digits, p, n);
    digits[n] = '\0';
    if (n == 0 || digits[0] == '-' || digits[0] == '+' || digits[0] == ' ')
        return false;
    *value = strtoull(digits, &end, base);
    return end != digits;
}

/* The key must begin the line and end before a blank: "oom_kill" is not "oom_kill_group", and "oom" neither. */
bool counter_in(struct slice text, const char *key, unsigned long long *value)
{
    size_t len = strlen(key);
    struct slice line;
    while (next_line(&text, &line)) {
        const char *p = line.data;
        if (line.len > len + 1 && memcmp(p, key, len) == 0 && p[len] == ' ')
            return number_at(p + len + 1, line.len - len - 1, 10, value);
    }
    return false;
}

uint64_t limit_in(struct slice text)
{
    const unsigned long long none_in_v1 = UINT64_C(1)
                                          << 62; /* it writes the highest multiple of a page below 2^63 */
    unsigned long long value;
    return number_at(text.data, text.len, 10, &value) && value < none_in_v1 ? value : 0;
}

/* --- out of memory -------------------------------------------------------------------------------------- */

/* A counter that fell belongs to another group of the same name, made anew meanwhile. */
static unsigned long long rise(unsigned long long before, unsigned long long now)
{
    return now > before ? now - before : 0;
}

/* The limit was reached: the counter of refused pages rose, and the peak is as high as the limit. Without
 * the latter a v1 group counts every page of cache that it had to give back. */
static bool at_limit(const struct oom_watch *w)
{
    bool reached = w->peak == 0 || w->peak >= w->limit - w->limit / 50;
    return w->limit > 0 && rise(w->before.hits, w->now.hits) > 0 && reached;
}

/* The innermost group that was at its limit: those around it are only as full as their children make them. */
static void blame(const struct oom_watch *w, struct worker_evidence *e)
{
    e->oom = OOM_CGROUP;
    snprintf(e->cgroup, sizeof(e->cgroup), "%s", w->name);
    e->cgroup_v2 = w->v2;
    e->limit = w->limit;
    e->peak = w->peak;
}

/* By how many the kernel's kills in any of the groups rose: version 2 counts them outwards, version 1 where
 * the victim was. */
static unsigned long long kills_in(const struct oom_watch *watches, size_t n)
{
    unsigned long long kills = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned long long more = rise(watches[i].before.kills, watches[i].now.kills);
        if (more > kills && !watches[i].late)
            kills = more;
    }
    return kills;
}

/* A group counts its victims also when it was the machine that had no memory; so where groups can be read,
 * the machine's own counter has nothing to add. And when none of our groups was at its limit, the whole
 * machine was, or a group around our container. */
void oom_judge(const struct oom_watch *watches, size_t n, unsigned long long system_kills,
               struct worker_evidence *e)
{
    unsigned long long kills = kills_in(watches, n);
    e->oom_likely = n == 0 && !e->oom_named && system_kills > 0;
    if (kills == 0 && !e->oom_named && !e->oom_likely)
        return;
    e->kills = kills > 0 ? kills : e->oom_likely ? system_kills : 1;
    for (size_t i = 0; i < n && e->oom != OOM_SYSTEM; i++)
        if (at_limit(&watches[i])) {
            blame(&watches[i], e);
            return;
        }
    if (e->oom == OOM_NONE)
        e->oom = OOM_SYSTEM;
    if (e->oom == OOM_CGROUP && e->cgroup[0] == '\0')
        snprintf(e->cgroup, sizeof(e->cgroup), "(not visible from here)");
}

/* --- the kernel's log ----------------------------------------------------------------------------------- */

/* Where `what` ends in the line, NULL when it is not there. */
static const char *behind(struct slice line, const char *what)
{
    const char *p = memmem(line.data, line.len, what, strlen(what));
    return p != NULL ? p + strlen(what) : NULL;
}

static struct slice rest_of(struct slice line, const char *from)
{
    return slice_of(from, line.len - (size_t)(from - (const char *)line.data));
}

/* "Memory cgroup out of memory: Killed process 77 (train)", or without "Memory cgroup" for the whole machine. */
static void killed_line(struct slice line, int pid, struct worker_evidence *e)
{
    unsigned long long who;
    char victim[32];
    const char *group = behind(line, "oom_memcg=");
    snprintf(victim, sizeof(victim), ",pid=%d,", pid);
    if (group != NULL && behind(line, victim) != NULL)
        snprintf(e->cgroup, sizeof(e->cgroup), "%.*s", (int)(rest_of(line, group).len), group);
    e->cgroup[strcspn(e->cgroup, ",")] = '\0';
    const char *p = behind(line, "Killed process ");
    if (p == NULL || !number_at(p, rest_of(line, p).len, 10, &who) || who != (unsigned long long)pid)
        return;
    e->oom_named = true;
    e->oom = behind(line, "Memory cgroup out of memory") != NULL ? OOM_CGROUP : OOM_SYSTEM;
}

/* "... ip 00007f11 sp ... in libc.so.6[152a89,7f00+1000]", or "libc.so.6[7f00+1000]" from older kernels. */
static void object_in(struct slice line, struct worker_evidence *e)
{
    unsigned long long ip = 0, base = 0;
    const char *name = behind(line, " in "), *at = behind(line, " ip ");
    const char *bracket = name != NULL ? memchr(name, '[', rest_of(line, name).len) : NULL;
    if (bracket == NULL || bracket == name)
        return;
    size_t left = rest_of(line, bracket).len - 1, n = (size_t)(bracket - name);
    bool offset_given = memchr(bracket, ',', left) != NULL;
    at = at != NULL ? at : behind(line, " ip:");
    if (!number_at(bracket + 1, left, 16, &base) || n >= OBJECT_SHOWN - 20)
        return;
    if (!offset_given && (at == NULL || !number_at(at, rest_of(line, at).len, 16, &ip) || ip < base))
        return;
    snprintf(e->object, sizeof(e->object), "%.*s+0x%llx", (int)n, name, offset_given ? base : ip - base);
}

/* "train[77]: segfault at 10 ip ...", and without an address "traps: train[77] general protection fault ip:...". */
static void crash_line(struct slice line, int pid, struct worker_evidence *e)
{
    char who[32];
    unsigned long long address;
    snprintf(who, sizeof(who), "[%d]", pid);
    const char *p = behind(line, who);
    if (p == NULL)
        return;
    struct slice rest = rest_of(line, p);
    const char *at = behind(rest, " segfault at ");
    if (at != NULL && number_at(at, rest_of(rest, at).len, 16, &address)) {
        e->fault_known = true;
        e->fault = address;
    }
    object_in(rest, e);
}

void kernel_log_line(struct slice line, int pid, struct worker_evidence *e)
{
    killed_line(line, pid, e);
    crash_line(line, pid, e);
}
