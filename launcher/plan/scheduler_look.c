/* scheduler_look.c -- see scheduler_look.h. Half a list of hosts would be a smaller job that looks right: whole or nothing. */
#include "plan/scheduler_look.h"

#include "plan/scheduler.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* NUL-terminated; NULL when it is not all there. A file that has become shorter meanwhile is taken as it
 * is; one that has grown is read to its old end. */
static char *read_whole(int fd, size_t size)
{
    char *text = malloc(size + 1);
    size_t used = 0;
    ssize_t n = 0;
    while (text != NULL && used < size && (n = read(fd, text + used, size - used)) > 0)
        used += (size_t)n;
    if (text == NULL || n < 0) {
        free(text);
        return NULL;
    }
    text[used] = '\0';
    return text;
}

/* O_NONBLOCK and S_ISREG: the path comes from a variable, and opening a FIFO would wait for a writer for
 * ever. */
char *scheduler_look(const char *path)
{
    struct stat st;
    const int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    char *text = NULL;
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= SCHEDULER_FILE_MAX)
        text = read_whole(fd, (size_t)st.st_size);
    close(fd);
    return text;
}
