/* Send any bytes as the answer to each call of the store client. The call must return a status, free its memory, and
 * trust no length. The first byte selects the call. A thread acts as the store: it waits for the request, answers with
 * the rest of the input and closes the connection. */
#include "client/call.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct answer {
    int fd;
    const uint8_t *data;
    size_t size;
};

static void *play(void *arg)
{
    const struct answer *a = arg;
    char request[4096];
    if (recv(a->fd, request, sizeof(request), 0) > 0 && a->size > 0)
        send(a->fd, a->data, a->size, MSG_NOSIGNAL);
    shutdown(a->fd, SHUT_WR);
    while (recv(a->fd, request, sizeof(request), 0) > 0)
        continue;
    return NULL;
}

static ddp_status call(ddp_store *s, unsigned which, struct ddp_err *err)
{
    const char *const keys[] = { "a", "b" };
    void *value = NULL;
    size_t len;
    int64_t number;
    int flag;
    ddp_status status = DDP_OK;
    switch (which % 7) {
    case 0:
        status = ddp_store_get(s, "a", 0, &value, &len, err);
        break;
    case 1:
        status = ddp_store_add(s, "a", 1, &number, err);
        break;
    case 2:
        status = ddp_store_compare_set(s, "a", "b", 1, "c", 1, &value, &len, err);
        break;
    case 3:
        status = ddp_store_check(s, keys, 2, &flag, err);
        break;
    case 4:
        status = ddp_store_barrier(s, "a", NULL, 0, 1000, err);
        break;
    case 5:
        status = ddp_store_control(s, "{}", 0, (char **)&value, err);
        break;
    case 6:
        status = ddp_store_wait(s, keys, 2, 1000, err);
        break;
    }
    assert(status == DDP_OK || value == NULL);
    free(value);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int ends[2];
    pthread_t thread;
    struct ddp_err err = { 0 };
    ddp_store *s = calloc(1, sizeof(*s));
    if (size == 0 || s == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) {
        free(s);
        return 0;
    }
    struct answer answer = { ends[1], data + 1, size - 1 };
    fcntl(ends[1], F_SETFL, 0); /* let the thread's writes block */
    client_turn_init(&s->turn);
    client_stream_attach(&s->stream, ends[0]);
    s->dialect = DIALECT_C;
    s->identified = true;
    s->timeout_ms = 1000;
    int rc = pthread_create(&thread, NULL, play, &answer);
    assert(rc == 0);
    ddp_status status = call(s, data[0], &err);
    assert(status == err.code);
    assert((status == DDP_OK) == (err.msg[0] == '\0'));
    ddp_store_close(s);
    pthread_join(thread, NULL);
    close(ends[1]);
    return 0;
}
