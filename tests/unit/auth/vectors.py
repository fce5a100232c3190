#!/usr/bin/env python3
"""vectors.py -- print the vectors of test_auth.c. They follow the description in auth.h, and use only Python's hmac
and hashlib."""
import hashlib
import hmac


def mac(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


K = bytes(range(32))
FINGERPRINT = hashlib.sha256(K).digest()[:8]
NONCE_C, NONCE_S = bytes(range(0x40, 0x50)), bytes(range(0x80, 0x90))
JOB, INSTANCE = b"gpt", b"0123456789abcdef"

hello = bytes([2, 1]) + FINGERPRINT + hashlib.sha256(JOB).digest()[:8] + NONCE_C
offer = bytes([2, 0]) + FINGERPRINT + INSTANCE.ljust(32, b"\0") + NONCE_S
talk = hello + offer
root = mac(hashlib.sha256(talk).digest(), K)
keys = {side: mac(root, b"ddprun %s frames" % side, b"\1") for side in (b"client", b"store")}


def tag(side, number, kind, frame):
    return mac(keys[side], number.to_bytes(8, "little"), bytes([kind]), frame)[:16]


for name, value in (
    ("hello", hello),
    ("answer", offer + mac(K, b"ddprun store", talk)),
    ("proof", mac(K, b"ddprun client", talk)),
    ("client_tags", tag(b"client", 0, 0x80, b"{}") + tag(b"client", 1, 0x82, b'{"op":"hello"}')),
    ("store_tags", tag(b"store", 0, 0, b'{"ok":true}') + tag(b"store", 1, 0, b"")),
):
    print(name, value.hex())
