/* gate.c -- see gate.h. The gate is open when its file is there. */
#include "gate.h"

#include "job.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char *dir;

void gate_shut(void)
{
    char path[256];
    dir = job_dir();
    cr_assert_not_null(dir);
    snprintf(path, sizeof(path), "%s/gate", dir);
    setenv("GATE", path, 1);
}

void gate_open(void)
{
    const int fd = open(getenv("GATE"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    cr_assert_geq(fd, 0);
    close(fd);
}

void gate_gone(void)
{
    if (dir != NULL)
        job_dir_remove(dir);
    dir = NULL;
    unsetenv("GATE");
}
