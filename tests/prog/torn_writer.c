/* torn_writer.c -- a worker that writes its lines in three pieces, to test whether a launcher keeps lines whole.
 *
 *     torn_writer LINES
 *
 * The three pieces of line i of rank r are "<r:iiiiii:", then 150 x, then 150 y and ">\n". A separate write() writes
 * each piece. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int put(const char *bytes, size_t n)
{
    return write(STDOUT_FILENO, bytes, n) == (ssize_t)n;
}

static const char *rank_of_this_worker(void)
{
    const char *rank = getenv("RANK"); /* set by ddprun and torchrun */
    if (rank == NULL)
        rank = getenv("PMI_RANK"); /* Hydra */
    return rank != NULL ? rank : "0";
}

int main(int argc, char *argv[])
{
    int lines = argc > 1 ? atoi(argv[1]) : 2000;
    char head[64], x[150], y[152];
    memset(x, 'x', sizeof(x));
    memset(y, 'y', sizeof(y));
    memcpy(y + 150, ">\n", 2);
    for (int i = 0; i < lines; i++) {
        int n = snprintf(head, sizeof(head), "<%.8s:%06d:", rank_of_this_worker(), i);
        if (!put(head, (size_t)n) || !put(x, sizeof(x)) || !put(y, sizeof(y)))
            return 1;
    }
    return 0;
}
