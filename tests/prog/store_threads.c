/* store_threads.c -- HOST PORT: several threads use one handle of the store client at the same time, while other
 * threads have separate handles. Exits with 0 if no update was lost. This is a plain program, so that it can run
 * under ThreadSanitizer. */
#include "ddp/store.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHARING = 4, ADDS = 250 };

struct place {
    const char *host;
    int port;
};

static void need(ddp_status status, const struct ddp_err *err)
{
    if (status == DDP_OK)
        return;
    fprintf(stderr, "store_threads: %s\n", err->msg);
    exit(1);
}

static ddp_store *connected(const struct place *place)
{
    struct ddp_err err;
    ddp_store *store;
    need(ddp_store_connect(place->host, place->port, NULL, &store, &err), &err);
    return store;
}

static void *add(void *store)
{
    struct ddp_err err;
    for (int i = 0; i < ADDS; i++)
        need(ddp_store_add(store, "sum", 1, NULL, &err), &err);
    return NULL;
}

/* Use a separate connection to set the key for which the main thread waits. */
static void *announce(void *place)
{
    struct ddp_err err;
    ddp_store *store = connected(place);
    need(ddp_store_set(store, "ready", "", 0, &err), &err);
    ddp_store_close(store);
    return NULL;
}

int main(int argc, char *argv[])
{
    struct place place = { argc > 1 ? argv[1] : "localhost", argc > 2 ? atoi(argv[2]) : 0 };
    pthread_t threads[SHARING + 1];
    struct ddp_err err;
    int64_t sum;
    ddp_store *store = connected(&place);
    for (int i = 0; i < SHARING; i++)
        pthread_create(&threads[i], NULL, add, store);
    pthread_create(&threads[SHARING], NULL, announce, &place);
    need(ddp_store_wait(store, (const char *[]){ "ready" }, 1, 20000, &err), &err);
    for (int i = 0; i <= SHARING; i++)
        pthread_join(threads[i], NULL);
    need(ddp_store_add(store, "sum", 0, &sum, &err), &err);
    printf("sum %d\n", (int)sum);
    ddp_store_close(store);
    return sum == SHARING * ADDS ? 0 : 1;
}
