/* program_look.c -- see program_look.h: the first line of a script, the header of a program. Only bytes in here;
 * program_see.c fetches them. */
#include "report/program_look.h"

/* "#! /usr/bin/env -S python3\r\n" -> "/usr/bin/env". The kernel ends the name at a blank; the \r is part
 * of it, which is why such a script is "not found". */
static void read_first_line(struct program_look *look, const char *text, size_t len)
{
    const char *end = memchr(text, '\n', len);
    size_t line = end != NULL ? (size_t)(end - text) : len;
    size_t at = 2;
    look->carriage_return = line > 2 && text[line - 1] == '\r';
    line -= look->carriage_return;
    while (at < line && (text[at] == ' ' || text[at] == '\t'))
        at++;
    size_t stop = at;
    while (stop < line && text[stop] != ' ' && text[stop] != '\t' && text[stop] != '\0')
        stop++;
    if (stop - at < INTERPRETER_MAX)
        memcpy(look->interpreter, text + at, stop - at);
}

void program_look_at_bytes(struct program_look *look, struct slice head, struct slice ours)
{
    const char *text = head.data;
    look->empty = head.len == 0;
    memset(look->interpreter, 0, sizeof(look->interpreter));
    look->carriage_return = false;
    if (head.len > 2 && text[0] == '#' && text[1] == '!')
        read_first_line(look, text, head.len);
    elf_check(head, ours, &look->elf);
}
