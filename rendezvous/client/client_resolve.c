/* client_resolve.c -- getaddrinfo with a deadline.
 *
 * getaddrinfo cannot be told when to stop: with a dead name server it blocks for ten seconds and more. So a
 * name (a literal needs no server) is looked up on a thread of its own, and we wait for it no longer than we
 * said. The two share a `lookup`; whoever leaves last frees it, so a thread that is given up still cleans up
 * behind itself. */
#include "client/client_dial.h"
#include "client/client_turn.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lookup {
    pthread_mutex_t lock;
    pthread_cond_t done;
    int users; /* 2: both are there, 1: the other one has left */
    bool finished;
    int result; /* of getaddrinfo */
    struct addrinfo *found;
    char port[8];
    char host[];
};

/* Both families; the caller tries all addresses that come back. */
static int resolve(const char *host, const char *port, int flags, struct addrinfo **found)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_flags = flags | AI_NUMERICSERV };
    return getaddrinfo(host, port, &hints, found);
}

/* With both users already counted: the thread may run before we have come to wait for it. NULL: no memory. */
static struct lookup *lookup_new(const char *host, const char *port)
{
    struct lookup *l = calloc(1, sizeof(*l) + strlen(host) + 1);
    if (l == NULL)
        return NULL;
    pthread_mutex_init(&l->lock, NULL);
    client_cond_init(&l->done);
    l->users = 2;
    snprintf(l->port, sizeof(l->port), "%s", port);
    strcpy(l->host, host);
    return l;
}

/* The caller holds the lock and gives up its share. */
static void lookup_leave(struct lookup *l)
{
    bool last = --l->users == 0;
    pthread_mutex_unlock(&l->lock);
    if (!last)
        return;
    if (l->found != NULL)
        freeaddrinfo(l->found);
    pthread_cond_destroy(&l->done);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void *lookup_main(void *arg)
{
    struct lookup *l = arg;
    struct addrinfo *found = NULL;
    int result = resolve(l->host, l->port, 0, &found);
    pthread_mutex_lock(&l->lock);
    l->result = result;
    l->found = result == 0 ? found : NULL;
    l->finished = true;
    pthread_cond_signal(&l->done);
    lookup_leave(l);
    return NULL;
}

/* Wait for the thread; false when the deadline passed first. */
static bool lookup_wait(struct lookup *l, uint64_t deadline_ms, int *result, struct addrinfo **found)
{
    bool in_time = true;
    pthread_mutex_lock(&l->lock);
    while (!l->finished && in_time)
        in_time = client_cond_wait(&l->done, &l->lock, deadline_ms);
    bool finished = l->finished;
    *result = l->result;
    *found = l->found;
    l->found = NULL;
    lookup_leave(l);
    return finished;
}

/* Detached: nobody can join a thread that he may have to leave behind. 0, or an errno. */
static int lookup_start(struct lookup *l)
{
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int rc = pthread_create(&thread, &attr, lookup_main, l);
    pthread_attr_destroy(&attr);
    return rc;
}

ddp_status client_resolve(const char *host, int port, uint64_t deadline_ms, struct addrinfo **found,
                          struct ddp_err *err)
{
    char service[8];
    int result;
    snprintf(service, sizeof(service), "%d", port);
    if (resolve(host, service, AI_NUMERICHOST, found) == 0)
        return DDP_OK;
    struct lookup *l = lookup_new(host, service);
    if (l == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    int rc = lookup_start(l);
    if (rc != 0) {
        l->users = 1;
        pthread_mutex_lock(&l->lock);
        lookup_leave(l);
        return ddp_fail(err, DDP_ERR_IO, "cannot start a thread to look up '%s': %s", host, strerror(rc));
    }
    if (!lookup_wait(l, deadline_ms, &result, found))
        return ddp_fail(err, DDP_ERR_TIMEOUT, "the name service does not answer for '%s'", host);
    if (result != 0)
        return ddp_fail(err, DDP_ERR_CLOSED, "the name '%s' is not known (%s)", host, gai_strerror(result));
    return DDP_OK;
}
