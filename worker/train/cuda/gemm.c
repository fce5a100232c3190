/* gemm.c -- see device.h: matrix products with cuBLASLt. make_plan chooses the algorithm once for each kind of product,
 * because every step must compute the same bits. */
#include "train/cuda/device.h"
#include "train/train_options.h"

#include <string.h>

enum { WORKSPACE = 32 << 20, ALIGNMENT = 16 };

static bool check(struct cuda *c, lt_status status, const char *doing, const struct gemm *g)
{
    static const struct gemm none;
    struct ddp_err err = { 0 };
    const struct gemm *of = g != NULL ? g : &none;
    if (status == LT_SUCCESS)
        return true;
    ddp_fail(&err, DDP_ERR_CUDA, "cuBLASLt: %s: status %u (matrix product of %llu x %llu x %llu)", doing,
             (unsigned)status, (unsigned long long)of->m, (unsigned long long)of->n,
             (unsigned long long)of->k);
    cuda_failed(c, err.code, &err);
    return false;
}

bool cuda_gemm_open(struct cuda *c)
{
    static const lt_request_attribute alignments[] = { LT_WISH_ALIGNMENT_A, LT_WISH_ALIGNMENT_B,
                                                       LT_WISH_ALIGNMENT_C, LT_WISH_ALIGNMENT_D };
    const uint64_t workspace = WORKSPACE;
    const uint32_t alignment = ALIGNMENT;
    struct room room = { NULL, 0 };
    lt_status status = c->lt.create(&c->handle);
    if (status == LT_SUCCESS)
        status = c->lt.request_make(&c->request);
    if (status == LT_SUCCESS)
        status = c->lt.request_set(c->request, LT_WISH_WORKSPACE, &workspace, sizeof(workspace));
    for (size_t i = 0; i < sizeof(alignments) / sizeof(alignments[0]) && status == LT_SUCCESS; i++)
        status = c->lt.request_set(c->request, alignments[i], &alignment, sizeof(alignment));
    c->workspace = cuda_room(c, &room, WORKSPACE);
    return check(c, status, "cannot open the library", NULL) && c->workspace != NULL;
}

static void plan_free(struct cuda *c, struct plan *p)
{
    lt_layout const layouts[] = { p->a, p->b, p->d };
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        if (layouts[i] != NULL)
            c->lt.layout_free(layouts[i]);
    }
    if (p->desc != NULL)
        c->lt.desc_free(p->desc);
    *p = (struct plan){ .desc = NULL };
}

void cuda_gemm_close(struct cuda *c)
{
    for (int i = 0; i < c->plans; i++)
        plan_free(c, &c->plan[i]);
    if (c->request != NULL)
        c->lt.request_free(c->request);
    if (c->handle != NULL)
        c->lt.destroy(c->handle);
}

static lt_type type_of(const struct cuda *c, bool is_float)
{
    if (is_float || c->precision == PRECISION_FP32)
        return LT_R_32F;
    return c->precision == PRECISION_BF16 ? LT_R_16BF : LT_R_16F;
}

/* Describe a product. Sums are float, also for 16-bit values. Float values do not use TF32. */
static lt_status describe(struct cuda *c, struct plan *p)
{
    const struct gemm *g = &p->gemm;
    const int32_t of_a = g->transpose_a ? LT_OP_T : LT_OP_N, of_b = g->transpose_b ? LT_OP_T : LT_OP_N;
    const uint32_t epilogue = g->bias ? LT_EPILOGUE_BIAS : LT_EPILOGUE_NONE;
    lt_status status = c->lt.desc_make(&p->desc, LT_COMPUTE_32F, LT_R_32F);
    if (status == LT_SUCCESS)
        status = c->lt.desc_set(p->desc, LT_DESC_TRANSA, &of_a, sizeof(of_a));
    if (status == LT_SUCCESS)
        status = c->lt.desc_set(p->desc, LT_DESC_TRANSB, &of_b, sizeof(of_b));
    return status == LT_SUCCESS ? c->lt.desc_set(p->desc, LT_DESC_EPILOGUE, &epilogue, sizeof(epilogue))
                                : status;
}

/* Describe a matrix that has rows x columns before transposition. */
static lt_status lay_out_one(struct cuda *c, const struct gemm *g, lt_layout *out, lt_type type,
                             bool transposed, uint64_t rows, uint64_t columns, int64_t stride, int64_t apart)
{
    const int32_t batch = (int32_t)g->batch;
    lt_status status =
        c->lt.layout_make(out, type, transposed ? columns : rows, transposed ? rows : columns, stride);
    if (status == LT_SUCCESS && batch > 1)
        status = c->lt.layout_set(*out, LT_LAYOUT_BATCH, &batch, sizeof(batch));
    return status == LT_SUCCESS && batch > 1 ? c->lt.layout_set(*out, LT_LAYOUT_APART, &apart, sizeof(apart))
                                             : status;
}

static lt_status lay_out(struct cuda *c, struct plan *p)
{
    const struct gemm *g = &p->gemm;
    const lt_type values = type_of(c, false), results = type_of(c, g->to_float);
    lt_status status = lay_out_one(c, g, &p->a, values, g->transpose_a, g->m, g->k, g->lda, g->apart_a);
    if (status == LT_SUCCESS)
        status = lay_out_one(c, g, &p->b, values, g->transpose_b, g->k, g->n, g->ldb, g->apart_b);
    return status == LT_SUCCESS ? lay_out_one(c, g, &p->d, results, false, g->m, g->n, g->ldd, g->apart_d)
                                : status;
}

/* Make a plan. The algorithm depends on whether there is a bias, but not on the address of the bias. */
static bool make_plan(struct cuda *c, const struct gemm *g, const void *bias, struct plan *p)
{
    lt_choice choice = { .state = LT_NOT_SUPPORTED };
    int found = 0;
    *p = (struct plan){ .gemm = *g };
    lt_status status = describe(c, p);
    if (status == LT_SUCCESS && g->bias)
        status = c->lt.desc_set(p->desc, LT_DESC_BIAS, &bias, sizeof(bias));
    if (status == LT_SUCCESS)
        status = lay_out(c, p);
    if (status == LT_SUCCESS)
        status = c->lt.choose(c->handle, p->desc, p->a, p->b, p->d, p->d, c->request, 1, &choice, &found);
    if (status == LT_SUCCESS)
        status = found > 0 ? choice.state : LT_NOT_SUPPORTED;
    if (!check(c, status, "cannot choose an algorithm", g)) {
        plan_free(c, p);
        return false;
    }
    p->algorithm = choice.algo;
    return true;
}

static bool same(const struct gemm *x, const struct gemm *y)
{
    return x->m == y->m && x->n == y->n && x->k == y->k && x->lda == y->lda && x->ldb == y->ldb &&
           x->ldd == y->ldd && x->batch == y->batch && x->apart_a == y->apart_a && x->apart_b == y->apart_b &&
           x->apart_d == y->apart_d && x->transpose_a == y->transpose_a && x->transpose_b == y->transpose_b &&
           x->to_float == y->to_float && x->bias == y->bias;
}

/* Return the plan for a kind of product. A model has about a dozen kinds, but smaller batches add more kinds. If the
 * table is full, empty the table and make all plans again. */
static struct plan *plan_for(struct cuda *c, const struct gemm *g, const void *bias)
{
    for (int i = 0; i < c->plans; i++) {
        if (same(&c->plan[i].gemm, g))
            return &c->plan[i];
    }
    for (; c->plans == PLANS; c->plans = 0) {
        for (int i = 0; i < PLANS; i++)
            plan_free(c, &c->plan[i]);
    }
    if (!make_plan(c, g, bias, &c->plan[c->plans]))
        return NULL;
    return &c->plan[c->plans++];
}

void cuda_gemm(struct cuda *c, const struct gemm *g, const void *a, const void *b, const void *before,
               const void *bias, void *d)
{
    const float one = 1, beta = before != NULL;
    const bool is_empty = g->m == 0 || g->n == 0;
    struct plan *p = c->failed.code == DDP_OK && !is_empty ? plan_for(c, g, bias) : NULL;
    if (p == NULL)
        return;
    lt_status status = g->bias ? c->lt.desc_set(p->desc, LT_DESC_BIAS, &bias, sizeof(bias)) : LT_SUCCESS;
    if (status == LT_SUCCESS)
        status =
            c->lt.multiply(c->handle, p->desc, &one, a, p->a, b, p->b, &beta, before != NULL ? before : d,
                           p->d, d, p->d, &p->algorithm, c->workspace, WORKSPACE, c->stream);
    check(c, status, "multiplying", g);
}
