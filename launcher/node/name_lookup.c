/* name_lookup.c -- see name_lookup.h.
 *
 * Loop and thread share one object; whoever leaves last frees it. The thread wakes the loop while it holds the lock
 * and only if the loop is still there, so the wake-up never meets a handle that is closed.
 *
 * A thread of its own and not libuv's pool: getaddrinfo cannot be interrupted, and with a name server that
 * is silent it may hang for half a minute or more; four such would fill the pool, and at its end a process
 * would wait for them. */
#include "node/name_lookup.h"

#include <ctype.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct name_lookup {
    pthread_mutex_t lock;
    int users;   /* thread, and loop with its handle */
    bool wanted; /* the loop still waits for the answer */
    uv_async_t wake;
    void (*done)(void *user, const struct name_found *found);
    void *user;
    struct name_found found;
    char host[];
};

/* Is `host` one of the words behind the address? Names are compared without case, as resolvers do. */
static bool names_host(const char *line, const char *host)
{
    const size_t len = strlen(host);
    line += strcspn(line, " \t");
    while (*line != '\0' && *line != '#') {
        line += strspn(line, " \t");
        const size_t word = strcspn(line, " \t#");
        if (word == len && strncasecmp(line, host, len) == 0)
            return true;
        line += word;
    }
    return false;
}

/* The first line that names the host, as the C library reads the file. A longer line is cut. It is shown
 * when the name leads to loopback: the user must then know that the mistake is in this file and not in DNS.
 * Control characters become blanks, for it goes to a terminal. */
static void find_hosts_line(const char *host, char line[LOOKUP_LINE_MAX])
{
    char text[1024];
    FILE *file = fopen("/etc/hosts", "re");
    line[0] = '\0';
    while (file != NULL && line[0] == '\0' && fgets(text, sizeof(text), file) != NULL) {
        text[strcspn(text, "\r\n")] = '\0';
        for (char *p = text; *p != '\0'; p++)
            if (iscntrl((unsigned char)*p))
                *p = ' ';
        if (names_host(text, host))
            snprintf(line, LOOKUP_LINE_MAX, "%.*s", LOOKUP_LINE_MAX - 1, text);
    }
    if (file != NULL)
        fclose(file);
}

/* In the resolver's order, which is RFC 6724's: what it puts first is what a program would have tried
 * first. */
static void put_addresses(const struct addrinfo *list, struct name_found *found)
{
    for (; list != NULL && found->n < DIAL_ADDRESSES_MAX; list = list->ai_next)
        if (getnameinfo(list->ai_addr, list->ai_addrlen, found->addresses[found->n], DIAL_TEXT_MAX, NULL, 0,
                        NI_NUMERICHOST) == 0)
            found->n++;
}

/* Both families are asked for even if this machine has no address of one (no AI_ADDRCONFIG): that flag
 * ignores loopback, and a test or a laptop without a network would find nothing. */
void name_look_up(const char *host, bool only_literal, struct name_found *found)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
                                    .ai_flags = only_literal ? AI_NUMERICHOST : 0 };
    struct addrinfo *list = NULL;
    *found = (struct name_found){ .error = getaddrinfo(host, NULL, &hints, &list) };
    if (found->error == 0) {
        put_addresses(list, found);
        freeaddrinfo(list);
        if (found->n == 0)
            found->error = EAI_NONAME;
    }
    if (!only_literal)
        find_hosts_line(host, found->hosts_line);
}

/* The caller holds the lock and gives up its share. Who leaves last must unlock before it destroys; nobody
 * else can come any more, since the count was 0. */
static void leave(struct name_lookup *l)
{
    const bool last = --l->users == 0;
    pthread_mutex_unlock(&l->lock);
    if (last) {
        pthread_mutex_destroy(&l->lock);
        free(l);
    }
}

/* The long part without the lock: the loop must be able to leave meanwhile. */
static void *thread_main(void *arg)
{
    struct name_lookup *l = arg;
    struct name_found found;
    name_look_up(l->host, false, &found);
    pthread_mutex_lock(&l->lock);
    l->found = found;
    if (l->wanted)
        uv_async_send(&l->wake);
    leave(l);
    return NULL;
}

/* The loop's share, and only now: libuv has let go of the handle, which lies within the object. Whoever of
 * the two comes last frees it. */
static void on_closed(uv_handle_t *handle)
{
    struct name_lookup *l = handle->data;
    pthread_mutex_lock(&l->lock);
    leave(l);
}

/* Its writes are seen: the thread sent the wake-up after it had written, under the lock. uv_async may wake
 * us once for several sends, and is sent once here. */
static void on_wake(uv_async_t *wake)
{
    struct name_lookup *l = wake->data;
    l->done(l->user, &l->found);
}

void name_lookup_end(struct name_lookup *l)
{
    if (l == NULL)
        return;
    pthread_mutex_lock(&l->lock);
    l->wanted = false;
    pthread_mutex_unlock(&l->lock);
    uv_close((uv_handle_t *)&l->wake, on_closed);
}

/* Detached, and deaf to signals: those are the loop's. 0, or an errno. The mask is inherited, so it is set
 * around the creation and not in the thread, which would be open to signals for a moment. */
static int start_thread(struct name_lookup *l)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&thread, &attr, thread_main, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

struct name_lookup *name_lookup_begin(uv_loop_t *loop, const char *host,
                                      void (*done)(void *user, const struct name_found *found), void *user)
{
    struct name_lookup *l = calloc(1, sizeof(*l) + strlen(host) + 1);
    if (l == NULL)
        return NULL;
    if (uv_async_init(loop, &l->wake, on_wake) != 0) {
        free(l);
        return NULL;
    }
    pthread_mutex_init(&l->lock, NULL);
    l->wake.data = l;
    l->users = 2;
    l->wanted = true;
    l->done = done;
    l->user = user;
    strcpy(l->host, host);
    if (start_thread(l) == 0)
        return l;
    l->users = 1;
    name_lookup_end(l);
    return NULL;
}
