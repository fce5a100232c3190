/* tree.h -- in which order parts are added up as a binary tree, with little memory. Pure arithmetic.
 *
 * A tree of n parts is (left half) + (right half), the left one being n / 2 parts, down to single parts. For n = 4:
 * ((p0+p1)+(p2+p3)). Parts come one after the other. Each is made in a buffer that the tree names, and then added to the
 * buffer below as often as the tree says; the sum of all ends up in buffer 0:
 *
 *     part 0   in buffer 0
 *     part 1   in buffer 1      1 -> 0                 p0+p1
 *     part 2   in buffer 1                             p2
 *     part 3   in buffer 2      2 -> 1, 1 -> 0         p2+p3, (p0+p1)+(p2+p3)
 *
 * When n is a power of two times k, the upper part of the tree is that of a power of two, whatever k is: ranks that own equal
 * shares of the parts can go on with the tree where each of them has ended. */
#ifndef TRAIN_TREE_H
#define TRAIN_TREE_H

struct tree_part {
    int buffer; /* where it is made */
    int merges; /* how often then: add the buffer to the one below, go down */
};

/* Part `part` (< n) of n. */
struct tree_part tree_part(int n, int part);

/* How many buffers a tree of n parts needs, buffer 0 included. */
int tree_buffers(int n);

#endif
