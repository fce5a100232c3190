/* A fake libmunge that needs no munged. A credential is readable text. The environment variable FAKE_MUNGE selects a
 * failure:
 *
 *     down        no munged answers
 *     hang        munged never answers
 *     namespace   munged knows this process by another user id
 *     foreign     credentials belong to another user
 *     replayed    each credential has been decoded before
 *     empty       the payload is lost
 *     long        credentials have 600 bytes */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { OK = 0, SOCKET_ERROR = 6, BAD_CREDENTIAL = 8, REPLAYED = 17, UNAUTHORIZED = 18, LONG_BYTES = 600 };

struct context {
    uid_t only;
    int cipher;
    const char *text;
};

static int is(const char *what)
{
    const char *now = getenv("FAKE_MUNGE");
    return now != NULL && strcmp(now, what) == 0;
}

static int fail(struct context *c, int error, const char *text)
{
    c->text = text;
    return error;
}

/* Return OK if munged answers. */
static int ask(struct context *c)
{
    while (is("hang"))
        pause();
    return is("down") ? fail(c, SOCKET_ERROR, "Failed to access \"/run/munge\"") : OK;
}

EXPORT void *munge_ctx_create(void);
EXPORT void munge_ctx_destroy(void *context);
EXPORT int munge_ctx_set(void *context, int option, ...);
EXPORT int munge_encode(char **credential, void *context, const void *payload, int n);
EXPORT int munge_decode(const char *credential, void *context, void **payload, int *n, uid_t *uid,
                        gid_t *gid);
EXPORT const char *munge_strerror(int error);
EXPORT const char *munge_ctx_strerror(void *context);

void *munge_ctx_create(void)
{
    return calloc(1, sizeof(struct context));
}

void munge_ctx_destroy(void *context)
{
    free(context);
}

int munge_ctx_set(void *context, int option, ...)
{
    struct context *c = context;
    va_list args;
    va_start(args, option);
    if (option == 9)
        c->only = va_arg(args, uid_t);
    else
        c->cipher = va_arg(args, int);
    va_end(args);
    return OK;
}

/* Make a credential. The caller must choose a cipher, because a real credential without a cipher would show the payload
 * to every user. */
int munge_encode(char **credential, void *context, const void *payload, int n)
{
    struct context *c = context;
    if (ask(c) != OK)
        return SOCKET_ERROR;
    if (c->cipher != 4)
        abort();
    char *text = calloc(1, LONG_BYTES + 1);
    int used = sprintf(text, "MUNGE:%u:%u:", (unsigned)geteuid(), (unsigned)c->only);
    for (int i = 0; i < n; i++)
        used += sprintf(text + used, "%02x", ((const unsigned char *)payload)[i]);
    if (is("long"))
        memset(text + used, 'x', (size_t)(LONG_BYTES - used));
    *credential = text;
    return OK;
}

int munge_decode(const char *credential, void *context, void **payload, int *n, uid_t *uid, gid_t *gid)
{
    struct context *c = context;
    unsigned of, only, byte;
    int at = 0;
    if (ask(c) != OK)
        return SOCKET_ERROR;
    if (sscanf(credential, "MUNGE:%u:%u:%n", &of, &only, &at) != 2 || at == 0)
        return fail(c, BAD_CREDENTIAL, "Invalid credential format");
    if (is("namespace") || only != geteuid())
        return fail(c, UNAUTHORIZED, "Unauthorized credential");
    *uid = of + (is("foreign") ? 1 : 0);
    *gid = getegid();
    unsigned char *bytes = calloc(1, LONG_BYTES);
    for (*n = 0; sscanf(credential + at, "%2x", &byte) == 1; at += 2)
        bytes[(*n)++] = (unsigned char)byte;
    if (is("empty"))
        *n = 0;
    *payload = bytes;
    return is("replayed") ? fail(c, REPLAYED, "Replayed credential") : OK;
}

const char *munge_strerror(int error)
{
    (void)error;
    return "error";
}

const char *munge_ctx_strerror(void *context)
{
    return ((struct context *)context)->text;
}
