/* embedding.cu -- the embedding (layers/linear.c). Backward adds the gradients of a token's positions in the order
 * in which the host has sorted the positions. Concurrent additions would give different bits in every run. */

KERNEL(embedding_forward, embedding_forward)
{
    const size_t at = thread_number() * PACK, position = at / a.n, i = at % a.n;
    if (position >= a.count)
        return;
    struct pack y = pack_at((const value *)a.tokens + (size_t)a.token[position] * a.n + i);
    const struct pack place = pack_at((const value *)a.places + position % a.length * a.n + i);
    for (int k = 0; k < PACK; k++)
        y.each[k] = put(get(y.each[k]) + get(place.each[k]));
    pack_to((value *)a.y + at, y);
}

KERNEL(embedding_backward_tokens, embedding_backward_tokens)
{
    const int first = a.first[blockIdx.x], last = a.first[blockIdx.x + 1];
    const value *dy = (const value *)a.dy;
    float *to = a.dtokens + (size_t)a.token[a.order[first]] * a.n;
    for (size_t i = threadIdx.x; i < a.n; i += blockDim.x) {
        float sum = to[i];
        for (int k = first; k < last; k++)
            sum += get(dy[(size_t)a.order[k] * a.n + i]);
        to[i] = sum;
    }
}

KERNEL(embedding_backward_places, embedding_backward_places)
{
    const size_t at = thread_number(), place = at / a.n, i = at % a.n;
    const value *dy = (const value *)a.dy;
    float sum = 0;
    if (place >= a.max_length)
        return;
    for (size_t row = 0; row < a.rows && place < a.length; row++)
        sum += get(dy[(row * a.length + place) * a.n + i]);
    a.dplaces[at] = sum;
}
