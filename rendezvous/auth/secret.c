/* secret.c -- see secret.h.
 *
 * The checks call fstat on the open file, and not stat on its name. The name may lead to another file at the next call.
 * Kubernetes mounts a Secret as a symlink to a symlink, and may replace both symlinks at any time. */
#include "auth/secret.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/not_null.h"
#include "base/syscalls.h"
#include "base/timed_call.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    STDIN_MS = 60000,             /* longest wait for the line on stdin */
    LINE_MAX_BYTES = SECRET_TEXT, /* the digits and the newline */
    TENANTS_MAX = 1024,           /* maximum number of secrets in the file of ddp-rendezvous */
    TENANTS_BYTES = TENANTS_MAX * (LIMIT_TEXT + SECRET_TEXT), /* a file of this size or more is rejected */
    MUNGE_MS = 3000,                                          /* longest wait for an answer of munged */
};

/* Return a zeroed secret in a separate page, or NULL if memory is short. MADV_DONTFORK keeps the page from the workers
 * that ddprun forks, because a worker must not have the secret. */
static struct secret *secret_new(void)
{
    void *page =
        mmap(NULL, sizeof(struct secret), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    madvise(page, sizeof(struct secret), MADV_DONTFORK);
    madvise(page, sizeof(struct secret), MADV_DONTDUMP);
    return page;
}

void secret_free(struct secret *secret)
{
    for (struct secret *next; secret != NULL; secret = next) {
        next = secret->next;
        sodium_memzero(secret, sizeof(*secret));
        munmap(secret, sizeof(*secret));
    }
}

void secret_format(const struct secret *secret, char text[static SECRET_TEXT])
{
    for (size_t i = 0; i < SECRET_BYTES; i++) {
        text[2 * i] = "0123456789abcdef"[secret->key[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[secret->key[i] & 15];
    }
    text[SECRET_TEXT - 1] = '\0';
}

void secret_wipe(char text[static SECRET_TEXT])
{
    sodium_memzero(text, SECRET_TEXT);
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool parse_digits(const char *text, struct secret *secret)
{
    for (size_t i = 0; i < SECRET_BYTES; i++) {
        const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        secret->key[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* Parse the secret of a file that has `n` bytes. `line` has the first bytes of the file. */
static ddp_status parse_line(const char *path, const char *line, size_t n, struct secret **out,
                             struct ddp_err *err)
{
    struct secret *secret = secret_new();
    const bool whole = n == SECRET_TEXT - 1 || (n == SECRET_TEXT && line[SECRET_TEXT - 1] == '\n');
    *out = secret;
    if (secret == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "%s: cannot read the secret: out of memory", path);
    if (whole && parse_digits(line, secret))
        return DDP_OK;
    secret_free(secret);
    *out = NULL;
    return ddp_fail(err, DDP_ERR_ARG,
                    "%s: not a secret: expected one line of 64 hexadecimal digits; make one with 'ddprun "
                    "--make_secret FILE'",
                    path);
}

/* Check the owner and the mode of the file. The group may read a file of root, because Kubernetes makes a Secret
 * readable for the group fsGroup. */
static ddp_status check_file(const char *path, int fd, struct ddp_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return ddp_fail(err, DDP_ERR_IO, "%s: cannot read the secret: %s", path, strerror(errno));
    const mode_t strangers = st.st_uid == 0 && geteuid() != 0 ? S_IRWXO | S_IWGRP : S_IRWXO | S_IRWXG;
    if (!S_ISREG(st.st_mode))
        return ddp_fail(err, DDP_ERR_ARG,
                        "%s: cannot read the secret: not a regular file; copy the secret to a file", path);
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return ddp_fail(
            err, DDP_ERR_ARG,
            "%s: the file belongs to uid %u, not to uid %u or root; copy the secret to a file that "
            "belongs to uid %u",
            path, (unsigned)st.st_uid, (unsigned)geteuid(), (unsigned)geteuid());
    if ((st.st_mode & strangers) != 0)
        return ddp_fail(err, DDP_ERR_ARG,
                        "%s: other users can access the secret (mode %04o); run: chmod 600 %s", path,
                        (unsigned)st.st_mode & 07777, path);
    return DDP_OK;
}

/* Read until `room` bytes are read or the file ends. Return the number of bytes, or -1. */
static ssize_t read_all(int fd, char *text, size_t room)
{
    size_t n = 0;
    while (n < room) {
        const ssize_t got = read(fd, text + n, room - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        n += (size_t)got;
    }
    return (ssize_t)n;
}

/* Read one line of at most `room` bytes. Return the number of bytes, or -1 with an errno. ETIMEDOUT means that no line
 * has arrived within STDIN_MS. */
static ssize_t read_line(int fd, char *text, size_t room)
{
    /* read byte by byte: the bytes after the line are input of the workers */
    const uint64_t until_ms = clock_ms() + STDIN_MS;
    size_t n = 0;
    while (n < room) {
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        const uint64_t now_ms = clock_ms();
        const int some = poll(&ready, 1, now_ms < until_ms ? (int)(until_ms - now_ms) : 0);
        if (some < 0 && errno == EINTR)
            continue;
        if (some == 0)
            errno = ETIMEDOUT;
        const ssize_t got = some > 0 ? read(fd, text + n, 1) : -1;
        if (got < 0 && some > 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        if (text[n++] == '\n')
            break;
    }
    return (ssize_t)n;
}

/* Read the file `path` if its owner and mode are allowed. If `path` is "-", read one line of stdin. Return the number
 * of bytes in `text`, or -1 after an error. Open with O_NONBLOCK, because open would otherwise block on a FIFO. */
static ssize_t read_text(const char *path, char *text, size_t room, struct ddp_err *err)
{
    const bool from_stdin = strcmp(path, "-") == 0;
    const int fd = from_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    char why[WRITE_ERROR_MAX];
    ssize_t n = -1;
    if (fd < 0) {
        ddp_fail(err, DDP_ERR_ARG, "%s: cannot open the secret: %s", path,
                 path_error_text(errno, path, "check --secret_file (or PET_SECRET_FILE)", why));
        return -1;
    }
    if (from_stdin || check_file(path, fd, err) == DDP_OK) {
        n = from_stdin ? read_line(fd, text, room) : read_all(fd, text, room);
        if (n < 0)
            ddp_fail(err, DDP_ERR_IO, "%s: cannot read the secret: %s", from_stdin ? "stdin" : path,
                     path_error_text(errno, path, "check --secret_file (or PET_SECRET_FILE)", why));
    }
    if (!from_stdin)
        close(fd);
    return n;
}

ddp_status secret_read(const char *path, struct secret **out, struct ddp_err *err)
{
    char line[LINE_MAX_BYTES + 1];
    struct ddp_err why;
    *out = NULL;
    const ssize_t n = read_text(path, line, sizeof(line), &why);
    if (n >= 0)
        parse_line(strcmp(path, "-") == 0 ? "stdin" : path, line, (size_t)n, out, &why);
    sodium_memzero(line, sizeof(line));
    if (*out != NULL)
        return DDP_OK;
    return ddp_fail(err, why.code, "%s", why.msg);
}

/* --- tenants ------------------------------------------------------------------------------------------------ */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Parse a line without its newline. The last word of the line is the 64 digits. For an empty line or a comment,
 * return DDP_OK and set *out to NULL. */
static ddp_status parse_tenant(const char *line, size_t n, struct secret **out, struct ddp_err *err)
{
    while (n > 0 && is_blank(line[n - 1]))
        n--;
    *out = NULL;
    if (n == 0 || line[0] == '#')
        return DDP_OK;
    size_t digits = n, jobs;
    while (digits > 0 && !is_blank(line[digits - 1]))
        digits--;
    for (jobs = digits; jobs > 0 && is_blank(line[jobs - 1]);)
        jobs--;
    struct secret *secret = secret_new();
    if (secret == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    if (n - digits == SECRET_TEXT - 1 && jobs < LIMIT_TEXT) {
        memcpy(secret->jobs, line, jobs);
        if (strcspn(secret->jobs, " \t\r") == jobs && parse_digits(line + digits, secret)) {
            *out = secret;
            return DDP_OK;
        }
    }
    secret_free(secret);
    return ddp_fail(err, DDP_ERR_ARG,
                    "expected a prefix of job ids and a secret of 64 hexadecimal digits, or only a "
                    "secret; make a secret with 'ddprun --make_secret FILE'");
}

/* Append a secret to the list, which then owns it. Reject a repeated prefix of job names. Also reject a repeated
 * secret, because an agent names its tenant by the fingerprint. */
static ddp_status add_tenant(struct secret **list, struct secret *secret, struct ddp_err *err)
{
    size_t n = 0;
    for (; *list != NULL; list = &(*list)->next, n++) {
        if (strcmp((*list)->jobs, secret->jobs) == 0)
            return ddp_fail(err, DDP_ERR_ARG,
                            "two lines have a secret for job ids that begin with '%.60s'; remove one of "
                            "the lines",
                            secret->jobs);
        if (sodium_memcmp((*list)->key, secret->key, SECRET_BYTES) == 0)
            return ddp_fail(err, DDP_ERR_ARG,
                            "the job-id prefixes '%.60s' and '%.60s' have the same secret; make a second "
                            "secret with 'ddprun --make_secret FILE'",
                            (*list)->jobs, secret->jobs);
    }
    if (n == TENANTS_MAX)
        return ddp_fail(err, DDP_ERR_ARG, "more than %d lines have a secret", TENANTS_MAX);
    *list = secret;
    return DDP_OK;
}

/* Parse all lines of the file. After an error, *list may have some secrets, which the caller frees. */
static ddp_status parse_tenants(const char *text, size_t n, struct secret **list, struct ddp_err *err)
{
    const char *end = text + n;
    for (int number = 1; text < end; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const size_t len = (size_t)((newline != NULL ? newline : end) - text);
        struct secret *secret = NULL;
        ddp_status status = parse_tenant(text, len, &secret, err);
        if (status == DDP_OK && secret != NULL && (status = add_tenant(list, secret, err)) != DDP_OK)
            secret_free(secret);
        if (status != DDP_OK)
            return ddp_wrap(err, "line %d", number);
        text += len + 1;
    }
    return *list != NULL ? DDP_OK
                         : ddp_fail(err, DDP_ERR_ARG,
                                    "no line has a secret; make one with 'ddprun --make_secret FILE'");
}

ddp_status secret_read_tenants(const char *path, struct secret **out, struct ddp_err *err)
{
    struct ddp_err why = { 0 };
    char *text = malloc(TENANTS_BYTES);
    ssize_t n = -1;
    *out = NULL;
    if (text == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "%s: cannot read the secrets: out of memory", path);
    if (strcmp(path, "-") == 0)
        ddp_fail(&why, DDP_ERR_ARG, "--secret_file=-: expected a file, not stdin; pass the path of a file");
    else
        n = read_text(path, text, TENANTS_BYTES, &why);
    if (n == TENANTS_BYTES)
        ddp_fail(&why, DDP_ERR_ARG, "%s: the file is larger than %d bytes; check --secret_file", path,
                 TENANTS_BYTES - 1);
    else if (n >= 0 && parse_tenants(text, (size_t)n, out, &why) != DDP_OK)
        ddp_wrap(&why, "%s", path);
    sodium_memzero(text, TENANTS_BYTES);
    free(text);
    if (why.code == DDP_OK)
        return DDP_OK;
    secret_free(*out);
    *out = NULL;
    return ddp_fail(err, why.code, "%s", why.msg);
}

ddp_status secret_make(struct secret **out, struct ddp_err *err)
{
    struct secret *secret = secret_new();
    *out = secret;
    if (secret == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "secret: cannot make one: out of memory");
    if (sys_getrandom(secret->key, sizeof(secret->key), 0) == (ssize_t)sizeof(secret->key))
        return DDP_OK;
    secret_free(secret);
    *out = NULL;
    return ddp_fail(
        err, DDP_ERR_IO,
        "secret: cannot make one: no random numbers: %s; check the seccomp profile of the container",
        strerror(errno));
}

ddp_status secret_write(const char *path, struct ddp_err *err)
{
    struct secret *secret;
    char line[SECRET_TEXT], why[WRITE_ERROR_MAX];
    ddp_status status = secret_make(&secret, err);
    if (status != DDP_OK)
        return ddp_wrap(err, "%s", path);
    secret_format(secret, line);
    line[SECRET_TEXT - 1] = '\n';
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        status =
            ddp_fail(err, DDP_ERR_IO, "%s: cannot create the secret: %s", path,
                     errno == EEXIST ? "the file exists, and ddprun overwrites no secret; use that file, or "
                                       "choose another name"
                                     : write_error_text(errno, path, why));
    else if (write(fd, line, sizeof(line)) != (ssize_t)sizeof(line) || fsync(fd) != 0) {
        status = ddp_fail(err, DDP_ERR_IO, "%s: cannot write the secret: %s", path,
                          write_error_text(errno, path, why));
        unlink(path);
    }
    if (fd >= 0)
        close(fd);
    sodium_memzero(line, sizeof(line));
    secret_free(secret);
    return status;
}

/* --- MUNGE -------------------------------------------------------------------------------------------------- */

/* The functions of libmunge that this file uses, copied from munge.h of MUNGE 0.5, because the program must build
 * without MUNGE. */
struct munge {
    void *(*create)(void);
    int (*set)(void *context, int option, ...);
    void (*destroy)(void *context);
    int (*encode)(char **credential, void *context, const void *payload, int n);
    int (*decode)(const char *credential, void *context, void **payload, int *n, uid_t *uid, gid_t *gid);
    const char *(*text)(int error);
    const char *(*context_text)(void *context);
};

enum { MUNGE_OPTION_CIPHER = 0, MUNGE_OPTION_USER = 9, MUNGE_AES128 = 4 };

enum { MUNGE_OK = 0, MUNGE_EXPIRED = 15, MUNGE_REWOUND = 16, MUNGE_REPLAYED = 17, MUNGE_UNAUTHORIZED = 18 };

/* The payload of a credential is this label with its NUL, then the secret. An agent rejects a credential without the
 * label, because another program of the same user has made such a credential. */
static const char label[] = "ddprun secret 1";

enum { PAYLOAD_BYTES = sizeof(label) + SECRET_BYTES };

/* A call of libmunge on a separate thread. Until libmunge has returned, only the separate thread may use the fields
 * after `until_ms`. */
struct secret_call {
    struct timed_call *call; /* owned */
    uint64_t until_ms;       /* time when the caller stops waiting and the call counts as failed (clock_ms) */
    bool seals; /* true: encrypt `secret` to `credential`; false: decrypt `credential` to `secret` */
    char credential[SECRET_CREDENTIAL_MAX];
    struct secret *secret; /* owned */
    struct ddp_err err;
};

/* Load libmunge, or the file in DDP_MUNGE_LIBRARY. */
static ddp_status munge_load(struct munge *m, struct ddp_err *err)
{
    const char *set = getenv("DDP_MUNGE_LIBRARY"),
               *file = set != NULL && set[0] != '\0' ? set : "libmunge.so.2";
    void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED, "MUNGE: %.200s; install libmunge, or use --secret_file",
                        dlerror());
    m->create = (void *(*)(void))dlsym(lib, "munge_ctx_create");
    m->set = (int (*)(void *, int, ...))dlsym(lib, "munge_ctx_set");
    m->destroy = (void (*)(void *))dlsym(lib, "munge_ctx_destroy");
    m->encode = (int (*)(char **, void *, const void *, int))dlsym(lib, "munge_encode");
    m->decode = (int (*)(const char *, void *, void **, int *, uid_t *, gid_t *))dlsym(lib, "munge_decode");
    m->text = (const char *(*)(int))dlsym(lib, "munge_strerror");
    m->context_text = (const char *(*)(void *))dlsym(lib, "munge_ctx_strerror");
    if (m->create == NULL || m->set == NULL || m->destroy == NULL || m->encode == NULL || m->decode == NULL ||
        m->text == NULL || m->context_text == NULL)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                        "MUNGE: %.200s lacks a function of libmunge; set DDP_MUNGE_LIBRARY to the path of "
                        "libmunge.so.2",
                        file);
    return DDP_OK;
}

/* Set the error of a failed call. If munged rejects the user id, the error names a user namespace as a possible cause.
 * Inside a namespace, the user id of a process may differ from the id that munged sees. munged then rejects even a
 * credential that this process has made for itself (c->seals). */
static void munge_fail(struct secret_call *c, const struct munge *m, void *context, int error)
{
    const char *text = m->context_text(context);
    if (text == NULL)
        text = m->text(error);
    if (error == MUNGE_UNAUTHORIZED && c->seals)
        ddp_fail(
            &c->err, DDP_ERR_UNSUPPORTED,
            "MUNGE: %.200s: munged reports a user id other than %u for this process, probably because the "
            "process is in a user namespace; run outside a user namespace, or use --secret_file",
            text, (unsigned)geteuid());
    else if (error == MUNGE_UNAUTHORIZED)
        ddp_fail(&c->err, DDP_ERR_UNSUPPORTED,
                 "MUNGE: %.200s: the secret is for another user, or this process is in a user namespace; "
                 "run as the user of the job, outside a user namespace",
                 text);
    else
        ddp_fail(&c->err, DDP_ERR_IO, "MUNGE: %.200s; check that munged runs on this host", text);
}

/* Unseal (decrypt) the credential to c->secret. Also accept a credential that has expired, is from the future, or was
 * unsealed before. Such a credential is harmless, because the store must also prove that the store has the secret
 * (auth.h). */
static void unseal(struct secret_call *c, const struct munge *m, void *context)
{
    void *payload = NULL;
    int n = 0;
    uid_t uid = (uid_t)-1;
    gid_t gid;
    const int rc = m->decode(c->credential, context, &payload, &n, &uid, &gid);
    if (rc != MUNGE_OK && rc != MUNGE_EXPIRED && rc != MUNGE_REWOUND && rc != MUNGE_REPLAYED)
        munge_fail(c, m, context, rc);
    else if (uid != geteuid())
        ddp_fail(&c->err, DDP_ERR_MISMATCH,
                 "MUNGE: the credential belongs to user id %u, not to user id "
                 "%u; run as the user who started the job",
                 (unsigned)uid, (unsigned)geteuid());
    else if (payload == NULL || n != PAYLOAD_BYTES || memcmp(payload, label, sizeof(label)) != 0)
        ddp_fail(&c->err, DDP_ERR_CORRUPT,
                 "MUNGE: the credential contains no secret of ddprun; check "
                 "the address and port of the store");
    else
        memcpy(c->secret->key, (const char *)payload + sizeof(label), SECRET_BYTES);
    if (payload != NULL && n > 0)
        sodium_memzero(payload, (size_t)n);
    free(payload);
}

/* Seal (encrypt) c->secret, and unseal the result as a test. A store must not begin to serve with a credential that no
 * agent can unseal. */
static void seal(struct secret_call *c, const struct munge *m, void *context)
{
    char payload[PAYLOAD_BYTES], *credential = NULL;
    memcpy(payload, label, sizeof(label));
    memcpy(payload + sizeof(label), c->secret->key, SECRET_BYTES);
    int rc = m->set(context, MUNGE_OPTION_USER, geteuid());
    if (rc == MUNGE_OK)
        rc = m->set(context, MUNGE_OPTION_CIPHER, MUNGE_AES128);
    if (rc == MUNGE_OK)
        rc = m->encode(&credential, context, payload, sizeof(payload));
    sodium_memzero(payload, sizeof(payload));
    if (rc != MUNGE_OK) {
        munge_fail(c, m, context, rc);
    } else if (strlen(credential) >= sizeof(c->credential)) {
        ddp_fail(&c->err, DDP_ERR_LIMIT,
                 "MUNGE: the credential has %zu bytes: expected at most %zu; use --secret_file",
                 strlen(credential), sizeof(c->credential) - 1);
    } else {
        strcpy(c->credential, credential);
        unseal(c, m, context);
    }
    free(credential);
}

/* Free a call. If the call has timed out, its thread calls this function when libmunge returns. */
static void munge_free(void *user)
{
    struct secret_call *c = user;
    secret_free(c->secret);
    free(c);
}

/* Load libmunge, and seal or unseal the secret. This function runs on the separate thread of struct secret_call. */
static void munge_run(void *user)
{
    struct secret_call *c = user;
    struct munge m;
    void *context = munge_load(&m, &c->err) == DDP_OK ? m.create() : NULL;
    if (context != NULL) {
        (c->seals ? seal : unseal)(c, &m, context);
        m.destroy(context);
    } else if (c->err.code == DDP_OK) {
        ddp_fail(&c->err, DDP_ERR_NOMEM, "MUNGE: out of memory");
    }
}

/* Begin a call that seals `secret`. If `secret` is NULL, unseal the `n` bytes of `credential` instead. Give the thread
 * copies, because the thread may run longer than the caller waits. */
static struct secret_call *call_begin(const struct secret *secret, const char *credential, size_t n)
{
    struct secret_call *c = calloc(1, sizeof(*c));
    struct secret *room = c != NULL && n < SECRET_CREDENTIAL_MAX ? secret_new() : NULL;
    if (room == NULL) {
        free(c);
        return NULL;
    }
    c->secret = room;
    c->seals = secret != NULL;
    if (c->seals)
        memcpy(room->key, secret->key, SECRET_BYTES);
    else
        memcpy(c->credential, credential, n);
    c->until_ms = clock_ms() + MUNGE_MS;
    struct timed_call *call = timed_call_begin(munge_run, munge_free, c);
    if (call != NULL)
        c->call = call;
    else
        munge_free(c);
    return call != NULL ? c : NULL;
}

/* End a call, and copy its result. If its thread still waits for munged, return DDP_ERR_TIMEOUT; the thread then frees
 * the call later (munge_free). `out` and `credential` may be NULL. */
static ddp_status call_end(struct secret_call *c, struct secret **out, char *credential, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    if (c == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM,
                        "MUNGE: cannot start a thread: out of memory; free memory, "
                        "or use --secret_file");
    if (!timed_call_end(c->call))
        return ddp_fail(err, DDP_ERR_TIMEOUT,
                        "MUNGE: munged has not answered within %d s; restart "
                        "munged, or use --secret_file",
                        MUNGE_MS / 1000);
    if (c->err.code != DDP_OK)
        status = ddp_fail(err, c->err.code, "%s", c->err.msg);
    if (status == DDP_OK && credential != NULL)
        memcpy(credential, c->credential, SECRET_CREDENTIAL_MAX);
    if (status == DDP_OK && out != NULL) {
        *out = c->secret;
        c->secret = NULL;
    }
    munge_free(c);
    return status;
}

struct secret_call *secret_seal_begin(const struct secret *secret)
{
    return call_begin(secret, NULL, 0);
}

ddp_status secret_seal_end(struct secret_call *c, char *credential, struct ddp_err *err)
{
    return call_end(c, NULL, credential, err);
}

struct secret_call *secret_unseal_begin(const char *credential, size_t n)
{
    return call_begin(NULL, credential, n);
}

bool secret_call_is_over(struct secret_call *c)
{
    return c == NULL || clock_ms() >= c->until_ms || timed_call_has_returned(c->call);
}

ddp_status secret_unseal_end(struct secret_call *c, struct secret **out, struct ddp_err *err)
{
    if (out != NULL)
        *out = NULL;
    return call_end(c, out, NULL, err);
}
