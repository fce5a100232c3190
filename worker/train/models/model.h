/* model.h -- the trainer's interface to a model: its parameters, a forward pass with the loss, a backward
 * pass.
 *
 *     model_create(kind, &spec, &m, &err)                a row of models.h; the data's sizes are in the spec
 *     each batch:  model_forward(m, &batch, MODEL_TRAIN, &loss, &err)
 *                  model_backward(m, &batch, grad, &ready, &err)
 *     tests:       model_forward(m, &batch, MODEL_TEST, &loss, &err), then m->logits
 *     model_free(m)
 *
 * All parameters lie in one array of float, tensor after tensor, and so do the buffers (what is not trained
 * but belongs to the model, as running means do): saving, hashing and sending a model needs no more than
 * that. Gradients go wherever the caller wants them, a pointer for each parameter, e.g. into a reducer's
 * buckets. */
#ifndef WORKER_TRAIN_MODEL_H
#define WORKER_TRAIN_MODEL_H

#include "ddp/error.h"
#include "ddp/group.h"
#include "ddp/random.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers as torch draws them. */

/* torch.normal_(0, deviation) of n floats, n >= 16, but for the last bits: torch's builds have logarithms and cosines of
 * their own. */
void normal_fill(float *to, size_t n, float deviation, ddp_random *random);

/* As nn.Linear and nn.Conv2d begin: evenly in +-1/sqrt(inputs). */
void uniform_fill(float *to, size_t n, size_t inputs, ddp_random *random);

enum { MODEL_DIMS = 4, MODEL_NAME = 40 };

enum model_input { MODEL_PICTURES, MODEL_TOKENS };
enum model_mode { MODEL_TRAIN, MODEL_TEST };

struct model_tensor {
    char name[MODEL_NAME];
    size_t shape[MODEL_DIMS], dims, count;
    float *value;   /* in `values` */
    const void *at; /* what layers read: `value`, or where another device has it */
    float *master;  /* what is updated there; `value` on the CPU */
};

struct model_tensors {
    struct model_tensor *each;
    size_t n, room;
    float *values; /* of all, `count` of them */
    size_t count;
};

struct compute;

/* The sizes and helpers that a model is created with. */
struct model_spec {
    struct compute *compute; /* compute.h, borrowed; NULL = the CPU */
    size_t rows;             /* pictures or sequences; no batch has more */
    size_t train_rows;       /* no batch for training has more; 0 = rows */
    size_t length;           /* tokens of a sequence; no batch has longer ones. 0 = the kind's longest */
    size_t channels, height, width; /* of a picture */
    size_t classes;                 /* of pictures; the vocabulary of tokens is the kind's */
    uint64_t seed;                  /* of the first parameters */
    ddp_ctx *ctx;                   /* for layers that communicate with other ranks; NULL = none */
};

/* Borrowed. Nothing is checked again: classes and tokens are below the model's `classes`. */
struct model_batch {
    size_t rows;
    size_t length;         /* targets of a row: 1 for pictures, the tokens of a sequence */
    const float *picture;  /* rows x channels x height x width */
    const int32_t *token;  /* rows x length */
    const int32_t *target; /* rows x length: the class, or the token that follows */
    const float *weight;   /* of each row: the loss of every target in it counts so much */
    size_t counted;        /* rows up to the last whose weight is not 0; model_forward sets it */
    bool still; /* leave buffers (running numbers) as they are: another part of this batch moves them */
};

/* Called by model_backward as soon as it has written the gradient of a parameter for the last time; what it returns other
 * than DDP_OK ends the backward pass. */
struct model_ready {
    ddp_status (*call)(void *user, size_t parameter, struct ddp_err *err);
    void *user;
};

struct model {
    const struct model_ops *ops;
    struct model_tensors params, buffers;
    struct compute *compute;  /* borrowed */
    struct model_batch batch; /* of the last forward pass, where layers can read it */
    size_t pixels;            /* of a picture */
    size_t classes;
    double flops; /* arithmetic of a forward and backward pass, for a row; 0 = not known */
    const float *
        logits; /* rows x length x classes, after a forward pass with MODEL_TEST on the CPU until the next call */
    size_t correct; /* after such a pass on a device, where there are no logits: as model_correct */
};

struct model_kind; /* models.h */

/* The model with its first parameters, which depend on kind and seed alone; yours, for model_free. `spec` is copied.
 * DDP_ERR_ARG: the kind is not for such data. */
ddp_status model_create(const struct model_kind *kind, const struct model_spec *spec, struct model **out,
                        struct ddp_err *err);
void model_free(struct model *m); /* NULL is allowed */

/* *loss: the sum of the losses of all targets in rows whose weight is not 0; a device tells it later (compute.h). MODEL_TRAIN: as for training (batch
 * normalisation), and model_backward may follow. Collective where layers meet those of other ranks. */
ddp_status model_forward(struct model *m, const struct model_batch *batch, enum model_mode mode, double *loss,
                         struct ddp_err *err);

/* After model_forward with MODEL_TRAIN and the same batch: overwrite all gradients with that of
 * sum(weight x loss). `ready` may be NULL. */
ddp_status model_backward(struct model *m, const struct model_batch *batch, float *const grad[],
                          const struct model_ready *ready, struct ddp_err *err);

/* After a forward pass with MODEL_TEST: for how many targets the largest logit is that of the target. The first wins a
 * tie, as with torch.argmax. */
size_t model_correct(const struct model *m, const struct model_batch *batch);

/* FNV-1a 64; and that over the bytes of all parameters in order. */
uint64_t model_mark(const void *bytes, size_t n);
uint64_t model_hash(const struct model *m);

/* The buffers' values are those of the device, or become them; nothing happens where they are the same memory. */
ddp_status model_fetch_buffers(struct model *m, struct ddp_err *err);
ddp_status model_send_buffers(struct model *m, struct ddp_err *err);

/* Where each tensor begins in another array of as many elements. `view` has t->n of them. */
void model_views(const struct model_tensors *t, float *flat, float *view[]);

/* Weights have two dimensions and more; biases and the numbers of normalisations one, and are not decayed. */
bool model_decays(const struct model_tensor *t);

/* --- for models ---------------------------------------------------------------------------------------- */

/* A model begins with its struct model. */
struct model_ops {
    ddp_status (*forward)(struct model *m, const struct model_batch *batch, enum model_mode mode,
                          double *loss, struct ddp_err *err);
    ddp_status (*backward)(struct model *m, const struct model_batch *batch, float *const grad[],
                           const struct model_ready *ready, struct ddp_err *err);
    void (*free)(struct model *m); /* what is the model's own, and itself; not the tensors */
};

struct model_shape {
    size_t size[MODEL_DIMS]; /* ends with the first 0 */
};
#define MODEL_SHAPE(...) ((struct model_shape){ { __VA_ARGS__ } })

/* Say what tensors there are, then get memory for all of them, zeroed. `add` may be called whatever happens: when memory
 * is short, `place` returns false. */
void model_tensors_add(struct model_tensors *t, struct model_shape shape, const char *name, ...)
    __attribute__((format(printf, 3, 4)));
bool model_tensors_place(struct model_tensors *t);

ddp_status model_is_ready(const struct model_ready *ready, size_t parameter, struct ddp_err *err);

#endif
