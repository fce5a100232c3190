/* models.c -- see models.h. */
#include "models.h"

#include "mlp.h"

/* name, input, create, config, about, length, vocabulary */
#define MODEL_LIST(X)                                                             \
    X("mlp", MODEL_PICTURES, mlp_create, &mlp_relu, "784-200-200-10, ReLU", 0, 0) \
    X("seqnet", MODEL_PICTURES, mlp_create, &mlp_seqnet, "the same, sigmoid, log_softmax", 0, 0)

const struct model_kind models[] = {
#define X(...) { __VA_ARGS__ },
    MODEL_LIST(X)
#undef X
        { 0 }
};

const char *const model_names[] = {
#define X(name, ...) name,
    MODEL_LIST(X)
#undef X
        NULL
};
