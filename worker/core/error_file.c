/* error_file.c -- see error_file.h. */
#include "core/error_file.h"

#include <cjson/cJSON.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* cJSON does the escaping; NULL when memory is short. */
static char *render(int code, const char *why)
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
    char *text = render(code, why);
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
