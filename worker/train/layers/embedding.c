/* embedding.c -- see embedding.h. Added in the order of the batch: the same token twice is no race here. */
#include "train/layers/embedding.h"

void embedding_forward(real *y, const int32_t *token, const real *tokens, const real *places, size_t rows,
                       size_t length, size_t n)
{
    for (size_t at = 0; at < rows * length; at++, y += n) {
        const real *of_token = tokens + (size_t)token[at] * n, *of_place = places + at % length * n;
        for (size_t i = 0; i < n; i++)
            y[i] = of_token[i] + of_place[i];
    }
}

void embedding_backward(real *dtokens, real *dplaces, const real *dy, const int32_t *token, size_t rows,
                        size_t length, size_t max_length, size_t n)
{
    memset(dplaces, 0, max_length * n * sizeof(real));
    for (size_t at = 0; at < rows * length; at++, dy += n) {
        real *restrict of_token = dtokens + (size_t)token[at] * n, *restrict of_place =
                                                                       dplaces + at % length * n;
        for (size_t i = 0; i < n; i++) {
            of_token[i] += dy[i];
            of_place[i] += dy[i];
        }
    }
}
