/* error.c -- see error.h. The text is thread-local, so two contexts cannot share it by accident. */
#include "core/error.h"

#include "base/not_null.h"
#include "ddp/context.h"

#include <cjson/cJSON.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Thread_local char last_error[sizeof(((struct ddp_err *)0)->msg)];

ddp_status last_error_keep(const struct ddp_err *err)
{
    memcpy(last_error, err->msg, sizeof(last_error));
    last_error[sizeof(last_error) - 1] = '\0';
    return err->code;
}

ddp_status last_error_null(const char *call, const char *argument)
{
    struct ddp_err err;
    null_argument(&err, call, argument);
    return last_error_keep(&err);
}

const char *ddp_last_error(void)
{
    return last_error;
}

/* cJSON does the escaping; NULL when memory is short. */
static char *render_error_file(int code, const char *why)
{
    char seconds[32];
    cJSON *object = cJSON_CreateObject();
    snprintf(seconds, sizeof(seconds), "%lld", (long long)time(NULL));
    cJSON_AddStringToObject(object, "message", why);
    cJSON_AddNumberToObject(object, "exit_code", code);
    cJSON_AddStringToObject(object, "timestamp", seconds); /* torchrun sorts causes by it, and wants a text */
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
