/* ctl_flight.c -- see ctl_flight.h. Reads files; what they say is flight_compare.h's business. */
#include "ctl/ctl_flight.h"

#include "base/log.h"
#include "ctl/flight_compare.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 16 << 20, READ_BYTES = 64 << 10 };

static bool read_file(const char *name, struct buf *text)
{
    FILE *file = fopen(name, "re");
    size_t n = 1;
    while (file != NULL && n > 0 && text->len < FILE_MAX) {
        char *at = buf_reserve(text, READ_BYTES);
        n = at != NULL ? fread(at, 1, READ_BYTES, file) : 0;
        text->len += n;
    }
    const bool ok = file != NULL && ferror(file) == 0;
    if (!ok)
        log_error("cannot read %s: %s", name, strerror(errno));
    if (file != NULL)
        fclose(file);
    return ok;
}

/* A file that is no record is left out with a word: the others may tell enough. */
static bool read_dump(const char *name, struct flight_dump *dump)
{
    struct buf text = { 0 };
    struct ddp_err err;
    bool ok = read_file(name, &text);
    if (ok && flight_dump_read(dump, buf_slice(&text), &err) != DDP_OK) {
        log_error("%s: %s", name, err.msg);
        ok = false;
    }
    buf_free(&text);
    return ok;
}

cJSON *ctl_flight(const struct ctl_options *o)
{
    cJSON *answer = NULL;
    size_t n = 0;
    struct flight_dump *dumps = calloc(o->n_files, sizeof(*dumps));
    for (size_t i = 0; dumps != NULL && i < o->n_files; i++)
        n += read_dump(o->files[i], &dumps[n]);
    if (n > 0)
        answer = flight_compare(dumps, n);
    if (dumps == NULL || (n > 0 && answer == NULL))
        log_error("out of memory");
    for (size_t i = 0; i < n; i++)
        flight_dump_free(&dumps[i]);
    free(dumps);
    return answer;
}
