/* fake_cublaslt.c -- the cuBLASLt of fake_gpu.h. The matrices are column-major. Each element of a product is a sum over
 * an index k. The fake adds in float, from the lowest k to the highest. */
#include "fake_gpu.h"

#include "cuda/compute_abi.h"
#include "core/half.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct lt_layout_ {
    lt_type type;
    uint64_t rows, columns;
    int64_t stride;
    int32_t batch;
    int64_t apart; /* distance from one matrix of the batch to the next */
};
struct lt_desc_ {
    int32_t transposed[2];
    uint32_t epilogue;
    const void *bias;
};

#define X(member, symbol, result, parameters) EXPORT result symbol parameters;
CUBLASLT_FUNCTION_LIST(X)
#undef X

enum { INVALID = 7, NO_MEMORY = 3 };

static lt_status make(void **out, size_t bytes)
{
    *out = calloc(1, bytes);
    return *out != NULL ? LT_SUCCESS : NO_MEMORY;
}

static lt_status release(void *what)
{
    free(what);
    return LT_SUCCESS;
}

lt_status cublasLtCreate(lt_handle *out)
{
    return make((void **)out, 1);
}
lt_status cublasLtDestroy(lt_handle handle)
{
    return release(handle);
}
lt_status cublasLtMatmulDescDestroy(lt_desc desc)
{
    return release(desc);
}
lt_status cublasLtMatrixLayoutDestroy(lt_layout layout)
{
    return release(layout);
}
lt_status cublasLtMatmulPreferenceCreate(lt_request *out)
{
    return make((void **)out, 1);
}
lt_status cublasLtMatmulPreferenceDestroy(lt_request request)
{
    return release(request);
}

lt_status cublasLtMatmulPreferenceSetAttribute(lt_request request, lt_request_attribute attribute,
                                               const void *value, size_t bytes)
{
    (void)request, (void)value;
    return bytes == (attribute == LT_WISH_WORKSPACE ? 8 : 4) ? LT_SUCCESS : INVALID;
}

lt_status cublasLtMatmulDescCreate(lt_desc *out, lt_compute compute, lt_type scale)
{
    return compute == LT_COMPUTE_32F && scale == LT_R_32F ? make((void **)out, sizeof(**out))
                                                          : LT_NOT_SUPPORTED;
}

lt_status cublasLtMatmulDescSetAttribute(lt_desc desc, lt_desc_attribute attribute, const void *value,
                                         size_t bytes)
{
    void *const to[] = { [LT_DESC_TRANSA] = &desc->transposed[0],
                         [LT_DESC_TRANSB] = &desc->transposed[1],
                         [LT_DESC_EPILOGUE] = &desc->epilogue,
                         [LT_DESC_BIAS] = &desc->bias };
    if (attribute > LT_DESC_BIAS || to[attribute] == NULL || bytes != (attribute == LT_DESC_BIAS ? 8 : 4))
        return INVALID;
    memcpy(to[attribute], value, bytes);
    return LT_SUCCESS;
}

lt_status cublasLtMatrixLayoutCreate(lt_layout *out, lt_type type, uint64_t rows, uint64_t columns,
                                     int64_t stride)
{
    if (stride < (int64_t)rows)
        return INVALID;
    lt_status status = make((void **)out, sizeof(**out));
    if (status == LT_SUCCESS)
        **out = (struct lt_layout_){ type, rows, columns, stride, 1, 0 };
    return status;
}

lt_status cublasLtMatrixLayoutSetAttribute(lt_layout layout, lt_layout_attribute attribute, const void *value,
                                           size_t bytes)
{
    void *const to[] = { [LT_LAYOUT_BATCH] = &layout->batch, [LT_LAYOUT_APART] = &layout->apart };
    if (attribute > LT_LAYOUT_APART || to[attribute] == NULL ||
        bytes != (attribute == LT_LAYOUT_BATCH ? 4 : 8))
        return INVALID;
    memcpy(to[attribute], value, bytes);
    return LT_SUCCESS;
}

static bool fits(const struct lt_layout_ *m, bool transposed, uint64_t rows, uint64_t columns)
{
    return transposed ? m->rows == columns && m->columns == rows : m->rows == rows && m->columns == columns;
}

lt_status cublasLtMatmulAlgoGetHeuristic(lt_handle handle, lt_desc desc, lt_layout a, lt_layout b,
                                         lt_layout c, lt_layout d, lt_request request, int wanted,
                                         lt_choice out[], int *found)
{
    const uint64_t inner = desc->transposed[0] ? a->rows : a->columns;
    (void)handle, (void)request;
    if (wanted < 1 || !fits(a, desc->transposed[0], d->rows, inner) ||
        !fits(b, desc->transposed[1], inner, d->columns) || !fits(c, false, d->rows, d->columns) ||
        c->type != d->type || a->type != b->type || a->batch != d->batch || b->batch != d->batch)
        return INVALID;
    memset(out, 0, sizeof(*out));
    *found = 1;
    return LT_SUCCESS;
}

struct product {
    struct lt_desc_ desc;
    struct lt_layout_ layout[4];
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
};

static float read_at(const void *from, lt_type type, size_t i)
{
    if (type == LT_R_32F)
        return ((const float *)from)[i];
    const uint16_t bits = ((const uint16_t *)from)[i];
    return type == LT_R_16F ? f16_to_f32(bits) : bf16_to_f32(bits);
}

static void write_at(void *to, lt_type type, size_t i, float x)
{
    if (type == LT_R_32F)
        ((float *)to)[i] = x;
    else
        ((uint16_t *)to)[i] = type == LT_R_16F ? f32_to_f16(x) : f32_to_bf16(x);
}

/* Return a copy of the matrix `from`, as floats and row by row. Row k of the copy is row k of `from`, or column k if
 * `by_k` is true. */
static float *by_rows(const void *from, const struct lt_layout_ *l, bool by_k)
{
    float *to = malloc(l->rows * l->columns * sizeof(float) + 1);
    for (size_t column = 0; column < l->columns; column++)
        for (size_t row = 0; row < l->rows; row++)
            to[by_k ? column * l->rows + row : row * l->columns + column] =
                read_at(from, l->type, column * (size_t)l->stride + row);
    return to;
}

/* Compute column `n` of the result. */
static void column(const struct product *p, const float *a, const float *b, float *sum, size_t n)
{
    const struct lt_layout_ *c = &p->layout[2], *d = &p->layout[3];
    const size_t inner = p->desc.transposed[0] ? p->layout[0].rows : p->layout[0].columns;
    memset(sum, 0, d->rows * sizeof(float));
    for (size_t k = 0; k < inner; k++) {
        const float x = b[k * d->columns + n];
        for (size_t m = 0; m < d->rows; m++)
            sum[m] += a[k * d->rows + m] * x;
    }
    for (size_t m = 0; m < d->rows; m++) {
        float x = p->alpha * sum[m];
        if (p->beta != 0)
            x += p->beta * read_at(p->c, c->type, n * (size_t)c->stride + m);
        if (p->desc.epilogue == LT_EPILOGUE_BIAS)
            x += read_at(p->desc.bias, d->type, m);
        write_at(p->d, d->type, n * (size_t)d->stride + m, x);
    }
}

static void multiply_one(const struct product *p)
{
    float *a = by_rows(p->a, &p->layout[0], !p->desc.transposed[0]),
          *b = by_rows(p->b, &p->layout[1], p->desc.transposed[1]);
    float *sum = malloc(p->layout[3].rows * sizeof(float) + 1);
    for (size_t n = 0; n < p->layout[3].columns; n++)
        column(p, a, b, sum, n);
    free(a);
    free(b);
    free(sum);
}

static size_t next_of(const struct lt_layout_ *l)
{
    return (size_t)l->apart * (l->type == LT_R_32F ? 4 : 2);
}

static void multiply(void *user)
{
    struct product *p = user;
    for (int32_t i = 0; i < p->layout[3].batch; i++) {
        multiply_one(p);
        p->a = (const char *)p->a + next_of(&p->layout[0]);
        p->b = (const char *)p->b + next_of(&p->layout[1]);
        p->c = (const char *)p->c + next_of(&p->layout[2]);
        p->d = (char *)p->d + next_of(&p->layout[3]);
    }
    free(p);
}

/* Return true if an address is aligned as gemm.c promises for all operands. */
static bool aligned(const void *memory)
{
    return (uintptr_t)memory % 16 == 0;
}

lt_status cublasLtMatmul(lt_handle handle, lt_desc desc, const void *alpha, const void *a, lt_layout a_layout,
                         const void *b, lt_layout b_layout, const void *beta, const void *c,
                         lt_layout c_layout, void *d, lt_layout d_layout, const lt_algorithm *algorithm,
                         void *workspace, size_t bytes, struct CUstream_st *stream)
{
    (void)handle, (void)algorithm, (void)workspace, (void)bytes;
    if (!aligned(a) || !aligned(b) || !aligned(c) || !aligned(d))
        return INVALID;
    struct product *p = malloc(sizeof(*p));
    if (p == NULL)
        return NO_MEMORY;
    *p = (struct product){ *desc, { *a_layout, *b_layout, *c_layout, *d_layout }, a, b, c, d, 0, 0 };
    memcpy(&p->alpha, alpha, sizeof(p->alpha));
    memcpy(&p->beta, beta, sizeof(p->beta));
    fake_launch(stream, multiply, p);
    return LT_SUCCESS;
}
