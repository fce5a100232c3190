/* environment.c -- see environment.h. */
#include "environment.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static void read_line(struct environment *e, char *line, size_t *n)
{
    const size_t used = strlen(e->file);
    if (strncmp(line, "#host ", 6) == 0)
        e->host = line + 6;
    else if (strncmp(line, "#file ", 6) == 0)
        snprintf(e->file + used, sizeof(e->file) - used, "%s\n", line + 6);
    else if (line[0] != '#' && line[0] != '\0' && *n < ENVIRONMENT_VARIABLES_MAX)
        e->block[(*n)++] = line;
}

void environment_read(struct environment *e, const char *name)
{
    char path[256];
    size_t n = 0;
    memset(e, 0, sizeof(*e));
    snprintf(path, sizeof(path), "tests/data/environments/%s.env", name);
    FILE *f = fopen(path, "r");
    cr_assert(f != NULL, "no file %s", path);
    e->text[fread(e->text, 1, sizeof(e->text) - 1, f)] = '\0';
    fclose(f);
    for (char *at = strtok(e->text, "\n"); at != NULL; at = strtok(NULL, "\n"))
        read_line(e, at, &n);
    cr_assert(e->host != NULL, "%s names no host", path);
}
