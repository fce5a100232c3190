/* model.h -- the interface of models: parameters, a forward pass with the loss, a backward pass. The caller chooses the
 * memory of each gradient, so that the gradients can be in a reducer's buckets. */
#ifndef WORKER_TRAIN_MODEL_H
#define WORKER_TRAIN_MODEL_H

#include "ddp/error.h"
#include "ddp/group.h"
#include "ddp/random.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Random initial values, as in torch. */

/* Fill in n floats, at least 16, as torch.normal_(0, deviation) does. The last bits may differ, because each build
 * of torch computes logarithms and cosines differently. */
void normal_fill(float *to, size_t n, float deviation, ddp_random *random);

/* Fill in n floats with the initial values of nn.Linear and nn.Conv2d: uniform in +-1/sqrt(inputs). */
void uniform_fill(float *to, size_t n, size_t inputs, ddp_random *random);

enum { MODEL_DIMS = 4, MODEL_NAME = 40 };

enum model_input { MODEL_PICTURES, MODEL_TOKENS };
enum model_mode { MODEL_TRAIN, MODEL_TEST };

/* A parameter or a buffer. struct model_tensors owns the array at `value`, and the device owns its weights and
 * masters. */
struct model_tensor {
    char name[MODEL_NAME];
    size_t shape[MODEL_DIMS], dims, count;
    float *value;   /* on the host, in `values` */
    const void *at; /* array that layers read: `value`, or the weights on a device */
    float *master;  /* array that the optimizer updates: `value`, or the masters on a device */
};

/* The parameters or the buffers of a model. Buffers are values that are not trained, such as running means. Each set is
 * one array of float, tensor after tensor. */
struct model_tensors {
    struct model_tensor *each;
    size_t n;
    bool is_short; /* true if memory was short in a call of model_tensors_add */
    float *values; /* owned: the values of all tensors, `count` numbers */
    size_t count;
};

struct compute;

/* The sizes of a model, and resources for its layers. */
struct model_spec {
    struct compute *compute; /* borrowed; NULL on the CPU */
    size_t rows;             /* maximum number of pictures or sequences in a batch */
    size_t train_rows;       /* maximum number of rows in a batch for training; 0 stands for `rows` */
    size_t length;           /* maximum number of tokens in a sequence; 0 stands for the kind's maximum */
    size_t channels, height, width; /* size of a picture */
    size_t classes; /* number of classes; if the samples are tokens, the size of the vocabulary */
    uint64_t seed;  /* seed of the initial parameters */
    ddp_ctx *ctx;   /* for layers that communicate with other ranks; NULL if no layer does */
};

/* A batch; all pointers are borrowed. Targets and tokens must be below the model's `classes`; the model does not
 * check them. */
struct model_batch {
    size_t rows;
    size_t length;         /* number of targets of a row: 1 for a picture, one per token for a sequence */
    const float *picture;  /* rows x channels x height x width */
    const int32_t *token;  /* rows x length */
    const int32_t *target; /* rows x length: the class of a picture, or the next token */
    const float *weight;   /* for each row, the weight of its losses */
    size_t counted;        /* number of rows up to the last row with a weight above 0; set by model_forward */
    bool still;            /* true if running means and variances must stay unchanged */
};

/* Called by model_backward when the gradient of a parameter is complete. Any result except DDP_OK ends the backward
 * pass. */
struct model_ready {
    ddp_status (*call)(void *user, size_t parameter, struct ddp_err *err);
    void *user;
};

/* A model. The usual calls:
 *
 *     model_create(kind, &spec, &m, &err)                kind: a row of models.h; spec: the sizes of the data
 *     each batch:  model_forward(m, &batch, MODEL_TRAIN, &loss, &err)
 *                  model_backward(m, grad, &ready, &err)
 *     tests:       model_forward(m, &batch, MODEL_TEST, &loss, &err), then m->logits
 *     model_free(m) */
struct model {
    const struct model_ops *ops;
    struct model_tensors params, buffers;
    struct compute *compute; /* borrowed; set by the function that creates the model */
    void **memory;           /* owned: all memory that model_alloc has returned */
    size_t memories;
    bool is_short;            /* true if memory was short in a call of a function below */
    struct model_batch batch; /* batch of the last forward pass, in memory that the layers can read */
    size_t pixels;            /* number of pixels of a picture */
    size_t classes;
    double flops;        /* operations for a forward and backward pass of one row; 0 if unknown */
    const float *logits; /* rows x length x classes, valid after MODEL_TEST; NULL on a device */
    size_t correct;      /* after MODEL_TEST on a device: the result of model_correct */
};

struct model_kind; /* see models.h */

/* Create a model, which the caller frees. `spec` is copied. The initial parameters depend only on `kind` and the
 * seed. Return DDP_ERR_ARG if models of this kind cannot use the data. */
ddp_status model_create(const struct model_kind *kind, const struct model_spec *spec, struct model **out,
                        struct ddp_err *err);
void model_free(struct model *m); /* `m` may be NULL */

/* Run a forward pass; collective if layers communicate. Set *loss to the sum of the losses of all targets in rows
 * with a weight above 0. With MODEL_TRAIN on a device, *loss is 0; a later compute_ops.report returns the sum. */
ddp_status model_forward(struct model *m, const struct model_batch *batch, enum model_mode mode, double *loss,
                         struct ddp_err *err);

/* Run a backward pass, after model_forward with MODEL_TRAIN and the same batch. Overwrite all gradients with the
 * gradients of sum(weight x loss). `grad` has a pointer for each parameter. `ready` may be NULL. */
ddp_status model_backward(struct model *m, float *const grad[], const struct model_ready *ready,
                          struct ddp_err *err);

/* Return the number of correct predictions after model_forward with MODEL_TEST. The class with the largest logit is
 * the prediction. Among equal logits the first class wins, as in torch.argmax. */
size_t model_correct(const struct model *m, const struct model_batch *batch);

/* Return the 64-bit FNV-1a hash of all parameters in order. */
uint64_t model_hash(const struct model *m);

/* Copy the model's buffers. model_fetch_buffers copies from the device to the host, and model_send_buffers copies from
 * the host to the device. On the CPU both functions do nothing. */
ddp_status model_fetch_buffers(struct model *m, struct ddp_err *err);
ddp_status model_send_buffers(struct model *m, struct ddp_err *err);

/* Set view[i] to the beginning of tensor i in `flat`, an array of t->count elements. */
void model_views(const struct model_tensors *t, float *flat, float *view[]);

/* --- for models ---------------------------------------------------------------------------------------- */

/* Functions of one kind of model, whose own struct begins with struct model. model_free frees this struct. */
struct model_ops {
    ddp_status (*forward)(struct model *m, const struct model_batch *batch, enum model_mode mode,
                          double *loss, struct ddp_err *err);
    ddp_status (*backward)(struct model *m, const struct model_batch *batch, float *const grad[],
                           const struct model_ready *ready, struct ddp_err *err);
};

struct model_shape {
    size_t size[MODEL_DIMS]; /* unused dimensions are 0 */
};
#define MODEL_SHAPE(...) ((struct model_shape){ { __VA_ARGS__ } })

/* Return zeroed memory, or memory for rows of n values, that the layers can use. model_free frees it. If memory is
 * short, return NULL and set m->is_short, so that the caller may check all calls at the end. */
void *model_alloc(struct model *m, size_t bytes);
void *model_rows(struct model *m, size_t rows, size_t n);

/* Add all tensors with model_tensors_add, then allocate their values with model_tensors_place. model_tensors_place
 * returns false if any of these calls has run out of memory. */
void model_tensors_add(struct model_tensors *t, struct model_shape shape, const char *name, ...)
    __attribute__((format(printf, 3, 4)));
bool model_tensors_place(struct model_tensors *t);

/* Report that the gradients of parameters `last` down to `first` are complete. */
ddp_status model_report_ready(const struct model_ready *ready, size_t first, size_t last,
                              struct ddp_err *err);

#endif
