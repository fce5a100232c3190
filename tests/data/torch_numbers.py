#!/usr/bin/env python3
"""Compute reference numbers with PyTorch. Tests in tests/unit/reducer/ and tests/socket/ compare with them.

    /usr/bin/python3 tests/data/torch_numbers.py          rewrites tests/data/torch_*.json beside this file

Debian's torch 1.13.1 computed the files on a CPU. Nine digits are enough to represent every float32 exactly.
"""
import json
import math
import os
from unittest import mock

import torch
from torch.cuda.amp import grad_scaler

FOLDER = os.path.dirname(os.path.abspath(__file__))


def floats(tensor):
    """Return float32 values for JSON. Infinity and NaN become words that C's strtod reads, because JSON has no such
    numbers."""
    values = [float(f"{v:.9g}") for v in tensor.detach().flatten().tolist()]
    return [v if math.isfinite(v) else str(v) for v in values]


def write(name, content):
    with open(f"{FOLDER}/torch_{name}.json", "w") as file:
        file.write(f'{{"torch": "{torch.__version__}"')
        for key, value in content.items():
            if isinstance(value[0], (list, dict)):
                rows = ",\n".join(json.dumps(row) for row in value)
                file.write(f',\n"{key}": [\n{rows}]')
            else:
                file.write(f',\n"{key}": {json.dumps(value)}')
        file.write("}\n")


# --- optimizers ---------------------------------------------------------------------------------

STEPS, SIZE = 10, 13

OPTIMIZERS = [
    ("sgd", dict(lr=0.1)),
    ("sgd", dict(lr=0.1, weight_decay=0.01)),
    ("sgd", dict(lr=0.05, momentum=0.9)),
    ("sgd", dict(lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.02)),
    ("sgd", dict(lr=0.05, momentum=0.8, nesterov=True)),
    ("sgd", dict(lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)),
    ("adam", dict(lr=0.01)),
    ("adam", dict(lr=0.01, betas=(0.8, 0.95), eps=1e-6)),
    ("adam", dict(lr=0.003, weight_decay=0.1)),
    ("adamw", dict(lr=0.01)),
    ("adamw", dict(lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)),
]
CLASSES = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def trace(rule, options, start, grads):
    """Return the parameters after each step. The learning rate is halved after five steps, as by a schedule."""
    param = start.clone().requires_grad_()
    optimizer = CLASSES[rule]([param], **options)
    rows = []
    for step, grad in enumerate(grads):
        if step == 5:
            optimizer.param_groups[0]["lr"] /= 2
        param.grad = grad.clone()
        optimizer.step()
        rows.append(floats(param))
    return rows


def optimizers():
    torch.manual_seed(1)
    start = torch.randn(SIZE)
    grads = torch.randn(STEPS, SIZE) * torch.logspace(-6, 1, SIZE)
    cases = []
    for rule, options in OPTIMIZERS:
        given = dict(options)
        given["beta1"], given["beta2"] = given.pop("betas", (0.9, 0.999))
        cases.append(dict(rule=rule, **given, params=trace(rule, options, start, grads)))
    write("optim", dict(start=floats(start), grads=[floats(g) for g in grads], cases=cases))


# --- clipping -----------------------------------------------------------------------------------

def clipping():
    torch.manual_seed(2)
    tensors = [torch.randn(n) * s for n, s in ((300, 1.0), (7, 20.0), (1, 0.1), (513, 0.3))]
    cases = []
    for max_norm in (1.0, 0.05, 40.0, 1000.0):
        params = [torch.zeros_like(t).requires_grad_() for t in tensors]
        for param, grad in zip(params, tensors):
            param.grad = grad.clone()
        norm = torch.nn.utils.clip_grad_norm_(params, max_norm)
        some = torch.cat([param.grad[:4] for param in params])
        cases.append(dict(max_norm=max_norm, norm=norm.item(), first_four_of_each=floats(some)))
    write("clip", dict(grads=[floats(t) for t in tensors], cases=cases))


# --- GradScaler ---------------------------------------------------------------------------------
# The class is torch's own. torch 1.13 has its two kernels only for CUDA, so they are written again here after
# aten/src/ATen/native/cuda/AmpKernels.cu.

def unscale_kernel(grads, found_inf, inv_scale):
    for grad in grads:
        if not torch.isfinite(grad).all():
            found_inf.fill_(1)
        if inv_scale != 1:
            grad.mul_(inv_scale)


def update_kernel(scale, tracker, found_inf, growth, backoff, interval):
    if found_inf:
        scale.mul_(backoff)
        tracker.zero_()
    elif tracker + 1 == interval:
        if torch.isfinite(scale * growth):
            scale.mul_(growth)
        tracker.zero_()
    else:
        tracker.add_(1)


class Replicator:
    def __init__(self, master):
        self.master, self._per_device_tensors = master, {}

    def get(self, device):
        return self._per_device_tensors.setdefault(device, self.master.clone())


def call(name, scaler, optimizer):
    """Return True if torch rejects the call."""
    try:
        getattr(scaler, name)(*([] if name == "update" else [optimizer]))
    except (RuntimeError, AssertionError):
        return True
    return False


def scaler_run(options, plan):
    """Run the words of `plan`: "unscale", "step", "update", or "inf", which makes gradients infinite until the next
    update."""
    param = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([param], lr=1.0)
    scaler = grad_scaler.GradScaler(**options)
    scaler._lazy_init_scale_growth_tracker("cpu")
    rows, bad = [], False
    for word in plan:
        if word == "inf":
            bad = True
            continue
        param.grad = torch.tensor([1.0, float("inf") if bad else 2.0, 3.0])
        before = param.detach().clone()
        refused = call({"unscale": "unscale_"}.get(word, word), scaler, optimizer)
        rows.append(dict(call=word, found_inf=int(bad), refused=int(refused),
                         updated=int(not torch.equal(before, param)),
                         scale=floats(scaler._scale)[0], tracker=scaler._growth_tracker.item()))
        if word == "update":
            bad = False
    return rows


def rounds(pattern):
    plan = []
    for letter in pattern:
        plan += (["inf"] if letter == "x" else []) + ["unscale", "step", "update"]
    return plan


def scaler():
    runs = [
        (dict(growth_interval=3), rounds("...x.....xx...")),
        (dict(), rounds("xx.")),
        (dict(init_scale=1.0, growth_factor=1.5, backoff_factor=0.75, growth_interval=1), rounds("..x.x")),
        (dict(init_scale=2.0 ** 127, growth_interval=1), rounds("..x.")),
        (dict(init_scale=2.0 ** -148), rounds("xxx")),
        (dict(growth_interval=2), ["update", "unscale", "unscale", "update", "unscale", "step", "step", "unscale",
                                   "update", "update"]),
    ]
    patches = [mock.patch.object(grad_scaler, "amp_definitely_not_available", lambda: False),
               mock.patch.object(grad_scaler, "_MultiDeviceReplicator", Replicator),
               mock.patch.object(torch, "_amp_foreach_non_finite_check_and_unscale_", unscale_kernel),
               mock.patch.object(torch, "_amp_update_scale_", update_kernel)]
    for patch in patches:
        patch.start()
    defaults = dict(init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000)
    write("scaler", dict(runs=[dict(**{**defaults, **options}, calls=scaler_run(options, plan))
                               for options, plan in runs]))
    for patch in patches:
        patch.stop()


# --- conversions --------------------------------------------------------------------------------

def rounding():
    torch.manual_seed(3)
    values = torch.cat([torch.randn(40) * torch.logspace(-9, 5, 40),
                        torch.tensor([0.0, -0.0, 65519.0, 65520.0, 1e-8, 2.0 ** -25, 3e38, -3.4e38, 1.00048828125,
                                      1.00390625, float("inf")])])
    write("round", dict(f32=floats(values), f16=floats(values.half().float()), bf16=floats(values.bfloat16().float())))


# --- batch normalization ------------------------------------------------------------------------

def batchnorm_case(samples, channels, spatial, offset):
    """Return the values of two training steps on the whole batch, then of an evaluation. The loss is sum(y * dy)."""
    bn = torch.nn.BatchNorm1d(channels)
    with torch.no_grad():
        bn.weight.copy_(torch.rand(channels) + 0.5)
        bn.bias.copy_(torch.randn(channels))
    case = dict(samples=samples, channels=channels, spatial=spatial, weight=floats(bn.weight), bias=floats(bn.bias),
                steps=[])
    for _ in range(2):
        x = (torch.randn(samples, channels, spatial) * 2 + offset).requires_grad_()
        dy = torch.randn(samples, channels, spatial)
        bn.zero_grad()
        y = bn(x)
        y.backward(dy)
        case["steps"].append(dict(x=floats(x), dy=floats(dy), y=floats(y), dx=floats(x.grad),
                                  dweight=floats(bn.weight.grad), dbias=floats(bn.bias.grad),
                                  running_mean=floats(bn.running_mean), running_var=floats(bn.running_var)))
    bn.eval()
    case["evaluated"] = floats(bn(x))
    return case


def batchnorm():
    torch.manual_seed(4)
    write("batchnorm", dict(cases=[batchnorm_case(7, 3, 5, 0.0), batchnorm_case(9, 2, 1, 1.0),
                                   batchnorm_case(8, 1, 12, 10.0)]))


if __name__ == "__main__":
    optimizers()
    clipping()
    scaler()
    rounding()
    batchnorm()
