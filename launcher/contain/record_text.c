/* record_text.c -- see record_text.h. One line for each field, in this order, and nothing else:
 *
 *     ddprun-record 1
 *     boot 0f1c8a6e-6a51-4c0b-9d53-1f6f4f4f2b55
 *     pid_namespace 4026531836
 *     guardian 812 4711
 *     agent 813 4712
 *     cookie 6ab2745628734b15bf11998535d9b413
 *     cgroup /sys/fs/cgroup/ddprun-j-6ab27456
 *     job j */
#include "contain/record_text.h"

#include <stdio.h>
#include <string.h>

static bool one_line(const char *text)
{
    return strchr(text, '\n') == NULL;
}

bool record_print(struct buf *out, const struct record *r)
{
    return one_line(r->boot) && one_line(r->cgroup) && one_line(r->job) &&
           buf_printf(out,
                      "ddprun-record 1\nboot %s\npid_namespace %llu\nguardian %d %llu\nagent %d %llu\n"
                      "cookie %s\ncgroup %s\njob %s\n",
                      r->boot, (unsigned long long)r->pid_namespace, r->guardian.pid,
                      (unsigned long long)r->guardian.start_ticks, r->agent.pid,
                      (unsigned long long)r->agent.start_ticks, r->cookie, r->cgroup, r->job);
}

/* The value behind "name " in the line at *at, copied; *at moves to the next line. False when the line is another one,
 * or its value does not fit. */
static bool take(const char **at, const char *name, char *value, size_t size)
{
    size_t len = strlen(name), n = strcspn(*at, "\n");
    if (n <= len || strncmp(*at, name, len) != 0 || (*at)[len] != ' ' || (*at)[n] != '\n' || n - len > size)
        return false;
    memcpy(value, *at + len + 1, n - len - 1);
    value[n - len - 1] = '\0';
    *at += n + 1;
    return true;
}

/* Decimal digits from *at to the next space or the end, which is skipped. No sign, no overflow. */
static bool take_number(const char **at, uint64_t limit, uint64_t *to)
{
    size_t n = strspn(*at, "0123456789");
    *to = 0;
    if (n == 0 || n > 19 || ((*at)[n] != '\0' && (*at)[n] != ' '))
        return false;
    for (size_t i = 0; i < n; i++)
        *to = *to * 10 + (uint64_t)((*at)[i] - '0');
    *at += n + ((*at)[n] == ' ');
    return *to <= limit;
}

static bool take_process(const char **at, const char *name, struct record_process *to)
{
    char value[64];
    const char *p = value;
    uint64_t pid;
    if (!take(at, name, value, sizeof(value)) || !take_number(&p, INT32_MAX, &pid) ||
        !take_number(&p, UINT64_MAX, &to->start_ticks))
        return false;
    to->pid = (int)pid;
    return pid > 0 && *p == '\0';
}

static bool take_namespace(const char **at, uint64_t *to)
{
    char value[32];
    const char *p = value;
    return take(at, "pid_namespace", value, sizeof(value)) && take_number(&p, UINT64_MAX, to) && *p == '\0';
}

static bool is_cookie(const char *text)
{
    return strlen(text) == COOKIE_CHARS && strspn(text, "0123456789abcdef") == COOKIE_CHARS;
}

/* Everybody in the group will be killed: it must be one that we have named, after this very cookie. */
static bool is_our_group(const char *path, const char *cookie)
{
    const char *name = strrchr(path, '/');
    size_t len = strlen(path);
    return path[0] == '/' && strstr(path, "/../") == NULL && strncmp(name, "/ddprun-", 8) == 0 && len > 9 &&
           path[len - 9] == '-' && strncmp(path + len - 8, cookie, 8) == 0;
}

bool record_parse(const char *text, struct record *out)
{
    char version[8];
    const char *at = text;
    *out = (struct record){ 0 };
    return take(&at, "ddprun-record", version, sizeof(version)) && strcmp(version, "1") == 0 &&
           take(&at, "boot", out->boot, sizeof(out->boot)) && take_namespace(&at, &out->pid_namespace) &&
           take_process(&at, "guardian", &out->guardian) && take_process(&at, "agent", &out->agent) &&
           take(&at, "cookie", out->cookie, sizeof(out->cookie)) && is_cookie(out->cookie) &&
           take(&at, "cgroup", out->cgroup, sizeof(out->cgroup)) &&
           (out->cgroup[0] == '\0' || is_our_group(out->cgroup, out->cookie)) &&
           take(&at, "job", out->job, sizeof(out->job)) && *at == '\0';
}
