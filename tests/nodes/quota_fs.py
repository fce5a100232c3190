"""quota_fs.py DIR -- mounts a file system on DIR, in which the quota of every user is full. A stand-in for a network file system, in
Python, because Debian's kernel has no quota that also binds root. It speaks the protocol of /dev/fuse, and ends after umount."""
import ctypes
import errno
import os
import struct
import sys

LOOKUP, FORGET, GETATTR, MKNOD, MKDIR, INIT, CREATE, BATCH_FORGET = 1, 2, 3, 8, 9, 26, 35, 42
DIRECTORY = 0o40777

fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
if ctypes.CDLL(None, use_errno=True).mount(b"quota", os.fsencode(sys.argv[1]), b"fuse", 0, options) != 0:
    sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
if os.fork() != 0:
    sys.exit()
os.setsid()
while True:
    try:
        request = os.read(fuse, 1 << 18)
    except OSError:
        break
    _, call, unique = struct.unpack_from("<IIQ", request)
    body, error = b"", 0
    if call in (FORGET, BATCH_FORGET):
        continue
    if call == INIT:
        body = struct.pack("<IIIIHHIIHHI28x", 7, 31, 4096, 0, 1, 1, 4096, 1, 0, 0, 0)
    elif call == GETATTR:
        body = struct.pack("<QII6Q10I", 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, DIRECTORY, 2, 0, 0, 0, 4096, 0)
    elif call in (MKNOD, MKDIR, CREATE):
        error = errno.EDQUOT
    else:
        error = errno.ENOENT if call == LOOKUP else errno.ENOSYS
    os.write(fuse, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)
