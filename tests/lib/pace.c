/* pace.c -- see pace.h. */
#include "pace.h"

#include "patience.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, METRICS_MAX = 256 * 1024 };

void pace_open(struct pace *p, const char *dir)
{
    snprintf(p->path, sizeof(p->path), "%s/metrics", dir);
    cr_assert_eq(mkfifo(p->path, 0600), 0);
    p->fd = open(p->path, O_RDWR | O_CLOEXEC);
    cr_assert_geq(p->fd, 0);
    fcntl(p->fd, F_SETPIPE_SZ, PAGE);
}

bool pace_until(struct pace *p, const char *text)
{
    static char seen[METRICS_MAX];
    seen[0] = '\0';
    return patience_read(p->fd, seen, sizeof(seen), text);
}

static void *read_all(void *fd)
{
    char some[PAGE];
    while (read(*(const int *)fd, some, sizeof(some)) > 0)
        continue;
    return NULL;
}

void pace_go(struct pace *p)
{
    static int fd;
    pthread_t thread;
    fd = p->fd;
    cr_assert_eq(pthread_create(&thread, NULL, read_all, &fd), 0);
    pthread_detach(thread);
}
