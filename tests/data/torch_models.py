#!/usr/bin/env python3
"""Compute the losses of the models of `train` with PyTorch. tests/unit/train/test_torch_models.c compares with them.

    /usr/bin/python3 tests/data/torch_models.py           rewrites tests/data/torch_models.json beside this file

The first parameters, the pictures and the tokens come from formulas, which are also in tests/lib/numbers.c. Debian's
torch 1.13.1 computed the file on a CPU.
"""
import json
import math
import os

import torch
from torch.nn import functional as F

FOLDER = os.path.dirname(os.path.abspath(__file__))
STEPS = 50
MASK = 0xFFFFFFFF


def noise(stream, n):
    """Return n numbers of 32 bits. Number k depends only on `stream` and k."""
    h = (torch.arange(n, dtype=torch.int64) * 2654435761 + stream * 40503 + 1) & MASK
    h = ((h ^ (h >> 15)) * 73244475) & MASK
    h = ((h ^ (h >> 13)) * 295559667) & MASK
    return h ^ (h >> 16)


def first_values(tensors):
    """Yield the first values of each parameter, which are uniform. Weights reach up to 1/sqrt(inputs)/2, and
    parameters of one dimension up to 0.05. The weight of a norm is larger by 1."""
    for i, (name, shape) in enumerate(tensors.items()):
        values = noise(i, math.prod(shape)).double() / 2**32 - 0.5
        if len(shape) >= 2:
            values /= math.sqrt(math.prod(shape[1:]))
        else:
            values *= 0.1
            values += name.endswith("weight")
        yield torch.nn.Parameter(values.float().reshape(shape))


# --- mlp and seqnet --------------------------------------------------------------------------------

PICTURES, ROWS, HIDDEN, INPUT, CLASSES = 64, 20, 200, 784, 10


def mlp_tensors():
    widths = [INPUT, HIDDEN, HIDDEN, CLASSES]
    tensors = {}
    for i in range(3):
        tensors[f"lin{i + 1}.weight"] = (widths[i + 1], widths[i])
        tensors[f"lin{i + 1}.bias"] = (widths[i + 1],)
    return tensors


def mlp_losses(after):
    params = list(first_values(mlp_tensors()))
    optimizer = torch.optim.Adam(params, lr=1e-3)
    pictures = ((noise(1000, PICTURES * INPUT) >> 24).float() / 255).reshape(PICTURES, INPUT)
    for step in range(STEPS):
        index = torch.arange(step * ROWS, (step + 1) * ROWS) % PICTURES
        x = pictures[index]
        for i in range(3):
            x = after[i](F.linear(x, params[2 * i], params[2 * i + 1]))
        loss = F.cross_entropy(x, index % CLASSES)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def nothing(x):
    return x


# --- gpt2:tiny -------------------------------------------------------------------------------------

BLOCKS, HEADS, WIDTH, LENGTH, VOCABULARY, SEQUENCES = 2, 2, 64, 64, 256, 3


def gpt2_tensors():
    tensors = {"wte.weight": (VOCABULARY, WIDTH), "wpe.weight": (LENGTH, WIDTH)}
    for block in range(BLOCKS):
        for name, shape in [
            ("ln_1", (WIDTH,)),
            ("attn.c_attn", (3 * WIDTH, WIDTH)),
            ("attn.c_proj", (WIDTH, WIDTH)),
            ("ln_2", (WIDTH,)),
            ("mlp.c_fc", (4 * WIDTH, WIDTH)),
            ("mlp.c_proj", (WIDTH, 4 * WIDTH)),
        ]:
            tensors[f"h.{block}.{name}.weight"] = shape
            tensors[f"h.{block}.{name}.bias"] = shape[:1]
    tensors["ln_f.weight"] = tensors["ln_f.bias"] = (WIDTH,)
    return tensors


def attention(qkv):
    rows, length, _ = qkv.shape
    q, k, v = (part.reshape(rows, length, HEADS, -1).transpose(1, 2) for part in qkv.split(WIDTH, dim=2))
    scores = q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS)
    ahead = torch.ones(length, length).triu(1).bool()
    return (scores.masked_fill(ahead, -math.inf).softmax(3) @ v).transpose(1, 2).reshape(rows, length, WIDTH)


def gpt2_logits(p, tokens):
    def norm(x, name):
        return F.layer_norm(x, (WIDTH,), p[f"{name}.weight"], p[f"{name}.bias"])

    def linear(x, name):
        return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])

    x = p["wte.weight"][tokens] + p["wpe.weight"][: tokens.shape[1]]
    for h in (f"h.{block}" for block in range(BLOCKS)):
        x = x + linear(attention(linear(norm(x, f"{h}.ln_1"), f"{h}.attn.c_attn")), f"{h}.attn.c_proj")
        x = x + linear(
            F.gelu(linear(norm(x, f"{h}.ln_2"), f"{h}.mlp.c_fc"), approximate="tanh"), f"{h}.mlp.c_proj"
        )
    return norm(x, "ln_f") @ p["wte.weight"].T


def gpt2_losses():
    p = dict(zip(gpt2_tensors(), first_values(gpt2_tensors())))
    weights, others = [v for v in p.values() if v.dim() == 2], [v for v in p.values() if v.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": weights, "weight_decay": 0.1}, {"params": others, "weight_decay": 0}],
        lr=1e-3,
        betas=(0.9, 0.95),
    )
    for step in range(STEPS):
        byte = noise(2000 + step, SEQUENCES * (LENGTH + 1)) >> 24
        tokens = (byte * byte * byte >> 16).reshape(SEQUENCES, LENGTH + 1)  # small tokens are frequent
        loss = F.cross_entropy(gpt2_logits(p, tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


# --- resnet20 --------------------------------------------------------------------------------------

WIDTHS, STAGE, COLOURED, COLOURED_ROWS, RESNET_STEPS = (16, 32, 64), 3, 3 * 32 * 32, 4, 20


def resnet_tensors():
    tensors = {}

    def unit(prefix, number, inputs, outputs):
        tensors[f"{prefix}conv{number}.weight"] = (outputs, inputs, 3, 3)
        tensors[f"{prefix}bn{number}.weight"] = tensors[f"{prefix}bn{number}.bias"] = (outputs,)

    unit("", 1, 3, 16)
    inputs = 16
    for stage, width in enumerate(WIDTHS):
        for block in range(STAGE):
            unit(f"layer{stage + 1}.{block}.", 1, inputs, width)
            unit(f"layer{stage + 1}.{block}.", 2, width, width)
            inputs = width
    tensors["fc.weight"], tensors["fc.bias"] = (CLASSES, inputs), (CLASSES,)
    return tensors


def shortcut(x, width):
    """Return the shortcut of option A (He et al. 2015): every second pixel, and zeros for the new channels."""
    if x.shape[1] == width:
        return x
    new = (width - x.shape[1]) // 2
    return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, new, new))


def resnet_logits(p, running, x, training):
    def unit(x, prefix, number, stride=1):
        x = F.conv2d(x, p[f"{prefix}conv{number}.weight"], stride=stride, padding=1)
        name = f"{prefix}bn{number}"
        mean, var = running.setdefault(name, (torch.zeros(x.shape[1]), torch.ones(x.shape[1])))
        return F.batch_norm(x, mean, var, p[f"{name}.weight"], p[f"{name}.bias"], training)

    x = F.relu(unit(x, "", 1))
    for stage, width in enumerate(WIDTHS):
        for block in range(STAGE):
            prefix = f"layer{stage + 1}.{block}."
            y = F.relu(unit(x, prefix, 1, width // x.shape[1]))
            x = F.relu(unit(y, prefix, 2) + shortcut(x, width))
    return F.linear(x.mean((2, 3)), p["fc.weight"], p["fc.bias"])


def resnet_losses():
    """Yield the losses of training, then the loss of a test with the first batch. The learning rate is small because
    of the ReLUs. If one of 180,000 inputs of a ReLU is about 1e-8, its sign may differ between two programs. This
    alone changes the gradient of four pictures by 1 %."""
    p, running = dict(zip(resnet_tensors(), first_values(resnet_tensors()))), {}
    weights, others = [v for v in p.values() if v.dim() > 1], [v for v in p.values() if v.dim() == 1]
    optimizer = torch.optim.SGD(
        [{"params": weights, "weight_decay": 1e-4}, {"params": others}], lr=2e-5, momentum=0.9
    )
    pictures = ((noise(1000, PICTURES * COLOURED) >> 24).float() / 255).reshape(PICTURES, 3, 32, 32)
    for step in range(RESNET_STEPS):
        index = torch.arange(step * COLOURED_ROWS, (step + 1) * COLOURED_ROWS) % PICTURES
        loss = F.cross_entropy(resnet_logits(p, running, pictures[index], True), index % CLASSES)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
    index = torch.arange(COLOURED_ROWS)
    yield F.cross_entropy(resnet_logits(p, running, pictures[index], False), index % CLASSES).item()


def main():
    torch.set_num_threads(1)
    *resnet, resnet_tested = resnet_losses()
    losses = {
        "mlp": mlp_losses([F.relu, F.relu, nothing]),
        "seqnet": mlp_losses([torch.sigmoid, lambda x: F.log_softmax(x, 1), nothing]),
        "gpt2:tiny": gpt2_losses(),
        "resnet20": resnet,
    }
    with open(f"{FOLDER}/torch_models.json", "w") as file:
        file.write(f'{{"torch": "{torch.__version__}"')
        for name, values in losses.items():
            file.write(f',\n"{name}": {json.dumps([float(f"{v:.9g}") for v in values])}')
        file.write(f',\n"resnet20 tested": {resnet_tested:.9g}')
        file.write("}\n")


main()
