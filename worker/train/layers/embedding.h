/* embedding.h -- a row of numbers for each token plus one for each place in the sequence. */
#ifndef TRAIN_LAYERS_EMBEDDING_H
#define TRAIN_LAYERS_EMBEDDING_H

#include "train/layers/real.h"

/* y: rows x length x n; `token` rows x length, each below the rows of `tokens`; `places` has at least `length` rows. */
void embedding_forward(real *y, const int32_t *token, const real *tokens, const real *places, size_t rows,
                       size_t length, size_t n);

/* From dy, add to the gradient of the tokens' numbers (which a tied head has a part in, too), and overwrite that of the
 * places', all `max_length` rows. */
void embedding_backward(real *dtokens, real *dplaces, const real *dy, const int32_t *token, size_t rows,
                        size_t length, size_t max_length, size_t n);

#endif
