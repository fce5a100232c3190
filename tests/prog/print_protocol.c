/* print_protocol README -- the README with its table of requests written anew from ops.h, on stdout.
 *
 * The table stands between two marker lines; everything else is copied. `make protocol` puts the output in place. */
#include "core/ops.h"

#include <stdio.h>
#include <string.h>

static bool copy_until(FILE *in, const char *marker, bool print)
{
    char line[4096];
    while (fgets(line, sizeof(line), in) != NULL) {
        bool found = strncmp(line, marker, strlen(marker)) == 0;
        if (print || found)
            fputs(line, stdout);
        if (found)
            return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    struct buf table = { 0 };
    FILE *in = argc == 2 ? fopen(argv[1], "r") : NULL;
    if (in == NULL) {
        fprintf(stderr, "usage: print_protocol README.md\n");
        return 2;
    }
    bool ok =
        copy_until(in, "<!-- requests: ", true) && ops_print_markdown(&table) && buf_append(&table, "", 1);
    if (ok)
        fputs((const char *)table.data, stdout);
    ok = ok && copy_until(in, "<!-- end of requests -->", false);
    copy_until(in, "no such marker", true);
    buf_free(&table);
    fclose(in);
    return ok ? 0 : 1;
}
