/* error.c -- see error.h.
 *
 * libddp reports a failure with ddp_fail, which also passes the text of the failure to this file. So ddp_last_error()
 * has the text even if the failed call has no struct ddp_err. The text is thread-local. */
#include "core/error.h"

#include <cjson/cJSON.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Thread_local char last_error[sizeof(((struct ddp_err *)0)->msg)];

static void keep_text(const char *msg)
{
    snprintf(last_error, sizeof(last_error), "%s", msg);
}

/* Make ddp_fail pass each error text to keep_text. Do this before main, so that no failure is missed. */
__attribute__((constructor)) static void start_keeping(void)
{
    error_keep = keep_text;
}

ddp_status last_error_keep(const struct ddp_err *err)
{
    keep_text(err->msg);
    return err->code;
}

const char *ddp_last_error(void)
{
    return last_error;
}

/* Return the JSON text of the error file, or NULL if memory is short. */
static char *render_error_file(int code, const char *why)
{
    char seconds[32];
    cJSON *object = cJSON_CreateObject();
    snprintf(seconds, sizeof(seconds), "%lld", (long long)time(NULL));
    cJSON_AddStringToObject(object, "message", why);
    cJSON_AddNumberToObject(object, "exit_code", code);
    cJSON_AddStringToObject(object, "timestamp", seconds); /* torchrun also writes the time as a string */
    char *text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    return text;
}

void error_file_write(const char *path, int code, const char *why)
{
    char *text = render_error_file(code, why);
    const int fd = text != NULL ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file != NULL) {
        fputs(text, file);
        fclose(file);
    } else if (fd >= 0) {
        close(fd);
    }
    cJSON_free(text);
}
