/* sums.cu -- sums over many rows, in two steps with a fixed order: strips of rows, then their sums. Many blocks can add
 * strips at the same time, and the fixed order gives the same bits in every run. */

/* Add the sums that the warps of a block have computed. Each warp has summed every KERNEL_WARPS-th row. Return true in
 * the threads of the first warp, which then use the result. */
__device__ inline bool join_warps(float *sum)
{
    __shared__ float of_warp[KERNEL_WARPS][KERNEL_COLUMNS];
    __syncthreads();
    of_warp[warp_number()][lane_number()] = *sum;
    __syncthreads();
    *sum = 0;
    for (int i = 0; i < KERNEL_WARPS; i++)
        *sum += of_warp[i][lane_number()];
    return warp_number() == 0;
}

__device__ inline size_t last_row(size_t strip, size_t rows)
{
    const size_t last = ((size_t)blockIdx.y + 1) * strip;
    return last < rows ? last : rows;
}

KERNEL(column_sums, column_sums)
{
    const size_t column = (size_t)blockIdx.x * KERNEL_COLUMNS + (size_t)lane_number(), last = last_row(a.strip, a.rows);
    const value *dy = (const value *)a.dy;
    float sum = 0;
    for (size_t row = blockIdx.y * a.strip + (size_t)warp_number(); row < last && column < a.n; row += KERNEL_WARPS)
        sum += get(dy[row * a.n + column]);
    if (join_warps(&sum) && column < a.n)
        a.part[blockIdx.y * a.n + column] = sum;
}

KERNEL(layer_norm_sums, layer_norm)
{
    const size_t column = (size_t)blockIdx.x * KERNEL_COLUMNS + (size_t)lane_number(), last = last_row(a.strip, a.rows);
    const value *dy = (const value *)a.dy, *x = (const value *)a.x;
    float weight = 0, bias = 0;
    for (size_t row = blockIdx.y * a.strip + (size_t)warp_number(); row < last && column < a.n; row += KERNEL_WARPS) {
        const float d = get(dy[row * a.n + column]);
        weight += d * ((get(x[row * a.n + column]) - a.mean[row]) * a.scale[row]);
        bias += d;
    }
    join_warps(&bias);
    if (join_warps(&weight) && column < a.n) {
        a.part[2 * blockIdx.y * a.n + column] = weight;
        a.part[(2 * blockIdx.y + 1) * a.n + column] = bias;
    }
}

KERNEL(join_sums, join_sums)
{
    const size_t i = thread_number();
    float sum = 0;
    for (size_t k = 0; k < a.parts && i < a.n; k++)
        sum += a.part[k * a.stride + i];
    if (i < a.n)
        a.to[i] = sum;
}

/* Let each thread sum one column. All bounds are constants, so that the compiler keeps x in registers. */
KERNEL(sum_rows, sum_rows)
{
    const size_t i = thread_number();
    float x[KERNEL_ROWS];
    if (i >= a.n)
        return;
    for (int k = 0; k < KERNEL_ROWS; k++)
        x[k] = k < a.many ? a.rows[k * a.stride + i] : 0;
    for (int half = 1; half < KERNEL_ROWS; half *= 2) {
        for (int k = 0; k + half < KERNEL_ROWS; k += 2 * half) {
            if (k + half < a.many)
                x[k] += x[k + half];
        }
    }
    a.to[i] = x[0];
}

KERNEL(squares, squares)
{
    const size_t first = (size_t)blockIdx.x * KERNEL_SQUARES, left = a.n - first;
    const size_t many = left < KERNEL_SQUARES ? left : KERNEL_SQUARES;
    double sum = 0;
    for (size_t i = threadIdx.x; i < many; i += blockDim.x)
        sum += (double)a.x[first + i] * (double)a.x[first + i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        a.part[blockIdx.x] = sum;
}

/* Compute the norm and the clip factor, as norm_clip_factor() in worker/reducer/optim.c does. A NaN stays a NaN. */
KERNEL(join_squares, join_squares)
{
    double sum = 0;
    for (size_t i = threadIdx.x; i < a.parts; i += blockDim.x)
        sum += a.part[i];
    sum = block_sum(sum);
    if (threadIdx.x != 0)
        return;
    const float norm = (float)sqrt(sum) * a.unscale, factor = 1 / (norm + 1e-6f) * a.most;
    a.norm[0] = norm;
    a.norm[1] = (factor > 1 ? 1 : factor) * a.unscale;
}
