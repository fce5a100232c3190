/* batch_norm.cu -- worker/reducer/batchnorm.c on a GPU, for rows x channels x spatial values. A block sums one
 * channel over a strip of rows: first the mean, then the squared distances, because one pass would lose most
 * digits. A second kernel joins the strips in order, as doubles. */

/* The position of a thread in a strip of a channel. The thread visits the elements threadIdx.x, threadIdx.x +
 * blockDim.x, and so on. */
struct walk {
    size_t row;
    /* `at` is the position in the row; the thread's next element is `rows_more` rows and `more` elements later */
    int at, rows_more, more;
};

__device__ inline struct walk walk_of(int spatial)
{
    struct walk w;
    w.row = threadIdx.x / (unsigned)spatial;
    w.at = (int)(threadIdx.x % (unsigned)spatial);
    w.rows_more = (int)(blockDim.x / (unsigned)spatial);
    w.more = (int)(blockDim.x % (unsigned)spatial);
    return w;
}

__device__ inline void walk_on(struct walk *w, int spatial)
{
    w->row += (size_t)w->rows_more;
    w->at += w->more;
    if (w->at >= spatial) {
        w->at -= spatial;
        w->row++;
    }
}

/* The values that one block handles: channel blockIdx.x in a strip of rows. `first` is the index of the first value.
 * `apart` is the distance between the beginnings of two rows, in elements. */
struct strip {
    size_t rows, first, apart;
};

__device__ inline struct strip strip_of(size_t rows, size_t strip, int channels, int spatial)
{
    struct strip s;
    const size_t begin = blockIdx.y * strip;
    s.rows = rows - begin < strip ? rows - begin : strip;
    s.apart = (size_t)channels * (size_t)spatial;
    s.first = begin * s.apart + blockIdx.x * (size_t)spatial;
    return s;
}

KERNEL(norm_measure, norm)
{
    const struct strip s = strip_of(a.rows, a.strip, a.channels, a.spatial);
    const value *x = (const value *)a.x + s.first;
    const double count = (double)s.rows * (double)a.spatial;
    double *record = a.part + blockIdx.y * (2 * (size_t)a.channels + 1);
    float sum = 0, squares = 0;
    for (struct walk w = walk_of(a.spatial); w.row < s.rows; walk_on(&w, a.spatial))
        sum += get(x[w.row * s.apart + (size_t)w.at]);
    const double mean = block_sum((double)sum) / count;
    for (struct walk w = walk_of(a.spatial); w.row < s.rows; walk_on(&w, a.spatial)) {
        const float off = get(x[w.row * s.apart + (size_t)w.at]) - (float)mean;
        squares += off * off;
    }
    /* The sum has squared distances from (float)mean, not from `mean`. Correct the sum for this difference. */
    const double beside = mean - (double)(float)mean;
    const double all = block_sum((double)squares) - count * beside * beside;
    if (threadIdx.x == 0) {
        record[blockIdx.x] = mean;
        record[(size_t)a.channels + blockIdx.x] = all > 0 ? all : 0;
    }
    if (threadIdx.x == 0 && blockIdx.x == 0)
        record[2 * (size_t)a.channels] = count;
}

/* Return the new running value. As in torch, `momentum` is the weight of the value `now`. */
__device__ inline float moved(float running, double now, double momentum)
{
    return (float)((1 - momentum) * (double)running + momentum * now);
}

__device__ inline void learn(const struct norm_args *a, size_t c, double mean, double squares, double count)
{
    const size_t channels = (size_t)a->channels;
    a->saved[c] = count > 0 ? mean : 0;
    a->saved[channels + c] = count > 0 ? 1 / sqrt(squares / count + a->eps) : 0;
    if (c == 0)
        a->saved[2 * channels] = count;
    if (a->running_mean != NULL && count > 0) {
        a->running_mean[c] = moved(a->running_mean[c], mean, a->momentum);
        a->running_var[c] = moved(a->running_var[c], squares / (count - 1), a->momentum);
    }
}

/* Join the records of all strips or ranks. A record with a count of 0 changes nothing. */
KERNEL(norm_join, norm)
{
    const size_t c = thread_number(), channels = (size_t)a.channels, words = 2 * channels + 1;
    double count = 0, mean = 0, squares = 0;
    if (c >= channels)
        return;
    for (size_t i = 0; i < a.parts; i++) {
        count += a.part[i * words + 2 * channels];
        mean += a.part[i * words + 2 * channels] * a.part[i * words + c];
    }
    mean = count > 0 ? mean / count : 0;
    for (size_t i = 0; i < a.parts; i++) {
        const double apart = a.part[i * words + c] - mean;
        squares += a.part[i * words + channels + c] + a.part[i * words + 2 * channels] * apart * apart;
    }
    if (a.all != NULL) {
        a.all[c] = mean;
        a.all[channels + c] = squares;
        if (c == 0)
            a.all[2 * channels] = count;
    }
    if (a.saved != NULL)
        learn(&a, c, mean, squares, count);
}

/* --- single values: each thread processes a pack of adjacent values, which may belong to two channels ----- */

struct in_channel {
    int channel, at;
};

__device__ inline struct in_channel channel_of(size_t i, int channels, int spatial)
{
    struct in_channel p;
    p.channel = (int)(i / (size_t)spatial % (size_t)channels);
    p.at = (int)(i % (size_t)spatial);
    return p;
}

/* Move to the next value. Return true if that value belongs to another channel. */
__device__ inline bool channel_ends(struct in_channel *p, int channels, int spatial)
{
    if (++p->at < spatial)
        return false;
    p->at = 0;
    p->channel = p->channel + 1 < channels ? p->channel + 1 : 0;
    return true;
}

struct scaling {
    float mean, factor, shift;
};

__device__ inline struct scaling scaling_of(const struct norm_args *a, int c)
{
    struct scaling s;
    const float weight = get(((const value *)a->weight)[c]);
    s.mean = a->saved != NULL ? (float)a->saved[c] : a->running_mean[c];
    s.factor = weight * (a->saved != NULL ? (float)a->saved[a->channels + c]
                                          : 1 / sqrtf(a->running_var[c] + (float)a->eps));
    s.shift = get(((const value *)a->bias)[c]);
    return s;
}

KERNEL(norm_apply, norm)
{
    const size_t at = thread_number() * PACK, n = a.rows * (size_t)a.channels * (size_t)a.spatial;
    if (at >= n)
        return;
    struct in_channel p = channel_of(at, a.channels, a.spatial);
    struct scaling s = scaling_of(&a, p.channel);
    struct pack x = pack_within((const value *)a.x, at, n);
    for (int k = 0; k < PACK; k++) {
        x.each[k] = put((get(x.each[k]) - s.mean) * s.factor + s.shift);
        if (channel_ends(&p, a.channels, a.spatial))
            s = scaling_of(&a, p.channel);
    }
    pack_to_within((value *)a.y, at, n, x);
}

/* --- backward ----------------------------------------------------------------------------------------- */

KERNEL(norm_sums, norm)
{
    const struct strip s = strip_of(a.rows, a.strip, a.channels, a.spatial);
    const value *x = (const value *)a.x + s.first, *dy = (const value *)a.dy + s.first;
    const float mean = (float)a.saved[blockIdx.x];
    double *part = a.part + blockIdx.y * 2 * (size_t)a.channels;
    float sum = 0, products = 0;
    for (struct walk w = walk_of(a.spatial); w.row < s.rows; walk_on(&w, a.spatial)) {
        const size_t i = w.row * s.apart + (size_t)w.at;
        sum += get(dy[i]);
        products += get(dy[i]) * (get(x[i]) - mean);
    }
    const double of_dy = block_sum((double)sum), of_products = block_sum((double)products);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = of_dy;
        part[(size_t)a.channels + blockIdx.x] = of_products;
    }
}

KERNEL(norm_join_sums, norm)
{
    const size_t c = thread_number(), channels = (size_t)a.channels;
    double sum = 0, products = 0;
    if (c >= channels)
        return;
    for (size_t i = 0; i < a.parts; i++) {
        sum += a.part[i * 2 * channels + c];
        products += a.part[i * 2 * channels + channels + c];
    }
    a.all[c] = sum;
    a.all[channels + c] = products;
    a.dbias[c] = (float)sum;
    a.dweight[c] = (float)(products * a.saved[channels + c]);
}

/* Terms of the gradient: dx = (dy - mean_dy - (x - mean) * slope) * factor. */
struct slope {
    float mean, mean_dy, slope, factor;
};

__device__ inline struct slope slope_of(const struct norm_args *a, int c)
{
    struct slope s;
    const float count = (float)a->saved[2 * a->channels], scale = (float)a->saved[a->channels + c];
    s.mean = (float)a->saved[c];
    s.mean_dy = (float)a->all[c] / count;
    s.slope = (float)a->all[a->channels + c] / count * scale * scale;
    s.factor = scale * get(((const value *)a->weight)[c]);
    return s;
}

KERNEL(norm_gradient, norm)
{
    const size_t at = thread_number() * PACK, n = a.rows * (size_t)a.channels * (size_t)a.spatial;
    if (at >= n)
        return;
    struct in_channel p = channel_of(at, a.channels, a.spatial);
    struct slope s = slope_of(&a, p.channel);
    struct pack dy = pack_within((const value *)a.dy, at, n);
    const struct pack x = pack_within((const value *)a.x, at, n);
    for (int k = 0; k < PACK; k++) {
        dy.each[k] = put((get(dy.each[k]) - s.mean_dy - (get(x.each[k]) - s.mean) * s.slope) * s.factor);
        if (channel_ends(&p, a.channels, a.spatial))
            s = slope_of(&a, p.channel);
    }
    pack_to_within((value *)a.y, at, n, dy);
}
