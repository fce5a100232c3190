/* print_protocol PAGE -- prints a page with new tables from the sources, on stdout.
 *
 * A table is between two marker lines; everything else is copied. `make protocol` replaces the page by the output. */
#include "table_pages.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *begin, *end;
    bool (*print)(struct buf *out);
} tables[] = {
    { "<!-- requests: ", "<!-- end of requests -->", page_of_requests },
    { "<!-- messages: ", "<!-- end of messages -->", page_of_messages },
    { "# messages: ", "# end of messages", page_of_dictionary },
};
enum { TABLES = sizeof(tables) / sizeof(tables[0]) };

static bool begins(const char *line, const char *marker)
{
    return strncmp(line, marker, strlen(marker)) == 0;
}

/* Print the new table in place of the old table, and then the end marker of the table. */
static bool replace(FILE *in, size_t which)
{
    char line[4096];
    struct buf text = { 0 };
    bool ok = tables[which].print(&text) && buf_append(&text, "", 1);
    if (ok)
        fputs((const char *)text.data, stdout);
    buf_free(&text);
    while (ok && fgets(line, sizeof(line), in) != NULL)
        if (begins(line, tables[which].end))
            return fputs(line, stdout) >= 0;
    return false;
}

int main(int argc, char **argv)
{
    char line[4096];
    FILE *in = argc == 2 ? fopen(argv[1], "r") : NULL;
    bool ok = in != NULL;
    while (ok && fgets(line, sizeof(line), in) != NULL) {
        fputs(line, stdout);
        for (size_t i = 0; i < TABLES; i++)
            if (begins(line, tables[i].begin))
                ok = replace(in, i);
    }
    if (in == NULL)
        fprintf(stderr, "usage: print_protocol PAGE.md\n");
    else
        fclose(in);
    return ok ? 0 : in != NULL ? 1 : 2;
}
