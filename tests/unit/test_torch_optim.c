/* SGD, Adam, AdamW and clipping against torch 1.13 (tests/data/torch_optim.json, torch_clip.json).
 *
 * Tolerance: 1e-6 of the value, or 1e-7 beside values near 0, after each of ten steps. torch's vector code
 * fuses some products and sums, which moves a last bit here and there; a wrong formula is off by 1e-3 and
 * more. */
#include "ddp/optim.h"
#include "numbers.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { SIZE = 13, STEPS = 10, HALVED_AT = 5 };

static void expect_near(const float *ours, const float *torchs, size_t n, const char *what, int step)
{
    for (size_t i = 0; i < n; i++) {
        float allowed = 1e-6f * fabsf(torchs[i]) + 1e-7f;
        cr_expect(fabsf(ours[i] - torchs[i]) <= allowed, "%s, step %d, element %zu: %.9g, torch has %.9g",
                  what, step, i, ours[i], torchs[i]);
    }
}

static ddp_rule rule_of(const char *name)
{
    ddp_rule rule = DDP_SGD;
    while (strcmp(ddp_rule_name(rule), name) != 0)
        rule++;
    return rule;
}

static ddp_optim optim_of(const cJSON *row)
{
    const ddp_optim defaults[] = { DDP_SGD_INIT, DDP_ADAM_INIT, DDP_ADAMW_INIT };
    ddp_optim o = defaults[rule_of(cJSON_GetObjectItem(row, "rule")->valuestring)];
    o.lr = numbers_get(row, "lr", o.lr);
    o.weight_decay = numbers_get(row, "weight_decay", o.weight_decay);
    o.momentum = numbers_get(row, "momentum", o.momentum);
    o.dampening = numbers_get(row, "dampening", o.dampening);
    o.nesterov = numbers_get(row, "nesterov", o.nesterov) != 0;
    o.beta1 = numbers_get(row, "beta1", o.beta1);
    o.beta2 = numbers_get(row, "beta2", o.beta2);
    o.eps = numbers_get(row, "eps", o.eps);
    return o;
}

static void follow(const cJSON *row, const cJSON *start, const cJSON *grads)
{
    ddp_optim o = optim_of(row);
    float param[SIZE], s0[SIZE] = { 0 }, s1[SIZE] = { 0 }, grad[SIZE], torchs[SIZE];
    char *what = cJSON_GetObjectItem(row, "rule")->valuestring;
    cr_assert_eq(ddp_optim_check(&o, NULL), DDP_OK);
    cr_assert_eq(numbers_floats(start, param, SIZE), SIZE);
    for (int step = 0; step < STEPS; step++) {
        if (step == HALVED_AT)
            o.lr /= 2;
        numbers_floats(cJSON_GetArrayItem(grads, step), grad, SIZE);
        numbers_floats(cJSON_GetArrayItem(cJSON_GetObjectItem(row, "params"), step), torchs, SIZE);
        ddp_optim_begin(&o);
        ddp_optim_update(&o, param, grad, s0, s1, SIZE);
        expect_near(param, torchs, SIZE, what, step);
    }
}

Test(torch_optim, ten_steps_of_eleven_optimisers_are_torchs)
{
    cJSON *json = numbers_read("optim");
    const cJSON *row;
    int cases = 0;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(json, "cases"))
    {
        follow(row, cJSON_GetObjectItem(json, "start"), cJSON_GetObjectItem(json, "grads"));
        cases++;
    }
    cr_expect_eq(cases, 11);
    cJSON_Delete(json);
}

Test(torch_optim, clipping_is_torchs)
{
    enum { TENSORS = 4 };
    cJSON *json = numbers_read("clip");
    const cJSON *row;
    float tensor[TENSORS][600], torchs[16], ours[16];
    float *grads[TENSORS];
    size_t counts[TENSORS];
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(json, "cases"))
    {
        for (int i = 0; i < TENSORS; i++) {
            grads[i] = tensor[i];
            counts[i] =
                numbers_floats(cJSON_GetArrayItem(cJSON_GetObjectItem(json, "grads"), i), tensor[i], 600);
        }
        double norm = ddp_clip_grad_norm(grads, counts, TENSORS, numbers_get(row, "max_norm", 0));
        cr_expect_float_eq(norm, numbers_get(row, "norm", 0), 1e-6 * norm);
        size_t n = 0;
        for (int i = 0; i < TENSORS; i++)
            for (size_t k = 0; k < 4 && k < counts[i]; k++)
                ours[n++] = tensor[i][k];
        cr_assert_eq(numbers_floats(cJSON_GetObjectItem(row, "first_four_of_each"), torchs, 16), n);
        expect_near(ours, torchs, n, "clipped", 0);
    }
    cJSON_Delete(json);
}
