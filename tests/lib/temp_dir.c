/* temp_dir.c -- see temp_dir.h. */
#include "temp_dir.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

void temp_dir_make(char *path)
{
    if (mkdtemp(path) != NULL)
        return;
    perror(path);
    abort();
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void temp_dir_remove(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
