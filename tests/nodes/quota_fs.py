"""quota_fs.py DIR -- mount a file system on DIR in which the quota of every user is full. It stands in for a network
file system, because Debian's kernel has no quota that also limits root. It speaks the protocol of /dev/fuse, and ends
after umount.
quota_fs.py DIR silent -- DIR has a file `data`, and reads of the file get no answer. The server prints a line after
the mount, and ends with its parent process. Its end aborts the connection, so that no reader stays blocked in the
kernel."""
import ctypes
import errno
import os
import struct
import sys

LOOKUP, FORGET, GETATTR, MKNOD, MKDIR, OPEN, READ, INIT, CREATE, INTERRUPT, BATCH_FORGET = 1, 2, 3, 8, 9, 14, 15, 26, 35, 36, 42
DATA = 2  # the node id of the file `data`
ASYNC_READ = 1  # lets a signal end a process that reads
is_silent = sys.argv[2:] == ["silent"]


def attributes(node):
    size, mode = (1 << 20, 0o100444) if node == DATA else (0, 0o40777)
    return struct.pack("<6Q10I", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 2, 0, 0, 0, 4096, 0)


fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
if ctypes.CDLL(None, use_errno=True).mount(b"quota", os.fsencode(sys.argv[1]), b"fuse", 0, options) != 0:
    sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
if is_silent:
    ctypes.CDLL(None).prctl(1, 9)  # SIGKILL when the parent process exits
    print("mounted", flush=True)
elif os.fork() != 0:
    sys.exit()
else:
    os.setsid()
while True:
    try:
        request = os.read(fuse, 1 << 18)
    except OSError:
        break
    _, call, unique, node = struct.unpack_from("<IIQQ", request)
    body, error = b"", 0
    if call in (FORGET, BATCH_FORGET, INTERRUPT, READ):
        continue
    if call == INIT:
        body = struct.pack("<IIIIHHIIHHI28x", 7, 31, 4096, ASYNC_READ, 1, 1, 4096, 1, 0, 0, 0)
    elif call == GETATTR:
        body = struct.pack("<QII", 0, 0, 0) + attributes(node)
    elif call == LOOKUP and is_silent and request[40:] == b"data\0":
        body = struct.pack("<QQQQII", DATA, 0, 0, 0, 0, 0) + attributes(DATA)
    elif call == OPEN:
        body = bytes(16)
    elif call in (MKNOD, MKDIR, CREATE):
        error = errno.EDQUOT
    else:
        error = errno.ENOENT if call == LOOKUP else errno.ENOSYS
    os.write(fuse, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)
