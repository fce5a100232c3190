/* tree.c -- see tree.h. */
#include "train/tree.h"

/* Walk from the root: each turn to the right leaves a sum in its buffer and goes on in the next one. When the part is
 * done, so are all trees whose last part it is: as many as there were turns to the right without one to the left behind. */
struct tree_part tree_part(int n, int part)
{
    struct tree_part p = { 0, 0 };
    while (n > 1) {
        int left = n / 2;
        if (part < left) {
            n = left;
            p.merges = 0;
        } else {
            part -= left;
            n -= left;
            p.buffer++;
            p.merges++;
        }
    }
    return p;
}

/* The right half is never the smaller one, so the last part is the deepest. */
int tree_buffers(int n)
{
    return tree_part(n, n - 1).buffer + 1;
}
