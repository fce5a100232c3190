/* findings.h -- one table of all problems that ddprun can detect in a job that does not start, hangs or fails. Reports,
 * `ddpctl why`, its JSON, `ddprun explain` and the manual page are printed from these rows. The codes never change,
 * because scripts compare them in report.json, in `ddpctl why --json` and in the control protocol. */
#ifndef RENDEZVOUS_FINDINGS_H
#define RENDEZVOUS_FINDINGS_H

#include "base/buf.h"
#include "ddp/error.h"

#include <stdint.h>

/* A note is harmless. A warning may be the cause of a problem. An error needs an action of the user. Texts and JSON
 * contain the words in the second column. */
#define FINDING_GRADES(X) \
    X(NOTE, "note")       \
    X(WARNING, "warning") \
    X(ERROR, "error")

/* The columns of the tables below:
 *
 *     code         name of the finding; never changes
 *     severity     one of FINDING_GRADES
 *     sentence     names the culprit, the failure and, unless the failure is a state such as a full disk, the duration
 *     advice       one remedy
 *     example      an example of the sentence
 *     detection    how the finding is detected, then "Typical cause: ..." or "Typical causes: ...", which
 *                  `ddprun explain` prints as a section
 *
 * The rows are in the order of printing: a cause is above its consequences. But notes are printed last.
 *
 * In sentence and advice, ${subject} is the culprit ("rank 3", "node 1 (n1, pid 77)"). The caller of finding_make
 * passes the text for every other placeholder.
 *
 * `ddprun explain` prints ${remote_shell} as REMOTE_SHELL, so the name of a placeholder must explain its value. It
 * prints ${subject} as HOST, so an advice may contain ${subject} only if the culprit is a host.
 *
 * Each option and command in a remedy must exist exactly as it is written. An option without a program's name is an
 * option of ddprun. */

/* clang-format off */

/* Findings of a node about itself and its addresses, before it starts any worker. The store makes ADDRESS_NOT_UNIQUE
 * and ADDRESS_TRANSLATED, because only the store sees the addresses of all nodes. A worker with libddp reports
 * PORTS_CLOSED. */
#define FINDINGS_OF_HOSTS(X)                                                                                \
    X(PORT_IN_USE, ERROR,                                                                                   \
      "${subject}: port ${port} is in use by ${holder}",                                                    \
      "stop that process if it belongs to an earlier job; otherwise pass another --master_port on every "    \
      "node",                                                                                               \
      "n1: port 29500 is in use by python3 (pid 4242, user ann)",                                           \
      "Binding the store's port failed with EADDRINUSE. Typical causes: a process of an earlier job, "      \
      "or a second job with the same port.")                                                                \
    X(CANNOT_LISTEN, ERROR,                                                                                 \
      "${subject} cannot listen on ${at}: ${error}",                                                        \
      "pass an address of this host as --master_addr ('ip address' lists all addresses), or another "        \
      "--master_port",                                                                                      \
      "n1 cannot listen on 10.0.0.1:80: Permission denied",                                                 \
      "Opening the store's port failed, although no other process uses the port. Typical causes: an "       \
      "address of another host, or a port below net.ipv4.ip_unprivileged_port_start.")                      \
    X(NO_STORE_HOST, ERROR,                                                                                 \
      "no node hosts the store: ${subject} is not an address of ${host} (${addresses})",                    \
      "pass an address of node 0 as --master_addr, or pass --host_store=yes on exactly one node",                                                                                               \
      "no node hosts the store: 10.0.0.9 is not an address of n0 (10.0.0.1)",                               \
      "Node 0 compared the master address with its own addresses and found no match. No store answered "    \
      "at the master address. Typical cause: a --master_addr of an earlier job.")                           \
    X(NO_SECRET, ERROR,                                                                                         \
      "${subject} is not opened to other hosts, because it has no secret${why}",                                \
      "start all nodes with one command (ddprun --hosts=HOST,HOST ...), which makes a secret; or start "    \
      "the store and all nodes with the same --secret_file=FILE or PET_SECRET_FILE ('ddprun --make_secret " \
      "FILE' makes one); or, under a scheduler, run munged on every node; or, if all nodes run on one host, " \
      "use the address 127.0.0.1; or, on a network that you trust, use --insecure",                         \
      "the store at 10.0.0.1:29500 is not opened to other hosts, because it has no secret",                     \
      "The node that hosts the store, or ddp-rendezvous, has neither --secret_file nor --insecure, and "    \
      "MUNGE delivers no secret. Without a secret, every host that reaches the store could change the "     \
      "keys and end the job. Typical cause: a job of several nodes started without --secret_file.")         \
    X(NODE_HAS_NO_SECRET, ERROR,                                                                            \
      "${node} has no secret, so it does not join the store at ${address}",                                 \
      "start all nodes with one command (ddprun --hosts=HOST,HOST ...), which makes a secret; or start "    \
      "this node with the secret of the store (--secret_file=FILE or PET_SECRET_FILE); or, under a "        \
      "scheduler, run munged on every node; or, if all nodes run on one host, use the address 127.0.0.1; "  \
      "or, if the store runs with --insecure, pass --insecure to this node, too",                           \
      "node 1 (n1) has no secret, so it does not join the store at 10.0.0.1:29500",                         \
      "The node has neither --secret_file nor --insecure, and does not use MUNGE. ddprun ends without a "    \
      "connection to the store, even if the store needs no secret. Typical causes: PET_SECRET_FILE set "     \
      "in the shell of node 0 only, or --secret_file on node 0 only.")                                       \
    X(STORE_IS_OPEN, WARNING,                                                                                   \
      "${subject} serves every host that reaches it, because it has no secret${why}",                           \
      "start the store and all nodes with the same --secret_file=FILE or PET_SECRET_FILE ('ddprun "             \
      "--make_secret FILE' makes one)",                                                                         \
      "the store at 10.0.0.1:29500 serves every host that reaches it, because it has no secret",                \
      "The store has no secret, but other hosts can use it, because --insecure is given or ddprun was " \
      "started under the name torchrun. Typical causes: --insecure on a network with other users, or a " \
      "script written for torchrun.")                                                                     \
    X(MASTER_NAME_IS_LOOPBACK, ERROR,                                                                       \
      "on ${this_host} the name '${subject}' resolves to ${address}, where no other node can reach the "    \
      "store",                                                                                              \
      "remove '${subject}' from the line of ${address} in /etc/hosts on ${this_host}, or pass a numeric "   \
      "address on all nodes, such as ${reachable_address}",                                                         \
      "on n0 the name 'n0' resolves to 127.0.1.1, where no other node can reach the store",                 \
      "The node that hosts the store resolved its own name to a loopback address. Typical cause: "           \
      "installers of Debian and Ubuntu write a line with 127.0.1.1 to /etc/hosts.")                          \
    X(BRIDGE_ADDRESS, WARNING,                                                                              \
      "${subject} is the address of ${interface} on ${host}; other machines probably have the same "        \
      "address",                                                                                            \
      "pass an address that all nodes can reach, such as ${reachable_address}",                             \
      "172.17.0.1 is the address of docker0 on n0; other machines probably have the same address",          \
      "The address belongs to a bridge of containers or virtual machines, which has the same address "      \
      "on every machine. Typical cause: --master_addr copied from docker0, virbr0 or a similar "            \
      "interface.")                                                                                         \
    X(LOOPBACK_ADDRESS, WARNING,                                                                            \
      "${subject} is a loopback address: only ddprun processes on ${host} can join through it",             \
      "no action is needed if all nodes run on ${host}; otherwise pass a master address that all nodes "     \
      "can reach: ${reachable_address}",                                                                     \
      "127.0.0.1 is a loopback address: only ddprun processes on n0 can join through it",                   \
      "A job of several nodes has a loopback address as its master address. Typical causes: a test of several "     \
      "nodes on one host, or --master_addr=localhost kept from such a test.")                                       \
    /* Limits and memory. report/host_checks.c estimates from the number of workers how much the job needs. \
     * A program may need less than the estimate, so a limit below the estimate is only a warning. */ \
    X(LIMIT_NOFILE, WARNING,                                                                                \
      "${subject} allows ${have} open files; this job needs about ${number} there",                         \
      "raise the limit: 'ulimit -n ${number}' if you are root, else LimitNOFILE= of the service that "      \
      "starts ddprun, or nofile in /etc/security/limits.conf",                                              \
      "n1 allows 1024 open files; this job needs about 4096 there",                                         \
      "The hard limit RLIMIT_NOFILE is below the estimate for the workers and their output. Typical cause: "        \
      "the default of 1024 open files, with many workers.")                                                         \
    X(LIMIT_NPROC, WARNING,                                                                                 \
      "${subject} allows this user ${have} processes and threads; this job needs about ${number} there",    \
      "raise the limit: 'ulimit -u ${number}', or nproc in /etc/security/limits.conf",                      \
      "n1 allows this user 512 processes and threads; this job needs about 2048 there",                     \
      "The limit RLIMIT_NPROC is below the estimate for the workers and their threads, so fork or " \
      "pthread_create may fail. Typical causes: a limit that the administrator has set for each user, or " \
      "a container with a low limit.")                                                             \
    X(LIMIT_MEMLOCK, WARNING,                                                                               \
      "${subject} allows ${have} of locked memory, but has InfiniBand, which needs an unlimited "           \
      "amount",                                                                                             \
      "set LimitMEMLOCK=infinity for the service that starts ddprun (slurmd, container runtime); "          \
      "limits.conf does not apply to services",                                                             \
      "n1 allows 64 KiB of locked memory, but has InfiniBand, which needs an unlimited amount",             \
      "An InfiniBand device is present and RLIMIT_MEMLOCK is finite. NCCL may fail to register memory " \
      "for RDMA. Typical causes: a service without LimitMEMLOCK=infinity, or a container without " \
      "--ulimit memlock=-1.")                             \
    X(SHM_SMALL, WARNING,                                                                                   \
      "/dev/shm on ${subject} has ${have} free; ${workers} need about ${need} there",                       \
      "start the container with --shm-size=8g or --ipc=host, or delete files of ended jobs in /dev/shm",    \
      "/dev/shm on n1 has 64 MiB free; 8 workers need about 512 MiB there",                                 \
      "The free space of /dev/shm is below the estimate, so SIGBUS may kill data loaders or NCCL. " \
      "Typical cause: Docker's default of 64 MiB.")                                                 \
    /* ddprun makes the two findings about GPUs from the answers of NVML (NVIDIA Management Library), which \
     * may be slow. So ddprun waits only for a limited time: 200 ms before the start, 1 s after a failure, \
     * and until the next sample in a suspected hang. */ \
    X(GPU_BUSY, WARNING,                                                                                    \
      "${subject}${ranks} is used by ${process}",                                                           \
      "stop that process if it belongs to an earlier job, or give ddprun other GPUs " \
      "(CUDA_VISIBLE_DEVICES)",                                                                                         \
      "GPU 2 of n1 (rank 2) is used by pid 4242 (user ann, 31 GiB)",                                        \
      "NVML listed a process outside this job that computes on a GPU of a worker. ddprun asks NVML before " \
      "the start, in a suspected hang, and after a worker failed because its GPU was full or busy. The "    \
      "workers may run out of GPU memory or wait for that process. Typical cause: a process of an earlier " \
      "job.")                                                                                               \
    X(GPU_MODE, WARNING,                                                                                    \
      "${subject} is in compute mode ${mode}, which admits ${admits}; ${workers} ${needs} this GPU",        \
      "run 'nvidia-smi -i ${gpu} -c DEFAULT' as root, or start at most one worker for each GPU "            \
      "(--nproc_per_node)",                                                                                 \
      "GPU 2 of n1 is in compute mode Exclusive_Process, which admits one process; 2 workers need this GPU", \
      "NVML reported a compute mode that allows fewer processes than there are workers on the GPU. CUDA "    \
      "would fail with 'devices are busy or unavailable'. Typical causes: a setting "                        \
      "of the batch system or of an administrator, or more workers than GPUs.")                             \
    X(ADDRESS_NOT_UNIQUE, ERROR,                                                                            \
      "${subject} and ${other} report the same address ${address}: the address is local to each machine "   \
      "(docker0, for example), so the nodes cannot connect",                                                \
      "pass --local_addr on each node, with an address that the other nodes can reach",                     \
      "node 0 (n0, pid 71) and node 1 (n1, pid 80) report the same address 172.17.0.1: the address is "     \
      "local to each machine (docker0, for example), so the nodes cannot connect",                          \
      "Two nodes joined with the same address but different boot ids, so they run on different "            \
      "machines. Typical cause: containers or virtual machines whose bridge has the same address on "       \
      "every host.")                                                                                        \
    X(ADDRESS_TRANSLATED, WARNING,                                                                          \
      "${subject} has the address ${own}, but connects to the store from ${seen}: its address is "          \
      "translated on the way (NAT)",                                                                        \
      "use a network without NAT (containers: --network=host), because behind NAT the workers cannot "      \
      "connect to each other (libddp, Gloo, NCCL)",                                                         \
      "node 1 (n1, pid 80) has the address 172.17.0.2, but connects to the store from 10.0.0.9: its "       \
      "address is translated on the way (NAT)",                                                             \
      "The address that the node reported differs from the address from which its connection arrives. "     \
      "Typical cause: a container with a bridge network.")                                                  \
    /* If only large packets are lost, the job starts and hangs at the first large message. Without this    \
     * finding, a user would look for the fault in the program. */              \
    X(PATH_LOSES_LARGE, WARNING,                                                                            \
      "${subject} loses large packets: segments of ${large} bytes were sent ${times} times without an "     \
      "acknowledgement, but segments of ${small} bytes arrive",                                                 \
      "compare the MTU of all interfaces on the way ('ip link', 'ping -M do -s 1472 ${address}'), and "     \
      "permit ICMP 'fragmentation needed'; until the MTU or the ICMP filter is corrected, this path also "   \
      "loses the large packets of the workers",                                                             \
      "the path from n1 to 10.0.0.1 loses large packets: segments of 1448 bytes were sent 5 times without " \
      "an acknowledgement, but segments of 536 bytes arrive",                                                   \
      "ddprun detects this in one of two ways. First way: large segments of the agent's connection to the " \
      "store got no acknowledgement, but a new connection with smaller segments worked. Second way: a "     \
      "connection between two nodes broke or hung. ddprun on one node then sent UDP packets of two sizes "  \
      "to port 33434 of the other node. The other node answered the small packets (by ICMP), but not the "  \
      "packets of MTU size. These packets have at most 1500 bytes, because the MTU of the other node may "  \
      "be smaller. Typical cause: a tunnel with a smaller MTU, and a firewall that drops ICMP.")            \
    X(PORTS_CLOSED, ERROR,                                                                                  \
      "the store's port is open, but other ports are closed: ${subject} ${words}",                          \
      "open all TCP ports between the nodes, because workers use ports that the kernel chooses; or "        \
      "open a range, and pass this range to libddp with DDP_PORT_RANGE=LOW-HIGH",                           \
      "the store's port is open, but other ports are closed: rank 1 (n1, pid 81) cannot connect to "        \
      "rank 0 on n0 at 10.0.0.1:40123: no answer for 10.0 s",                                               \
      "A worker reached the store, but not the port on which another worker listens. Typical causes: a "    \
      "firewall, or a security group of the cloud.")

/* Failed connections from a node to the store. The node itself chooses the finding (launcher/net/dial_plan.h), from the
 * error of each attempt and the first bytes of each reply. ${host} is the name of the store's host, as the user typed
 * it. ${at} is the address and port of the attempt, and ${address} is the address alone. ${this_host} is the host of
 * the node, and ${took} is the duration of the attempt. ${bytes} shows the first bytes of a reply. ${hosts} is the line
 * of /etc/hosts that contains the name. */
#define FINDINGS_OF_CONNECTIONS(X)                                                                          \
    /* Stage "resolve": the results of getaddrinfo (RFC 3493). */                                           \
    X(NAME_IS_LOOPBACK, ERROR,                                                                              \
      "on ${this_host} the name '${host}' resolves to ${address}, which is ${this_host} itself${hosts}; the " \
      "store is on another node",                                                                            \
      "remove '${host}' from /etc/hosts on ${this_host}, or pass a numeric address on all nodes",           \
      "on n1 the name 'n0' resolves to 127.0.1.1, which is n1 itself (/etc/hosts has the line "        \
      "\"127.0.1.1 n0\"); the store is on another node",                                                                 \
      "The master's name resolved to a loopback address on a node that does not host the store. Typical "           \
      "cause: an /etc/hosts that was copied from the store's machine; installers of Debian and Ubuntu "      \
      "write a line with 127.0.1.1 to this file.")                                                           \
    X(NAME_UNKNOWN, ERROR,                                                                                  \
      "${this_host} cannot resolve '${host}': no such name, after ${took}",                                 \
      "check the spelling; on Kubernetes, check that the pod is scheduled and its service has this "        \
      "name; or pass a numeric address",                                                                    \
      "n1 cannot resolve 'n0.example': no such name, after 3 ms",                                           \
      "getaddrinfo returned EAI_NONAME. The name of a new pod or machine can take a minute to appear. Typical "     \
      "causes: a spelling error, or a pod whose service does not exist yet.")                                       \
    X(RESOLVER_DOWN, ERROR,                                                                                 \
      "${this_host} cannot resolve '${host}': the name service failed after ${took}",                       \
      "check /etc/resolv.conf on ${this_host}, or pass a numeric address",                                  \
      "n1 cannot resolve 'n0': the name service failed after 10 ms",                                        \
      "getaddrinfo returned EAI_AGAIN. Typical causes: a wrong name server, or a network that is not "      \
      "up yet.")                                                                                            \
    X(RESOLVER_SILENT, ERROR,                                                                               \
      "${this_host} cannot resolve '${host}': the name service has not answered for ${took}",               \
      "check /etc/resolv.conf on ${this_host}, or pass a numeric address",                                  \
      "n1 cannot resolve 'n0': the name service has not answered for 5.0 s",                                \
      "getaddrinfo has not returned. Typical cause: a firewall that drops packets to the name server.")     \
    X(RESOLVE_FAILED, ERROR,                                                                                \
      "${this_host} cannot resolve '${host}': ${error}, after ${took}",                                     \
      "pass a numeric address",                                                                             \
      "n1 cannot resolve 'n0': non-recoverable failure in name resolution, after 3 ms",                     \
      "getaddrinfo failed, and no other finding explains the error. Typical cause: a broken answer of the "       \
      "name server.")                                                                                                 \
    /* Stage "route": the kernel rejects the address before the first packet (errno of connect). */                                 \
    X(NO_ROUTE, ERROR,                                                                                      \
      "${this_host} has no route to ${address}",                                                            \
      "check the address, and on ${this_host} the interfaces ('ip addr') and the routes ('ip route'); a " \
      "container needs a connection to the network of ${address}",                                                                    \
      "n1 has no route to 10.0.0.1",                                                                        \
      "The kernel's route lookup failed with ENETUNREACH. Typical causes: an interface that is down, or a "         \
      "container that is not connected to the network of the address.")                                                                            \
    X(ROUTE_UNREACHABLE, ERROR,                                                                             \
      "${this_host} has a route that marks ${address} as unreachable",                                      \
      "remove the 'unreachable' route to ${address} on ${this_host} ('ip route', or 'ip -6 route', lists "  \
      "it), or pass another address",                                                                       \
      "n1 has a route that marks 10.0.0.1 as unreachable",                                                  \
      "The kernel's route lookup failed with EHOSTUNREACH. Typical cause: an 'unreachable' route of "       \
      "a VPN or a container network.")                                                                      \
    X(ROUTE_PROHIBITED, ERROR,                                                                              \
      "${this_host} has a route or rule that prohibits ${address}",                                         \
      "remove the 'prohibit' route or rule for ${address} on ${this_host} ('ip route' and 'ip rule' list "  \
      "it), or pass another address; check the output rules of the firewall, too",                          \
      "n1 has a route or rule that prohibits 10.0.0.1",                                                     \
      "The kernel's route lookup failed with EACCES. Typical cause: a 'prohibit' route or rule.")           \
    X(FAMILY_OFF, ERROR,                                                                                    \
      "${this_host} cannot use the address ${address}: its protocol (IPv4 or IPv6) is disabled on this host", \
      "pass an address of the other protocol, or enable the protocol on ${this_host}",                      \
      "n1 cannot use the address fd00::1: its protocol (IPv4 or IPv6) is disabled on this host",              \
      "The kernel's route lookup failed with EADDRNOTAVAIL or EAFNOSUPPORT. Typical cause: IPv6 is "        \
      "disabled.")                                                                                          \
    X(ROUTE_FAILED, ERROR,                                                                                  \
      "${this_host} cannot send to ${address}: ${error}",                                                   \
      "check the address; 'ip route get ${address}' on ${this_host} shows the route",                       \
      "n1 cannot send to 10.0.0.1: invalid argument",                                                       \
      "The kernel rejected the destination, and no other finding explains the error. Typical causes: an "         \
      "address that no route accepts, such as 0.0.0.0 or a multicast address.")                                       \
    /* Stage "connect": the TCP handshake. Only the elapsed time shows the cause of EHOSTUNREACH. If the error  \
     * comes within a round trip, an ICMP message rejected the connection. If it comes after about 3 s, no      \
     * machine answered the kernel's three neighbour requests. */                   \
    X(MASTER_IS_LOOPBACK, ERROR,                                                                            \
      "no process listens at ${at}, which is this machine (${this_host}): node 0 has not started, or its store is on another machine", \
      "pass as --master_addr an address of the store's node that the other nodes can reach; if all nodes "  \
      "run on this machine, check that the store's node runs and uses the same port",                       \
      "no process listens at 127.0.0.1:29500, which is this machine (n1): node 0 has not started, or its store is on another machine",               \
      "The master address is a loopback address on a node that does not host the store, and the connection "        \
      "was refused. Typical causes: --master_addr=localhost on several nodes, or a store that has not started "     \
      "yet.")                                                                                                       \
    X(CONNECT_REFUSED, ERROR,                                                                               \
      "${at} refused the connection after ${took}: no process listens on that port",                        \
      "run 'ss -ltnp sport = :${port}' on that host; if it lists no process, check the address, the "       \
      "port, and the output of ddprun there; a firewall that rejects connections causes the same error",    \
      "10.0.0.1:29500 refused the connection after 1 ms: no process listens on that port",                  \
      "connect failed with ECONNREFUSED: the machine is up and answered with a reset. Typical causes: node 0 "      \
      "has not started yet or has failed, or the port differs.")                                                    \
    X(CONNECT_DROPPED, ERROR,                                                                               \
      "${at} does not answer: neither a connection nor a refusal within ${took}",                           \
      "allow TCP port ${port} in the firewall or security group; check the address ('ip addr' on the "      \
      "store's host lists its addresses); check that the machine is not frozen",                            \
      "10.0.0.1:29500 does not answer: neither a connection nor a refusal within 5.0 s",                    \
      "The kernel gets no reply to its SYN packets. Typical causes: a firewall that drops packets, a "      \
      "wrong address, or a machine that is frozen.")                                                        \
    X(HOST_SILENT, ERROR,                                                                                   \
      "no machine with the address ${address} answers on its network (the kernel tried for ${took})",       \
      "check the address ('ip addr' on the store's host lists its addresses), and that the machine and its "\
      "network link are up",                                                                                \
      "no machine with the address 10.0.0.1 answers on its network (the kernel tried for 3.1 s)",           \
      "connect failed with EHOSTUNREACH after about three seconds: no machine answered the kernel's ARP or "        \
      "neighbour requests. Typical causes: a machine that is off, or an address that no machine has.")              \
    X(CONNECT_REJECTED, ERROR,                                                                              \
      "a firewall or router rejected the connection from ${this_host} to ${at} after ${took}",                      \
      "allow TCP port ${port} in the firewall; firewalld rejects most ports by default",                    \
      "a firewall or router rejected the connection from n1 to 10.0.0.1:29500 after 1 ms",                          \
      "connect failed with EHOSTUNREACH within a round trip: an ICMP message rejected the connection. "     \
      "Typical cause: firewalld.")                                                                          \
    X(NET_UNREACHABLE, ERROR,                                                                               \
      "a router between ${this_host} and ${at} has no route to ${address}: its answer came after ${took}",  \
      "check the address; 'ip route get ${address}' on ${this_host} shows the first router",                \
      "a router between n1 and 10.0.0.1:29500 has no route to 10.0.0.1: its answer came after 2 ms",        \
      "connect failed with ENETUNREACH although this host has a route: a router sent an ICMP message. Typical "     \
      "causes: a wrong address, or a link between two networks that is down.")                                      \
    X(CONNECT_PROHIBITED, ERROR,                                                                            \
      "${this_host} is not permitted to connect to ${at}",                                                  \
      "check on ${this_host} the routes ('ip route'), the output rules of the firewall, and the network "   \
      "policy of the container",                                                                            \
      "n1 is not permitted to connect to 10.0.0.1:29500",                                                   \
      "connect failed with EPERM or EACCES. Typical causes: an output rule of iptables, or a "              \
      "security policy of the container.")                                                                  \
    X(NO_DESCRIPTORS, ERROR,                                                                                \
      "${this_host} has no file descriptor left for a connection (ulimit -n ${open_files})",                \
      "raise the limit of open files on ${this_host}: 'ulimit -n 65536' before ddprun, or LimitNOFILE= of " \
      "the service that starts ddprun",                                                                     \
      "n1 has no file descriptor left for a connection (ulimit -n 1024)",                                   \
      "socket failed with EMFILE or ENFILE. Typical causes: a low limit of open files, or a leak in another "       \
      "program.")                                                                                                   \
    X(CONNECT_FAILED, ERROR,                                                                                \
      "the connection to ${at} failed after ${took}: ${error}",                                             \
      "check the network between ${this_host} and ${address}",                                              \
      "the connection to 10.0.0.1:29500 failed after 2.0 s: connection reset by peer",                      \
      "connect failed, and no other finding explains the error. Typical causes: a network or firewall that "      \
      "resets connections.")                                                                                          \
    /* Stage "hello": the TCP connection exists. The first bytes of the reply show which program listens    \
     * on the port. */               \
    X(HELLO_UNANSWERED, ERROR,                                                                              \
      "${at} accepts connections, but does not reply within ${took}",                                       \
      "check with 'ss -ltnp sport = :${port}' on that host which process has the port: perhaps ddprun "     \
      "there is stopped or lacks CPU time, or the port belongs to another service or a proxy (a service "   \
      "mesh's sidecar)",                                                                                    \
      "10.0.0.1:29500 accepts connections, but does not reply within 5.0 s",                                \
      "The TCP connection succeeded, but no reply to the store's handshake arrived. Typical causes: a stopped "     \
      "ddprun, a machine without free CPU time, or another service on that port.")                                  \
    X(HELLO_CLOSED, ERROR,                                                                                  \
      "${at} accepts connections and closes them on the first message, after ${took}",                      \
      "'ss -ltnp sport = :${port}' on that host shows the process; if the process is a store of another "  \
      "user, start the store and the job as the same user; if it is a proxy, another service, or the store " \
      "of a PyTorch version before 2.5, choose another port; if a service mesh is in use, disable its "      \
      "sidecar for this job (sidecar.istio.io/inject: \"false\")",                                          \
      "10.0.0.1:29500 accepts connections and closes them on the first message, after 1 ms",                \
      "The process that listens on the port closed the connection after the first message of the node. A "  \
      "store without --insecure rejects the processes of other users on its host, except root. Typical "    \
      "cause: the store runs on the same host as this node, but belongs to another user.")                  \
    /* Another service listens on the port. The first bytes of its reply identify the protocol. */ \
    X(PORT_IS_HTTP, ERROR,                                                                                  \
      "${at} is a web server or HTTP proxy, not a store; it sent \"${bytes}\"",                             \
      "'ss -ltnp sport = :${port}' on that host shows the process: stop it or choose another port; if "      \
      "${address} is a proxy, pass the address of the store itself",                                        \
      "10.0.0.1:29500 is a web server or HTTP proxy, not a store; it sent \"HTTP/1.1 400 Bad "              \
      "Request\"",                                                                                          \
      "The first bytes of the reply are HTTP. Typical causes: the port of a web service, or a proxy on the "        \
      "way.")                                                                                                       \
    X(PORT_IS_TLS, ERROR,                                                                                   \
      "${at} is a TLS server, not a store",                                                                  \
      "'ss -ltnp sport = :${port}' on that host shows the process: stop it or choose another port; in a "    \
      "service mesh disable the sidecar for this job (sidecar.istio.io/inject: \"false\")",                  \
      "10.0.0.1:29500 is a TLS server, not a store",                                                         \
      "The first bytes of the reply are a TLS record. Typical causes: a service mesh, or the port of another "      \
      "service.")                                                                                                   \
    /* A store of ddprun listens on the port, but its encryption or its secret differs from the node's. */                          \
    X(STORE_ENCRYPTED, ERROR,                                                                               \
      "${at} is a store that accepts only encrypted connections from other hosts, but this node has no --encrypt",            \
      "start all nodes with --encrypt",                                                                     \
      "10.0.0.1:29500 is a store that accepts only encrypted connections from other hosts, but this node has no --encrypt",   \
      "The store was started with --encrypt and answered an unencrypted request with a TLS alert. " \
      "Typical cause: only node 0 or ddp-rendezvous has --encrypt.")                 \
    X(STORE_NOT_ENCRYPTED, ERROR,                                                                           \
      "${at} is a store without --encrypt, but this node has --encrypt",                                    \
      "start the store and all nodes with --encrypt, or start all of them without --encrypt",                \
      "10.0.0.1:29500 is a store without --encrypt, but this node has --encrypt",                           \
      "The store answered the TLS handshake with the alert that means 'no --encrypt'. Typical "          \
      "cause: --encrypt was not given to node 0 or to ddp-rendezvous.")                                     \
    X(TLS_REJECTED, ERROR,                                                                                  \
      "the TLS handshake with ${at} failed after ${took}: the store has another secret or does not serve this "\
      "job",                                                                                                \
      "use the same --secret_file and --rdzv_id for the store and on all nodes; 'ddpctl rejects' on the "   \
      "store's host prints the reason",                                                                     \
      "the TLS handshake with 10.0.0.1:29500 failed after 3 ms: the store has another secret or does not "  \
      "serve this "                                                                                         \
      "job",                                                                                                \
      "The store, or a host that answers in its place, did not prove that it has the secret. Typical "      \
      "causes: nodes with different secret files, or a store " \
      "that has secrets only for other job ids.")                          \
    X(SECRET_UNKNOWN, ERROR,                                                                                \
      "this node has --encrypt, but gets no secret from ${at}: ${bytes}",                                   \
      "run munged on every node, or start all nodes with the same --secret_file (PET_SECRET_FILE)",         \
      "this node has --encrypt, but gets no secret from 10.0.0.1:29500: MUNGE: Failed to access "           \
      "\"/run/munge/munge.socket.2\"",                                                                      \
      "Under a scheduler, MUNGE delivers the secret. The store sent no credential of MUNGE, or munged on "   \
      "this node could not decode the credential. Typical causes: munged does not run on this node, or "     \
      "munged has another key than on the store's node.")                                                    \
    /* The next findings are about a service that speaks neither HTTP nor TLS. If the protocol of this \
     * service is unknown, the finding is PORT_IS_OTHER_SERVICE. */ \
    X(PORT_IS_SSH, ERROR,                                                                                   \
      "${at} is an SSH server, not a store; it sent \"${bytes}\"",                                          \
      "choose a port that 'ss -ltn' on the store's host does not list",                               \
      "10.0.0.1:22 is an SSH server, not a store; it sent \"SSH-2.0-OpenSSH_9.2\"",                         \
      "The first bytes of the reply are an SSH banner. Typical cause: port 22 in --master_port or "         \
      "--rdzv_endpoint.")                                                                                           \
    X(PORT_IS_TORCH, ERROR,                                                                                 \
      "${at} is a PyTorch store (torchrun's or a script's), not a ddprun store",                            \
      "start ddprun on that node in place of torchrun, or choose another port; 'ss -ltnp sport = "           \
      ":${port}' there shows the process",                                                                   \
      "10.0.0.1:29500 is a PyTorch store (torchrun's or a script's), not a ddprun store",                   \
      "The reply has the form of a PyTorch TCPStore, without ddprun's extensions. Typical causes: torchrun on "     \
      "one node and ddprun on another, or a script that opens its own store.")                                      \
    X(PORT_IS_OTHER_SERVICE, ERROR,                                                                         \
      "${at} is another service, not a store; it sent \"${bytes}\"",                                        \
      "choose another port; 'ss -ltnp sport = :${port}' on that host shows the process",                     \
      "10.0.0.1:29500 is another service, not a store; it sent \"220 mail ESMTP\"",                         \
      "ddprun does not recognize the protocol of the reply. Typical cause: a port that another program "    \
      "of that host uses.")                                                                                 \
    X(HELLO_FAILED, ERROR,                                                                                  \
      "the connection to ${at} broke during the first message, after ${took}: ${error}",                    \
      "check the network between ${this_host} and ${address}",                                              \
      "the connection to 10.0.0.1:29500 broke during the first message, after 2.0 s: connection reset by peer", \
      "Reading or writing the first message failed with a system error. Typical cause: a firewall or "      \
      "load balancer that resets connections.")                                                             \
    X(NO_ANSWER_YET, ERROR,                                                                                 \
      "${this_host} has waited ${took} for the name service or for a connection to ${host}",                \
      "pass a longer --timeout, and check that ${host} runs ddprun",                                        \
      "n1 has waited 3.0 s for the name service or for a connection to n0",                                 \
      "The wait for the store ended before any lookup or connection attempt had a result. Typical cause: "  \
      "a short --timeout.")

/* Rejected nodes. The store decides whether a node may join (job/admission.c). If two nodes have different values,
 * ${words} names both hosts and both values. The user must then compare two command lines. The rejected ddprun prints
 * the finding and exits. The other nodes also print the finding, because they wait for the rejected node. */
#define FINDING_WAS_REJECTED "${subject} was rejected ${time} ago: ${words}"
#define FINDINGS_OF_REFUSALS(X)                                                                             \
    /* ${layout} is the layout in the scheduler's variables. If the store finds the error, ${layout} is the \
     * rest of FINDING_WAS_REJECTED. */                                                                     \
    X(WRONG_TASK_LAYOUT, ERROR,                                                                             \
      "${subject} ${layout}",                                                                               \
      "start one ddprun on each node (srun --ntasks-per-node=1 ddprun ..., mpirun --map-by ppr:1:node " \
      "ddprun ...); or run one worker in each task (ddprun --per_task ...)",                                 \
      "n0 runs 4 of the 8 copies of ddprun that Slurm has started on 2 nodes for job slurm-77.0; each copy " \
      "would start all workers of its node",                                                                \
      "The scheduler started several tasks on a node, and each task runs ddprun. Typical causes: "                  \
      "--ntasks-per-node or -np set to the number of GPUs.")                                                        \
    /* Two nodes requested the same node rank. If both are on one host, ddprun was started twice there.     \
     * Otherwise a --node_rank was copied. */                                                                                       \
    X(LAUNCHED_TWICE, ERROR,                                                                                \
      FINDING_WAS_REJECTED,                                                                                 \
      "stop one of the two ddprun processes; two jobs on the same nodes need different --rdzv_id and "      \
      "--master_port",                                                                                      \
      "n1 (10.0.0.2, pid 80) was rejected 2.0 s ago: ddprun was started twice on n1: pid 80 has the same "  \
      "--node_rank=1 as pid 71",                                                                            \
      "Two agents on one host joined with the same node rank. Typical causes: a scheduler that starts "     \
      "several tasks on a node, or a ddprun of an earlier start.")                                          \
    X(NODE_RANK_TAKEN, ERROR,                                                                               \
      FINDING_WAS_REJECTED "${unclaimed}",                                                                  \
      "give every node its own --node_rank, or stop the ddprun that belongs to an earlier start",             \
      "n2 (10.0.0.3, pid 90) was rejected 2.0 s ago: n2 (pid 90) has the same --node_rank=1 as n1 (pid "    \
      "80); no node has node rank 2",                                                                       \
      "Two agents on different hosts joined with the same node rank. Typical cause: a copied command "      \
      "line.")                                                                                              \
    X(NODE_RANK_TOO_HIGH, ERROR,                                                                            \
      FINDING_WAS_REJECTED,                                                                                 \
      "pass a --node_rank from 0 to nnodes - 1, or raise --nnodes on every node",                           \
      "n2 (10.0.0.3, pid 90) was rejected 2.0 s ago: n2 (pid 90) has --node_rank=2: expected a number "     \
      "from 0 to 1, because --nnodes is 2 on node 0 (n0, pid 71)",                                          \
      "Node ranks begin at 0, so the highest is one below --nnodes. The store compared the requested "      \
      "node rank with the --nnodes of the job. Typical causes: node ranks counted from 1, or an --nnodes "   \
      "that is still the value of a smaller job.")                                                           \
    /* The job already has all its nodes. */                                                                \
    X(JOB_FULL, ERROR,                                                                                      \
      FINDING_WAS_REJECTED,                                                                                 \
      "raise --nnodes, or stop the extra node, which may belong to an earlier start or to another job",     \
      "n3 (10.0.0.4, pid 99) was rejected 2.0 s ago: n3 (pid 99) is one node too many: job 'a' already "    \
      "has 2 of 2 nodes; the first node was n0",                                                            \
      "More nodes joined than --nnodes allows. Typical causes: a node of an earlier start that still runs, or "     \
      "one start too many.")                                                                                        \
    /* The nodes sent different values of one parameter. The first node sets the expected value. */         \
    X(VERSION_DIFFERS, ERROR,                                                                               \
      FINDING_WAS_REJECTED,                                                                                 \
      "install the same version of ddprun, and of ddp-rendezvous if used, on every host; versions may "     \
      "differ only in the third number",                                                                    \
      "n1 (10.0.0.2, pid 90) was rejected 2.0 s ago: n1 (pid 90) runs ddprun 0.2.0, but n0 (pid 80), "      \
      "which joined earlier, runs ddprun 0.1.0",                                                            \
      "A node has another version of ddprun than the other nodes or the store. Typical causes: an update " \
      "of ddprun on some nodes only, or several ddprun in PATH.")                                           \
    X(JOB_DIFFERS, ERROR,                                                                                   \
      FINDING_WAS_REJECTED,                                                                                 \
      "pass the same --rdzv_id on every node, or give each job its own port",                               \
      "n1 (10.0.0.2, pid 80) was rejected 2.0 s ago: n1 belongs to job 'b', but this is the rendezvous "    \
      "of job 'a'",                                                                                         \
      "A node joined with another job id. Typical cause: two jobs share a host and a port.")                \
    X(NNODES_DIFFERS, ERROR,                                                                                \
      FINDING_WAS_REJECTED,                                                                                 \
      "pass the same --nnodes on every node",                                                               \
      "n1 (10.0.0.2, pid 80) was rejected 2.0 s ago: n1 has --nnodes=3, n0 has --nnodes=2",                 \
      "The agents sent different values of --nnodes when they joined. Typical causes: different command "           \
      "lines, or PET_NNODES set on one node.")                                                                      \
    X(NPROC_DIFFERS, ERROR,                                                                                 \
      FINDING_WAS_REJECTED,                                                                                 \
      "pass the same --nproc_per_node on every node, or pass --uneven",                                     \
      "n1 (10.0.0.2, pid 80) was rejected 2.0 s ago: n1 has --nproc_per_node=4, n0 has --nproc_per_node=8", \
      "The agents sent different numbers of workers, and --uneven is not set. Typical causes: nodes with "          \
      "different numbers of GPUs, or a GPU that has failed.")                                                       \
    X(PROGRAM_DIFFERS, ERROR,                                                                               \
      FINDING_WAS_REJECTED,                                                                                 \
      "start the same program on every node, give each job its own --rdzv_id, or pass --uneven",            \
      "n1 (10.0.0.2, pid 80) was rejected 2.0 s ago: n1 starts the program 'eval.py', n0 starts "           \
      "'train.py'",                                                                                         \
      "The agents sent different program names when they joined. Typical causes: different command "         \
      "lines, or two jobs that share a host and a port.")                                                           \
    /* The next three findings reject a node because it belongs to an earlier start of the job, because \
     * the job is over, or because the store is full. */ \
    X(STALE_INSTANCE, ERROR,                                                                                \
      FINDING_WAS_REJECTED,                                                                                 \
      "restart ddprun on that node",                                                                            \
      "n1 (10.0.0.2, pid 80) was rejected 2.0 s ago: n1 belongs to an earlier run of job 'a' (instance "    \
      "id 4f); the present run has instance id 7a",                                                         \
      "The agent has the instance id of an earlier start of this job. Typical cause: a node that was "      \
      "frozen or cut off while the job was started again.")                                                 \
    X(JOB_OVER, ERROR,                                                                                      \
      FINDING_WAS_REJECTED,                                                                                 \
      "start the job again, with another --rdzv_id if the old job is still ending",                         \
      "n1 (10.0.0.2, pid 80) was rejected 2.0 s ago: job 'a' is over: n1 cannot join",                      \
      "A node joined a job that has ended. Typical causes: a node that was started too late, or the job id of "     \
      "a finished job.")                                                                                            \
    X(STORE_FULL, ERROR,                                                                                    \
      FINDING_WAS_REJECTED,                                                                                 \
      "delete keys that the program no longer needs (delete_key of PyTorch's store, ddp_store_delete "      \
      "of libddp; 'ddpctl keys' lists all keys), or pass a larger --max-bytes to ddp-rendezvous if it "     \
      "hosts the store",                                                                                    \
      "n1 (10.0.0.2, pid 80) was rejected 2.0 s ago: the store has no memory left for n1; 2 nodes of the "  \
      "job joined earlier",                                                                                 \
      "Registering the node would exceed the store's memory limit. Typical causes: many jobs or large values "      \
      "in one ddp-rendezvous.")                                                                                     \
    /* The next two findings report join messages that a correct ddprun never sends. The store rejects such \
     * messages to protect itself from other programs. */                             \
    X(BAD_JOIN, ERROR,                                                                                      \
      FINDING_WAS_REJECTED,                                                                                 \
      "report a defect of ddprun, unless another program sent the join message",                            \
      "n1 (10.0.0.2, pid 80) was rejected 2.0 s ago: n1 has 0 workers: expected a number from 1 to 4096",   \
      "A join message has values out of range. Typical cause: a program other than ddprun that sends "      \
      "join messages to the store.")                                                                        \
    X(ALREADY_IN, ERROR,                                                                                    \
      FINDING_WAS_REJECTED,                                                                                 \
      "report a defect of ddprun, unless another program sent the join message",                            \
      "n1 (10.0.0.2, pid 80) was rejected 2.0 s ago: n1 takes part in attempt 1 already",                   \
      "An agent joined twice in one attempt. Typical cause: a program other than ddprun that sends "        \
      "join messages to the store.")

/* Findings about a host of --hosts. ${remote_shell} is the remote shell, and ${words} is the output of the remote
 * shell. If a remote shell fails, launcher/remote/start.c chooses the finding from its exit status and its output. The
 * exit status alone is not sufficient, because ssh uses 255 for all its errors. The other findings are made by
 * remote/relay.c, which runs on the host, and by remote/starter.c. */
#define FINDINGS_OF_REMOTE_HOSTS(X)                                                                         \
    X(HOST_NOT_REACHED, ERROR,                                                                              \
      "${subject} was not reached${tried}: ${words}",                                                               \
      "check the name, the network and the ssh server there: '${remote_shell} ${subject} true' must succeed", \
      "n1 was not reached (tried for 14 ms): ssh: connect to host n1 port 22: Connection refused",           \
      "The remote shell ended with status 255 before ddprun ran there. Typical causes: a wrong name, a "            \
      "machine that is off, or no ssh server.")                                                                     \
    X(HOST_REJECTS_LOGIN, ERROR,                                                                            \
      "${subject} rejected the login after ${time}: ${words}",                                              \
      "install your key there with 'ssh-copy-id ${subject}', or load it with ssh-add; ddprun never asks "   \
      "for a password",                                                                                     \
      "n1 rejected the login after 310 ms: ann@n1: Permission denied (publickey).",                         \
      "ssh printed 'Permission denied'. Typical causes: no key, or a key with a passphrase that is not "    \
      "loaded into ssh-agent.")                                                                             \
    X(HOST_KEY_UNKNOWN, ERROR,                                                                              \
      "${subject} is not in known_hosts, so ssh rejected its key after ${time}: ${words}",                  \
      "run '${remote_shell} ${subject} true' once, compare the printed fingerprint with the host's " \
      "fingerprint, and accept the key; for many hosts on a network that you trust, pass " \
      "--remote_shell='ssh -o StrictHostKeyChecking=accept-new'",                                            \
      "n1 is not in known_hosts, so ssh rejected its key after 310 ms: Host key verification failed.",      \
      "The file known_hosts has no key of the remote host. ssh then asks whether to trust the host, but "   \
      "ddprun never answers. Typical "                                                                      \
      "causes: a first login to that host, or a name in --hosts that is not in known_hosts.")               \
    X(HOST_KEY_DIFFERS, ERROR,                                                                              \
      "${subject} has a host key that differs from the key in known_hosts, so ssh rejected it after ${time}: "\
      "${words}",                                                                                           \
      "find out why the key changed; if the host was reinstalled, remove its old key with "                 \
      "'ssh-keygen -R ${known_name}', then run '${remote_shell} ${subject} true' once and accept the new "  \
      "key",                                                                                                \
      "n1 has a host key that differs from the key in known_hosts, so ssh rejected it after 310 ms: Host key "\
      "for n1 has changed and you have requested strict "                                                   \
      "checking.",                                                                                          \
      "The file known_hosts has a different key of this host, or a line that revokes the host's key. "      \
      "Typical causes: a host that was installed again, an address that another host had before, or an "    \
      "attacker between the hosts.")                                                                        \
    X(HOST_HOP_FAILED, ERROR,                                                                               \
      "${starting_host} should start ddprun on ${subject}, but cannot reach it${tried}: ${words}",           \
      "pass --ssh_fanout=0 to start all hosts from here; or, on ${starting_host}, install an ssh key for "  \
      "${subject} and add ${subject} to known_hosts; --remote_shell='ssh -A' forwards your ssh-agent",      \
      "n4 should start ddprun on n20, but cannot reach it (tried for 310 ms): ann@n20: Permission denied "   \
      "(publickey).",                                                                                       \
      "With --ssh_fanout, a host that ddprun has reached starts ddprun on further hosts with its own " \
      "ssh. Typical causes: no ssh key or ssh-agent on the host that runs ssh, or a known_hosts file there " \
      "that lacks the other host.")                                                                         \
    /* The login succeeded: the faults below are on the host itself. */                                     \
    X(HOST_HAS_NO_DDPRUN, ERROR,                                                                            \
      "${subject} has no ddprun: neither ${path} nor ddprun in the PATH of a non-interactive shell",        \
      "install ddprun there at the same path, or add its directory to PATH in a file that "                 \
      "non-interactive shells read (the first lines of ~/.bashrc, or /etc/environment)",                    \
      "n1 has no ddprun: neither /usr/bin/ddprun nor ddprun in the PATH of a non-interactive shell",        \
      "The command of the remote shell ended with status 127. Typical causes: a ddprun that only interactive " \
      "shells find, or no ddprun on that host.")                                                            \
    X(HOST_NOT_READY, ERROR,                                                                                \
      "${subject} failed to start the job after ${time}: ${words}",                                         \
      "correct the error on ${subject} and start again",                                                    \
      "n1 failed to start the job after 12 ms: /home/ann/run: No such file or directory",                   \
      "The start on that host failed, and no other finding explains this. Typical causes: a missing " \
      "directory, file or library on that host.")                                                                                       \
    X(HOST_VERSION_DIFFERS, ERROR,                                                                           \
      "${subject} has another version of ddprun: ${words}",                                                  \
      "install the same version on ${subject}, or pass --ship, which copies this ddprun to every host",       \
      "n1 has another version of ddprun: 0.0.9, but the host where ddprun was started has version "          \
      "0.1.0",                                                                                               \
      "All hosts of a job need the same version of ddprun, because another version may reject some of the "  \
      "options. Typical cause: an update on some hosts only.")                                               \
    X(HOST_HAS_NO_SHELL, ERROR,                                                                              \
      "${subject} has no login shell for this user: ${words}",                                               \
      "log in as another user (user@HOST in --hosts), or ask an administrator to set a login shell there "   \
      "('chsh -s /bin/sh USER')",                                                                            \
      "n1 has no login shell for this user: This account is currently not available.",                       \
      "ssh has logged in, but the login shell is nologin, which runs no command. Typical cause: an account " \
      "for services or file transfer only.")                                                                 \
    X(HOST_MACHINE_DIFFERS, ERROR,                                                                          \
      "${subject} has another architecture: ${words}",                                                      \
      "install on ${subject} a ddprun for its architecture, and leave out --ship",                          \
      "n1 has another architecture: aarch64 cannot run a ddprun for x86_64",                                \
      "--ship copies the ddprun of the host where the job was started, but the architecture of the other host "         \
      "('uname -m') is different. Typical cause: x86-64 and Arm hosts in one list.")                                                                   \
    X(HOST_CANNOT_RUN_DDPRUN, ERROR,                                                                        \
      "${subject} failed to run ddprun after ${time}: ${words}",                                            \
      "install the missing library there, or start with --ship; if ddprun still fails there, use the ddprun of the " \
      "Python wheel, which needs only the C library",                                                       \
      "n1 failed to run ddprun after 310 ms: ddprun: error while loading shared libraries: libcjson.so.1: " \
      "cannot open "                                                                                        \
      "shared object file: No such file or directory",                                                      \
      "The loader of the host rejected ddprun. Typical causes: a library that is not installed there, or "  \
      "a C library that is older than on the host where the job was started.")                               \
    X(HOST_LACKS_DIRECTORY, ERROR,                                                                          \
      "${subject} lacks the working directory: ${words}",                                                   \
      "mount the file system on ${subject}, create the directory there, or start ddprun in a directory "    \
      "that all hosts have",                                                                                \
      "n1 lacks the working directory: /home/ann/run: No such file or directory",                           \
      "A job runs on each host in the directory where ddprun was started. Typical cause: a home directory "         \
      "that is not shared between the hosts.")                                                                      \
    X(HOST_DISK_FULL, ERROR,                                                                                \
      "${subject} has a full disk: ${words}",                                                               \
      "free space there, or choose another directory with --log_dir",                                       \
      "n1 has a full disk: /home/ann/run/logs: No space left on device (0 bytes and 7 inodes free)",        \
      "Before the job started, ddprun could not write a file on that host. ddprun stops the job only if "   \
      "--log_dir is on the full disk. Typical causes: logs or checkpoints of earlier jobs.")                  \
    X(HOST_QUOTA_FULL, ERROR,                                                                               \
      "${subject} has no quota left for this user: ${words}",                                               \
      "delete your files on that file system ('quota -s' shows the use), or choose another directory "       \
      "with --log_dir",                                                                                     \
      "n1 has no quota left for this user: /home/ann/run/logs: Disk quota exceeded",                        \
      "Before the job started, ddprun could not write a file on that host, because the disk quota of this " \
      "user is full. ddprun stops the job only if this quota also applies to --log_dir. Typical causes: "   \
      "logs or checkpoints of earlier jobs.")                                                               \
    X(HOST_BUSY, ERROR,                                                                                     \
      "${subject} rejected the start after ${time}, because it accepts no more processes or logins: ${words}", \
      "start again later; on ${subject}, end other processes, read the log of sshd, and check whether a "   \
      "firewall or fail2ban rejects logins",                                                                \
      "n1 rejected the start after 310 ms, because it accepts no more processes or logins: sh: 1: Cannot fork", \
      "A shell, sshd or ddprun on that host could not create a process, or sshd closed the connection "     \
      "before the login. Typical causes: many hosts started at once from one machine, or a limit for "      \
      "each user.")                                                                                         \
    /* The next findings report failures after the remote shell has started ddprun on the host. */                                   \
    X(HOST_ENDED, ERROR,                                                                                    \
      "${subject}: ddprun ended ${time} after its start (${words}), so the job cannot begin",               \
      "read the output of ${subject} above, correct the error and start again",                              \
      "n1: ddprun ended 2.0 s after its start (exit code 125), so the job cannot begin",                    \
      "With --hosts, ddprun on one host ended before all nodes had joined. The other nodes end, too, " \
      "because ddprun is not started again on that host. Typical causes: an option that is wrong there, or " \
      "a user who stopped ddprun there.")                                                             \
    X(HOST_LOST, ERROR,                                                                                     \
      "${subject} was lost ${time} after its ddprun had started: its remote shell ended (${words})",        \
      "check ${subject} and the network to it; the workers on ${subject} stop by themselves",                  \
      "n1 was lost 12 min after its ddprun had started: its remote shell ended (exit status 255)",          \
      "ssh ended although ddprun on that host had not reported its end. Typical causes: a failure of "      \
      "the host or the network, or a user who stopped ssh.")                                                \
    X(NO_COMMON_ADDRESS, ERROR,                                                                             \
      "${subject} (${addresses}) had no address that every other host could reach within ${time}"           \
      "${unreached}",                                                                                       \
      "open all TCP ports between the hosts in the firewall, or pass --master_addr and --master_port",      \
      "n0 (10.0.0.1) had no address that every other host could reach within 4.2 s; n1 cannot reach any "   \
      "address of n0",                                                                                      \
      "The first host of --hosts opened a port, but has no address that every other host could reach. "     \
      "Typical causes: a firewall, or a first host without an address in the network of the others.")

/* Findings about jobs that a scheduler starts. ${launch_command} is the scheduler's command that starts one ddprun on
 * each node. plan/scheduler.c compares the scheduler's variables with the options before any node connects. Only
 * NPROC_UNEVEN is made later, by the store. */
#define FINDINGS_OF_LAUNCHES(X)                                                                             \
    /* Without LAUNCHED_ON_ONE_NODE, the job would wait until --timeout for nodes on which no ddprun was    \
     * started. */                                                                                          \
    X(LAUNCHED_ON_ONE_NODE, ERROR,                                                                          \
      "${scheduler} allocated ${nnodes} nodes to ${subject}, but ${who} only on the first node",            \
      "'${launch_command} ...' starts one ddprun on each node; pass --nnodes=1 to use this node alone",     \
      "Slurm allocated 4 nodes to job 77, but ddprun runs only on the first node",                          \
      "The scheduler's variables list several nodes, but ddprun was started only on the first. Typical "     \
      "cause: a script for sbatch without srun, because sbatch runs a script on the first node only.")       \
    X(STEP_TOO_SMALL, WARNING,                                                                              \
      "${scheduler} allocated ${nnodes} nodes to ${subject}, but started ddprun on only ${started_nodes}",  \
      "start ddprun on all ${nnodes} nodes with '${launch_command} ...', without a smaller --nodes or "     \
      "--ntasks; if ${started_nodes} nodes are enough, pass --nnodes=${started_nodes}",                     \
      "Slurm allocated 4 nodes to job 77, but started ddprun on only 2",                                    \
      "The scheduler started ddprun on fewer nodes than it allocated. Typical cause: srun with a --nodes or --ntasks that " \
      "is too small.")                                                                      \
    X(NNODES_NOT_LAUNCHED, WARNING,                                                                         \
      "${subject} needs ${nnodes} nodes (--nnodes), but ${scheduler} started ddprun on ${started_nodes}",   \
      "request ${nnodes} nodes from ${scheduler}, or omit --nnodes",                                        \
      "job 77 needs 4 nodes (--nnodes), but Slurm started ddprun on 2",                                     \
      "--nnodes differs from the number of nodes on which the scheduler started ddprun. Typical cause: "    \
      "a --nnodes that was copied from a larger job.")                                                      \
    X(NPROC_UNEVEN, NOTE,                                                                                   \
      "${subject} has ${most}, ${node} has ${least}; ${world}",                                             \
      "no action is needed if the difference is intended; otherwise find out why ${node} has fewer "         \
      "workers",                                                                                             \
      "node 0 (n0, pid 71) has 8 workers, node 1 (n1, pid 80) has 7; all nodes together have 15",           \
      "Different numbers of workers are allowed if --uneven is given, or if each node counts its own "       \
      "GPUs or CPUs. The store compares the numbers that the nodes sent when they joined. Typical cause: "   \
      "a GPU has failed, so its node starts fewer workers.")

/* Findings about clients of the store's port that are not part of the job (rejected.h). Such a client may be a missing
 * node of the job. The node may run another program, belong to another job, or connect through a proxy. */
#define FINDINGS_OF_STRANGERS(X)                                                                            \
    /* 127.0.0.6 is the address from which Envoy, the proxy of Istio's sidecar, connects to a pod. If all \
     * connections arrive from this address, the store cannot distinguish the nodes. */ \
    X(PROXY_BETWEEN, ERROR,                                                                                 \
      "connections arrive from ${subject}${times}, the address of a proxy (a service mesh's sidecar)",      \
      "disable the sidecar for this job (sidecar.istio.io/inject: \"false\")",                              \
      "connections arrive from 127.0.0.6 (3 times, last 4.0 s ago), the address of a proxy (a service "     \
      "mesh's sidecar)",                                                                                    \
      "Istio's sidecar replaces the address of each client with 127.0.0.6. Typical cause: a sidecar that the "      \
      "cluster adds to every pod.")                                                                                 \
    X(TLS_CLIENT, WARNING,                                                                                  \
      "${subject} speaks TLS${times}, but the store has no --encrypt: the client may be a service mesh, a " \
      "browser, or ddprun --encrypt",                                                                       \
      "use --encrypt for the store, too; in a service mesh disable the sidecar for this job "               \
      "(sidecar.istio.io/inject: \"false\")",                                                               \
      "10.0.0.9 speaks TLS (3 times, last 4.0 s ago), but the store has no --encrypt: the client may be a " \
      "service mesh, a browser, or ddprun --encrypt",                                                       \
      "The first bytes of a connection to the store are a TLS handshake. Typical causes: --encrypt on some "        \
      "nodes only, or a service mesh.")                                                                             \
    X(TORCHRUN_INSTEAD, WARNING,                                                                            \
      "${subject} speaks PyTorch's protocol${times}, but no ddprun has joined from that address",           \
      "on the host with that address, start ddprun, not torchrun or the script itself",                     \
      "10.0.0.9 speaks PyTorch's protocol (2 times, last 4.0 s ago), but no ddprun has joined from that "   \
      "address",                                                                                            \
      "A client of PyTorch connected from an address from which no ddprun has joined. Typical cause: "      \
      "torchrun, or the script without a launcher, was started on that host.")                              \
    X(OTHER_JOB, WARNING,                                                                                   \
      "${subject} requests job '${job}'${times}; this store serves job '${here}'",                          \
      "pass the same --rdzv_id on every node; if the ddprun at that address belongs to an earlier job, "         \
      "stop it",                                                                                                 \
      "10.0.0.9 requests job 'b' (2 times, last 4.0 s ago); this store serves job 'a'",                     \
      "A ddprun process requested a job that this store does not serve. Typical causes: two jobs "        \
      "with the same host and port, or a ddprun of an earlier job.")                                             \
    X(SILENT_CLIENT, NOTE,                                                                                  \
      "${subject} connected${times}, but never sent a complete message",                                    \
      "no action is needed for a health check or a port scanner; a firewall that allows connections but "    \
      "drops their data causes the same finding",                                                           \
      "10.0.0.9 connected (4 times, last 4.0 s ago), but never sent a complete message",                    \
      "A connection to the store closed or timed out before its first message was complete. Typical causes: a "     \
      "health check, a port scanner, or a firewall.")                                                               \
    X(FOREIGN_CLIENT, NOTE,                                                                                 \
      "${subject} was rejected${times}: it speaks ${kind}; its first bytes are ${bytes}",                   \
      "no action is needed if the client is a port scanner, a health check or a monitor; otherwise "         \
      "the client may be a node that this job still waits for",                                             \
      "10.0.0.9 was rejected (2 times, last 4.0 s ago): it speaks HTTP; its first bytes are GET / "         \
      "HTTP/1.1",                                                                                           \
      "The first bytes of a connection to the store belong to another protocol. Typical causes: a port "            \
      "scanner, a health check, or a monitor.")

/* The store itself: limits of its process and its machine. diagnosis.c compares these limits with the values of the
 * snapshot. */
#define FINDINGS_OF_THE_STORE(X)                                                                            \
    X(ACCEPT_QUEUE_OVERFLOWED, WARNING,                                                                     \
      "the queue of new connections on ${subject} overflowed ${count} since the store started "             \
      "(somaxconn ${somaxconn})",                                                                           \
      "run 'sysctl net.core.somaxconn=${queue_length}' as root on that machine before the next start",      \
      "the queue of new connections on n0 overflowed 12 times since the store started (somaxconn 128)",     \
      "The kernel counts dropped connections (ListenOverflows). Clients retry after 1, 3 and 7 seconds, so "        \
      "the start is slow. Typical cause: thousands of workers that connect at once.")                               \
    X(STORE_NO_DESCRIPTORS, ERROR,                                                                          \
      "clients of the store on ${subject} had to wait ${count}: no file descriptor was free "               \
      "(ulimit -n ${open_files})",                                                                          \
      "raise the hard limit of open files on that node: 'ulimit -n 65536' if you are root, else "           \
      "LimitNOFILE= of the service that starts the store",                                                  \
      "clients of the store on n0 had to wait 7 times: no file descriptor was free (ulimit -n 1024)",       \
      "The store has reached its limit of connections, or accept has failed, for example with EMFILE. New "         \
      "clients wait in the accept queue until other clients leave. Typical cause: the default of 1024 open "        \
      "files, with many workers.")                                                                                  \
    X(STORE_NEARLY_FULL, ERROR,                                                                             \
      "the store on ${subject} has almost no memory left: ${used} of ${max} bytes are used",                                           \
      "delete keys that the program no longer needs (delete_key of PyTorch's store, ddp_store_delete "      \
      "of libddp; 'ddpctl keys' lists all keys), or pass a larger --max-bytes to ddp-rendezvous if it "     \
      "hosts the store",                                                                                    \
      "the store on n0 has almost no memory left: 1073000000 of 1073741824 bytes are used",                                            \
      "Less than 1/64 of the store's memory limit is free. Without free memory, SET requests fail. Typical "        \
      "cause: a program that never removes its keys.")

/* Reasons why a node is missing, lost or late. diagnosis.c makes most of these findings. hub/lost_rank.c makes
 * CONNECTION_BROKE from the last output lines of the rank that failed first. The agents make NODE_FROZEN,
 * NODE_STOP_SLOW and NODE_UNREACHABLE (report/host_checks.c) after they have lost the store. If the workers of a node
 * do not stop in time, the store drops the node and sends the reason DROPPED_STOP_SLOW. The agent of the node then
 * makes NODE_STOP_SLOW. */
#define DROPPED_STOP_SLOW "its workers did not stop in time"
#define ADVICE_INSTALL    "install the program, its interpreter and its libraries on every node under the same path"
#define ADVICE_PERMIT                                                                                       \
    "run 'chmod +x' on the program on that node, and check that its file system is not mounted with noexec"
#define FINDINGS_OF_NODES(X)                                                                                \
    X(PROGRAM_MISSING_ON_NODE, ERROR,                                                                       \
      "${subject} ${cannot_start}: ${words} (${time} after the start of the round)",                        \
      "if the program is missing, " ADVICE_INSTALL "; if the program is not executable, " ADVICE_PERMIT,    \
      "node 1 (n1) lacks the program or its interpreter: ./train: no such file (12 ms after the start of "  \
      "the round)",                                                                                         \
      "execve failed on that node. The finding shows whether the program is missing (ENOENT), exists but is " \
      "not executable (EACCES), or cannot be started for another reason. Typical causes: a program or virtual " \
      "environment that is only on a local disk of another node, or a missing chmod +x.")                   \
    /* Usually a connection between ranks breaks because one of the ranks has ended. So this finding needs  \
     * proof that no rank had ended. ${agents} shows whether both nodes still reached the store. */                  \
    X(CONNECTION_BROKE, ERROR,                                                                              \
      "${subject} broke ${time} after the start of the round: ${rank} reported '${line}', although no rank " \
      "had ended${agents}${path}",                                                                          \
      "check the network between these nodes: run 'ping -M do -s 1472 ${address}' (-s 8972 for MTU 9000) "  \
      "on ${host} and 'ip -s link' on both nodes, and check the firewalls; if these show no fault, a rank " \
      "on ${peer_host} may have left a process group early: check the logs there",                          \
      "the connection between node 0 (n0) and node 1 (n1) broke 12.3 s after the start of the round: rank 0 " \
      "reported 'Connection reset by peer [10.0.0.2]:41234', although no rank had ended, and ddprun on both " \
      "nodes still reaches the store "                                                                      \
      "(last messages 310 ms and 820 ms ago)",                                                              \
      "The log of the rank that failed first ends with a network error that names an address of another "   \
      "node. No worker had ended earlier. If ddprun on a node has sent no message for two heartbeats, the " \
      "finding names this node, which may be lost. ddprun has probed the path between the two nodes with "  \
      "UDP packets up to 1500 bytes. Typical causes: a switch, cable or firewall that drops connections or "\
      "large packets, or a rank that left a process group early.")                                          \
    X(WORKER_FAILED, ERROR,                                                                                 \
      "${subject} ${words}, ${time} after the start of the round",                                          \
      "read the end of the rank's log and of the report, which show the reason; later failures of "         \
      "other ranks are consequences",                                                                       \
      "rank 3 (n1, pid 812) exited with code 1, 12.3 s after the start of the round",                       \
      "This worker failed before all others of the round, by the clock of the store, and its failure "      \
      "ended the round. Typical causes: an error of the program, or a lack of memory.")                     \
    /* If a process is killed, the kernel of its machine closes the connections of the process. If the \
     * machine crashes or its network is cut, the connections stay open. */ \
    X(NODE_LOST_SILENT, ERROR,                                                                              \
      "${subject} was lost ${time} ago: it had been ${words}",                                               \
      "check whether that host is down or frozen, or its network is cut: " \
      "run 'ping' between that host and the store's host, in both directions",                                                              \
      "node 1 (n1, pid 80) was lost 12.0 s ago: it had been silent for 15.0 s",                              \
      "The node sent no heartbeat within the time of --node_timeout, and then lost its connection. "         \
      "Typical causes: a crashed or frozen machine, or a cut network.")                                     \
    X(NODE_LOST_CLOSED, ERROR,                                                                              \
      "${subject} was lost ${time} ago: ${words}",                                                     \
      "if ddprun there has ended, check its output, and the kernel's log for an out-of-memory kill; if it " \
      "still runs, check the network to the store's host",                                                  \
      "node 1 (n1, pid 80) was lost 12.0 s ago: its connection was closed",                            \
      "The agent's connection closed, although the agent had not announced that it leaves. Typical "        \
      "causes: 'kill -9', the out-of-memory killer, or a firewall that reset the connection.")              \
    /* The agent's timers show whether ddprun itself was frozen. Without this finding, a user would look    \
     * for the fault in the network. */                                         \
    X(NODE_FROZEN, ERROR,                                                                                   \
      "${subject} was frozen for at least ${time} and lost the store: ${words}",                            \
      "find out what stopped the process: 'kill -STOP', Ctrl-Z, a debugger, a frozen container, or a "      \
      "virtual machine that was moved or suspended; a larger --node_timeout tolerates longer pauses",       \
      "this ddprun (node 1, n1, pid 80) was frozen for at least 32.0 s and lost the store: the store dropped " \
      "this node with the reason 'silent for 15.0 s' (--node_timeout is 15.0 s)",                           \
      "The timers of ddprun on this node were late, so ddprun did not run for at least the time in the "    \
      "finding. Meanwhile the store dropped the node. Typical causes: SIGSTOP, a debugger, or a virtual "   \
      "machine that was moved.")                                                                            \
    X(NODE_UNREACHABLE, ERROR,                                                                              \
      "the store dropped ${subject} with the reason ${reason}, although ddprun was running all the time",   \
      "check the network and the firewalls between this node and the store: messages from this node do "    \
      "not arrive",                                                                                         \
      "the store dropped this ddprun (node 1, n1, pid 80) with the reason 'silent for 15.0 s' "             \
      "(--node_timeout is 15.0 s), although ddprun was running all the time",                               \
      "The store reported a timeout of this node, but ddprun on this node was running all the time (its "   \
      "timers were never late). Typical causes: a cut network, or a firewall that forgets idle "            \
      "connections.")                                                                                       \
    X(NODE_DIED_WAITING, ERROR,                                                                             \
      "${subject} had joined, stayed for ${stayed}, and was lost ${time} ago: ${words}",                   \
      "ddprun there exited or was killed: check its output, and start it again; the job waits",    \
      "node 1 (n1, pid 80) had joined, stayed for 3.0 s, and was lost 12.0 s ago: its connection was "      \
      "closed",                                                                                             \
      "The node was lost before the first round began. Typical causes: Ctrl-C, a time limit, or 'kill -9' on "      \
      "that node.")                                                                                                 \
    X(NODE_LEFT, ERROR,                                                                                     \
      "${subject} left ${time} ago: ${words}",                                                              \
      "check which user, scheduler or time limit stopped ddprun on that node, and start ddprun there "      \
      "again",                                                                                              \
      "node 1 (n1, pid 80) left 12.0 s ago: SIGTERM from bash (pid 77, uid 1000)",                          \
      "The agent announced that it leaves because of a signal. Typical causes: Ctrl-C, scancel, or a "              \
      "preemption.")                                                                                                \
    X(NODE_REJECTED, ERROR,                                                                                 \
      "${subject} is still missing: its ddprun was rejected ${time} ago (${code}) and exited${waits}",      \
      "fix the mismatch and restart ddprun on that node; if the job has ended, restart ddprun on every "    \
      "node",                                                                                               \
      "node 1 (n1, pid 80) is still missing: its ddprun was rejected 12.0 s ago (NNODES_DIFFERS) and exited", \
      "The other nodes wait for this node, because a rejected ddprun exits and does not try again. The "    \
      "code in parentheses is the reason: 'ddprun explain' describes it. Typical causes: another "          \
      "version, job id or option on that node.")                                                            \
    /* The store knows the node ranks of nodes that have never connected, but not their hosts. */                           \
    X(NODE_MISSING, ERROR,                                                                                  \
      "${subject} ${have} not joined within ${time}",                                                       \
      "check that ddprun runs on each missing node, with its --node_rank and with ${store_address} as the " \
      "master; if so, the output of ddprun on that node shows why the node has not joined",                                                  \
      "nodes 3, 64-127 have not joined within 32.0 s",                                                      \
      "No ddprun with this node rank has ever connected to the store. Typical causes: a node that waits "   \
      "in the queue of the scheduler, a node on which ddprun was not started, or another --master_addr.")   \
    X(TOO_FEW_NODES, ERROR,                                                                                 \
      "only ${subject} ${have} joined within ${time} (${hosts}); the job needs at least ${min}",            \
      "check that ddprun runs on the other nodes with the same --rdzv_id and ${store_address} as "          \
      "--rdzv_endpoint; if so, the output of ddprun there shows why a node has not joined",                 \
      "only 2 nodes have joined within 32.0 s (n0, n1); the job needs at least 4",                          \
      "An elastic job has fewer nodes than the minimum of --nnodes=MIN:MAX. Typical causes: nodes that wait "       \
      "in the queue of the scheduler, or nodes with another --rdzv_id.")                                                       \
    /* The remaining nodes have already stopped their workers, because a round cannot continue without      \
     * the ranks of a lost node. */                                           \
    X(TOO_FEW_LEFT, ERROR,                                                                                  \
      "only ${subject} ${are} left${lost}; the job needs at least ${min}: ${missing} must join within the " \
      "next ${left} (${knob} is ${limit}), or the job ends",                                                \
      "start ddprun on another node with the same --rdzv_id and ${store_address} as --rdzv_endpoint; Ctrl-C " \
      "on each node ends the job now; a smaller MIN in --nnodes=MIN:MAX lets a job continue with fewer "    \
      "nodes",                                                                                              \
      "only 1 node is left, because node 1 (n1, pid 80) was lost 12.0 s ago; the job needs at least 2: "    \
      "1 more node must join within the next 5.0 min (--timeout is 15 min), or the job ends",               \
      "A running elastic job lost nodes and fell below its minimum. Typical causes: preempted or failed nodes "     \
      "that have not been replaced.")                                                                               \
    X(NODE_STOP_SLOW, WARNING,                                                                              \
      "${subject} was asked to stop ${time} ago and has not stopped",                                       \
      "run 'ps -eo pid,stat,wchan:30,args' on that node: a worker in state D hangs in the kernel, and no "  \
      "signal can end it",                                                                                  \
      "node 1 (n1, pid 80) was asked to stop 20.0 s ago and has not stopped",                               \
      "The round has ended, and the grace period has passed without a reply from the agent. Typical "       \
      "cause: a network file system or a driver that does not answer.")                                     \
    X(NODE_IS_SPARE, NOTE,                                                                                  \
      "${subject} joined ${time} ago, while the job ran with ${members}: it waits as a spare for the next " \
      "round",                                                                                              \
      "no action is needed; --grow=now restarts the workers with this node at once",                         \
      "node 2 (n2, pid 90) joined 12.0 s ago, while the job ran with 2 nodes: it waits as a spare for the " \
      "next round",                                                                                         \
      "An elastic job accepts new nodes only between rounds. Typical cause: a node that was started after the "     \
      "others.")

/* Reasons why a rank does not arrive. ranks.c chooses one of these findings. If the process has ended, the finding
 * reports the end. Otherwise the choice depends on the rank's requests and on the state of the process, which the agent
 * reads from /proc. In a sentence, a part in parentheses is left out if its value is unknown. If a round fails because
 * a rank exited with code 0 while another rank needed it, hub/lost_rank.c makes RANK_EXITED_EARLY afterwards.
 *
 * If the remedy depends on the state of the rank, the advice of the row lists all states for `ddprun explain`. ranks.c
 * then selects the remedy for the present state. */
#define ADVICE_CONTINUE "kill -CONT ${pid} continues it"
#define ADVICE_DEBUGGER \
    "continue the process in its debugger: TracerPid in /proc/${pid}/status is the debugger's pid"
#define ADVICE_KERNEL                                                                                      \
    "check the kernel log of that host ('dmesg') for a disk, a network file system or a driver that does " \
    "not answer"
#define ADVICE_INSPECT                                                                                       \
    "inspect the process with 'py-spy dump --pid ${pid}' or 'gdb -p ${pid}'; a checkpoint or an " \
    "evaluation can also take this long"
#define ADVICE_READ_LOG "check the end of the rank's log"
#define ADVICE_END_TOGETHER                                                                          \
    "check for uneven numbers of batches, or for a branch in which one rank exits before the others; " \
    "let all ranks enter the same collectives, and one last barrier before they exit"
#define FINDINGS_OF_RANKS(X)                                                                                \
    X(RANK_EXITED_EARLY, WARNING,                                                                           \
      "${subject} exited with code 0${ago} while ${waiters} waited for ${it} ${where}",                     \
      ADVICE_END_TOGETHER,                                                                                  \
      "rank 0 (n1, pid 812) exited with code 0, 12.0 s ago, while ranks 1-3 waited for it at barrier "      \
      "'epoch-3'",                                                                                          \
      "The program of this rank ended without an error, but other ranks still need the rank in a barrier "   \
      "or collective. The other ranks fail when their connection to this rank closes, or wait until "        \
      "their timeout. The agent of the rank has reported exit code 0. Typical causes: uneven numbers of "    \
      "batches, or sys.exit on one rank.")                                                                  \
    /* The process has ended. Exit code 0 is a failure only if other ranks still need the rank. */                                 \
    X(RANK_KILLED, ERROR,                                                                                   \
      "${subject}: killed by signal ${signal}${where}${ago}",                                                     \
      "check the end of the rank's log; a SIGKILL without a message is often the kernel's out-of-memory "    \
      "killer",                                                                                             \
      "rank 3: killed by signal 9, SIGKILL (n1, pid 812), 12.0 s ago",                                                \
      "The process has ended, so it cannot reach the point where the others wait. The kernel or another "    \
      "process sends SIGKILL; an error of the process itself raises SIGSEGV, SIGBUS or SIGABRT. The "        \
      "agent read the signal from the wait status of the worker. Typical causes: a lack of memory "          \
      "(SIGKILL), or a defect in native code (SIGSEGV).")                                                    \
    X(RANK_EXITED, ERROR,                                                                                   \
      "${subject}: exited with code ${code}${where}${ago}",                                                       \
      "exit code 0: " ADVICE_END_TOGETHER "; any other code: " ADVICE_READ_LOG,                             \
      "rank 3: exited with code 1 (n1, pid 812), 12.0 s ago",                                                         \
      "The process has ended, so it cannot reach the point where the others wait. The agent read the "       \
      "exit code from the wait status of the worker. Typical causes: an error of the program, or an exit "   \
      "before the other ranks were done.")                                                                   \
    X(RANK_NODE_LOST, ERROR,                                                                                \
      "${subject}${where}: its node is lost; ${heard}",                                                     \
      "see the finding about the node",                                                                     \
      "rank 3 (n1, pid 812): its node is lost; last message 32.0 s ago",                                    \
      "The store no longer receives messages from the agent of the rank's node, and cannot find out "        \
      "whether the rank still runs. Without this rank the round cannot continue. Typical causes: a "        \
      "crashed machine, or a cut network.")                                                                 \
    X(RANK_STALLED, WARNING,                                                                                \
      "${subject} has not made a step for ${time}${last}; ${others} for it in ${call}; it ${does}",         \
      "state T: " ADVICE_CONTINUE "; state t: " ADVICE_DEBUGGER "; state D: " ADVICE_KERNEL "; any other "  \
      "state: " ADVICE_INSPECT,                                                                             \
      "rank 3 (n1, pid 812) has not made a step for 32.0 s (last step: 120); 7 others wait for it "         \
      "in all_reduce #1204; it is stopped (state T)",                                                    \
      "Each rank records its step and collective in shared memory. This rank has not reached the call in which the "         \
      "other ranks wait. Typical causes: a slow file system, a checkpoint, or a branch that the other ranks "       \
      "do not take.")                                                                                               \
    X(RANKS_DIVERGED, ERROR,                                                                                \
      "${subject} in ${what}, while ${other} in ${elsewhere}: their calls differ; ${elsewhere} began "      \
      "${time} ago",                                                                                        \
      "compare the code of these ranks: every rank must enter the same barriers and collectives in the "    \
      "same order; check for uneven numbers of batches, and for branches that not all ranks take",          \
      "rank 3 waits in barrier 'eval', while 3 ranks wait in barrier 'epoch-3': their calls differ; "       \
      "barrier 'epoch-3' began 32.0 s ago",                                                                 \
      "Ranks wait in two barriers. One barrier cannot open, because it needs ranks that wait in the other "  \
      "barrier. The store compares which ranks wait in which barrier. Typical causes: uneven numbers "      \
      "of batches, or a branch that depends on the rank.")                                                   \
    /* The state from /proc/PID/stat: T and t (stopped), D (sleeps and ignores signals), R (runs)           \
     * and S (sleeps). */                                                                                   \
    X(RANK_STOPPED, ERROR,                                                                                  \
      "${subject}: stopped (state ${state})${where}${since}",                                               \
      "state T: " ADVICE_CONTINUE "; state t: " ADVICE_DEBUGGER,                                            \
      "rank 3: stopped (state T) (n1, pid 812), for 32.0 s",                                                \
      "The process does nothing until a user continues it, and other ranks wait for it. State T means "      \
      "that a signal has stopped the process; state t means that a debugger has stopped it. The agent "      \
      "reads the state from /proc/PID/stat. Typical causes: Ctrl-Z, SIGSTOP, a debugger.")                   \
    X(RANK_IN_KERNEL, ERROR,                                                                                \
      "${subject}: hangs in the kernel${where}${since}; state D${wchan}",                                  \
      ADVICE_KERNEL,                                                                                        \
      "rank 3: hangs in the kernel (n1, pid 812), for 32.0 s; state D, in nfs_wait_bit_killable",          \
      "The process waits inside the kernel for a device or a file system, and ignores most signals "        \
      "until this wait ends. /proc/PID/stat has shown state D for at least two seconds. Typical "           \
      "causes: a network file system, a disk or a GPU driver that does not answer.")                        \
    X(RANK_BUSY, WARNING,                                                                                   \
      "${subject}: uses ${cpu} % CPU${where}, but has not reached the point where the others wait; "        \
      "${heard}",                                                                                           \
      "perhaps the rank is only slow (it prepares data or imports modules); inspect it with 'py-spy dump "  \
      "--pid ${pid}' or 'gdb -p ${pid}'",                                                                   \
      "rank 3: uses 98 % CPU (n1, pid 812), but has not reached the point where the others wait; last "     \
      "message 32.0 s ago",                                                                                 \
      "The process is not blocked: it computes, and has not reached the point where the others wait. "      \
      "It may be slow, or in an endless loop. The agent measures the CPU time of the process between "      \
      "two heartbeats. Typical causes: preparation of data, an import, or a compiler run on one rank.")     \
    /* Findings from the requests and connections of the rank. They are used if the state of its process    \
     * explains nothing. */                                                \
    X(RANK_WAITS_ELSEWHERE, ERROR,                                                                          \
      "${subject}: connected${where}, but waits for ${waits}, not at the point where the others wait; "     \
      "last message ${silent} ago",                                                                         \
      "find the line of the program where the calls of this rank begin to differ from the calls of the "    \
      "other ranks",                                                                                        \
      "rank 3: connected (n1, pid 812), but waits for key 'eval', not at the point where the others wait; " \
      "last message 32.0 s ago",                                                                            \
      "Most ranks wait at one place, and this rank waits at another. If each wait depends on the other, "    \
      "neither wait ends. The store detects both waits, because each wait is a request to the store. "       \
      "Typical cause: a branch that depends on the rank.")                                                   \
    X(RANK_DISCONNECTED, WARNING,                                                                           \
      "${subject}: was connected${where}, but closed its connection to the store; last message ${silent} ago",           \
      "perhaps the rank does not need the store now, or is about to exit; inspect it with 'py-spy dump "    \
      "--pid ${pid}' or 'gdb -p ${pid}'",                                                                   \
      "rank 3: was connected (n1, pid 812), but closed its connection to the store; last message 32.0 s ago",            \
      "The process has not ended, but without a connection it can neither set a key nor enter a "           \
      "barrier. The store does not see what the process does now. Typical causes: a rank that is about "    \
      "to exit, or a process group that was destroyed.")                                                    \
    X(RANK_MISSING, WARNING,                                                                                \
      "${subject}: connected${where}, but has not reached the point where the others wait; last "           \
      "message ${silent} ago${does}",                                                                       \
      "the rank sleeps, or waits for something outside the store; inspect it with 'py-spy dump --pid "      \
      "${pid}' or 'gdb -p ${pid}'",                                                                         \
      "rank 3: connected (n1, pid 812), but has not reached the point where the others wait; last "         \
      "message 32.0 s ago; it sleeps in futex_wait",                                                        \
      "The process neither computes nor waits for a key or barrier, so it probably waits for something "    \
      "that the store does not see. The store combines the requests of the rank with the state that "       \
      "the agent reads from /proc. Typical causes: a wait for a file, a lock, a child process or a GPU.")   \
    X(RANK_NOT_CONNECTED, WARNING,                                                                          \
      "${subject}: started${where}, but never connected to the store${within}${does}",                      \
      "the rank is still loading, or does not use the store; inspect it with 'py-spy dump --pid ${pid}' "   \
      "or 'gdb -p ${pid}'",                                                                                 \
      "rank 3: started (n1, pid 812), but never connected to the store within 32.0 s; it sleeps in "        \
      "futex_wait",                                                                                         \
      "The process runs, but has not reached the call that connects it to the store, such as "              \
      "init_process_group or ddp_init_from_env. The agent reported that it started the process, and no "    \
      "connection has identified itself as this rank. Typical causes: imports that take long, or a program " \
      "without init_process_group.")                                                                        \
    X(RANK_UNKNOWN, ERROR,                                                                                  \
      "${subject}: never connected${within}",                                                               \
      "check how the rank is started: no ddprun reported its start, and no process connected as this rank", \
      "rank 3: never connected within 32.0 s",                                                              \
      "The others wait for this rank, because its number is below WORLD_SIZE. But no ddprun has reported "  \
      "that it started this rank, and no process has connected as this rank. Typical cause: a WORLD_SIZE "  \
      "that is larger than the number of started ranks.")                                                   \
    X(RANK_SLOW, WARNING,                                                                                   \
      "${subject} ${is} slow: the other ranks waited ${others} % of the last ${time} in collectives, but "  \
      "${rank} waited only ${own} %${where}",                                                               \
      "compare this rank with the others: amount of data, other processes on its CPUs, clock of its "       \
      "GPU; 'ddpctl top' shows all ranks",                                                                  \
      "rank 2 (n1, pid 812) is slow: the other ranks waited 17 % of the last 60.0 s in collectives, but "   \
      "rank 2 waited only 1 %; rank 2 spends extra time in augment (data.py:41)",                           \
      "With --profile_ranks the stacks are sampled twice a second. Every collective waits for the "         \
      "slowest rank, so the slowest rank itself waits least. Samples in which all ranks wait for a GPU "    \
      "give no evidence. Typical causes: more data on that rank, another process on its CPUs, or a GPU "    \
      "at a low clock.")

/* Ranks for which all other ranks wait, found by two samples of the stacks (hang.c). If several ranks are culprits,
 * hang.c reports the first matching row. So the rows are ordered by certainty: a child process that has ended is
 * stronger evidence than a long computation. finding_names_hang prefers these rows to HANG_SYMPTOMS. ${is}, ${has} and
 * ${s} are "is", "has" and "s" for one rank, otherwise "are", "have" and "". */
#define FINDINGS_OF_HANGS(X)                                                                                \
    X(RANK_CHILD_ENDED, ERROR,                                                                              \
      "${subject} ${is} in ${place} and wait${s} for child process ${child_pid}, which has ended; no progress for ${time}; ${waiters}", \
      "the log, or 'dmesg' if memory ran out, shows how process ${child_pid} ended; a data loader needs " \
      "less memory with a smaller num_workers",                                                       \
      "rank 3 (n1, pid 812) is in next_batch (data.py:41) and waits for child process 840, which has "      \
      "ended; no progress for 42.0 s; 7 ranks wait in all_reduce (train.py:88)",                            \
      "Successive samples of the stacks are equal, and a process that the rank started is a zombie: the "    \
      "process has ended, but the rank has not collected the exit status. The rank waits in a function "     \
      "of Python or torch that manages child processes, or in a system call on a pipe, a socket or a "       \
      "child process. Typical causes: a data loader that was killed because memory ran out, or a child "     \
      "process that crashed.")                                                                               \
    X(RANK_TRACEBACK, ERROR,                                                                                \
      "${subject} ${has} failed and ${has} not exited: ${error}; the main thread is in ${place}; no progress for ${time}; ${waiters}", \
      "correct the error in the traceback; a thread or an exit handler that does not end keeps the process " \
      "alive: start threads with daemon=True, or call os._exit",                                            \
      "rank 3 (n1, pid 812) has failed and has not exited: ValueError: batch 7 is empty; the main thread is in " \
      "_shutdown (threading.py:1567); no progress for 42.0 s; 7 ranks wait in all_reduce (train.py:88)",    \
      "The rank printed a Python traceback and nothing after it, and successive samples of the stacks are equal. "         \
      "Typical causes: threads that are not daemons, or an exit handler that waits for the other ranks.")           \
    X(RANK_WAITS_FOR_CHILD, ERROR,                                                                          \
      "${subject} ${is} in ${place} and wait${s} for ${child}; no progress for ${time}; ${waiters}",        \
      "'ddpctl stacks --rank ${rank}' shows in which line of the program the child process hangs; for a "   \
      "data loader, test with num_workers=0, or set DataLoader(timeout=60)",                                \
      "rank 3 (n1, pid 812) is in next_batch (data.py:41) and waits for child process 840, which is in "    \
      "load (data.py:12), blocked in openat of /mnt/data/x.bin; no progress for 42.0 s; 7 ranks wait in all_reduce (train.py:88)", \
      "Successive samples of the stacks are equal, and the rank waits until a child process ends or " \
      "sends a message. The child process is alive and does not wait for the rank. Typical causes: a worker " \
      "of a data loader that waits for a file system, or a program that does not end.")                     \
    X(RANK_IN_LOCK, ERROR,                                                                                  \
      "${subject} ${is} in ${place} and wait${s} for a lock or for another thread, without progress for ${time}; ${waiters}", \
      "'ddpctl stacks --rank ${rank}' shows all threads of rank ${rank}: find the thread that holds the " \
      "lock, that should set the event, or that should fill the queue; if no such thread is shown, it has " \
      "ended; " \
      "a rank in Work.wait() waits for other ranks, not for a lock",                                        \
      "rank 3 (n1, pid 812) is in take_lock (data.py:41) and waits for a lock or for another thread, without progress for " \
      "42.0 s; 7 ranks wait in all_reduce (train.py:88)",                                                   \
      "Successive samples of the stacks are equal, and the main thread of the rank sleeps in futex " \
      "outside of a collective. Typical causes: two threads that take two locks in opposite order, a " \
      "fork while another thread held a lock, or Work.wait(), which waits for other ranks.") \
    X(RANK_BLOCKED, ERROR,                                                                                  \
      "${subject} ${is} in ${place}, blocked in ${call}${object}, without progress for ${time}; ${waiters}", \
      "check the other side of this call: the file system, the network peer, the process that should read " \
      "or write the pipe, or the process that holds the file lock ('lslocks')",                             \
      "rank 3 (n1, pid 812) is in load_batch (data.py:41), blocked in read of "                             \
      "/mnt/data/x.bin, without progress for 42.0 s; 7 ranks wait in all_reduce (train.py:88)",             \
      "Successive samples of the stacks are equal, and the main thread of the rank sleeps in a system " \
      "call outside of a collective. Typical causes: an NFS server that does not answer, a pipe that has no " \
      "reader or no writer, a file lock that another process holds, or a firewall that drops packets.") \
    X(RANK_SLEEPS, ERROR,                                                                                   \
      "${subject} ${is} in ${place} and sleep${s}, without progress for ${time}; ${waiters}",               \
      "'ddpctl stacks --rank ${rank}' shows all threads of rank ${rank}; if the pause is intended, pass a " \
      "larger --hang_timeout to ddprun",                                                                    \
      "rank 3 (n1, pid 812) is in load_batch (data.py:41) and sleeps, without progress for "      \
      "42.0 s; 7 ranks wait in all_reduce (train.py:88)",                                                   \
      "Successive samples of the stacks are equal, and the rank sleeps outside of a collective while others wait in "      \
      "one. Typical cause: a loop that waits for a file or a service.")                                     \
    X(RANK_LOOPS, ERROR,                                                                                    \
      "${subject} ${is} in ${place} and ${does} (${cpu} % CPU), without progress for ${time}; ${waiters}", \
      "check this function for an endless loop ('ddpctl stacks --rank ${rank}' shows its callers); if the " \
      "function is only slow, pass a larger --hang_timeout to ddprun",                                                       \
      "rank 3 (n1, pid 812) is in spin (data.py:41) and computes (99 % CPU), without progress for 42.0 s; "   \
      "7 ranks wait in all_reduce (train.py:88)",                                                   \
      "Successive samples of the stacks show the same functions, and the rank uses CPU time outside of a " \
      "collective while others wait in one. If the functions change between the samples, the " \
      "rank is reported only if it seems to be in a loop: at least eight samples contain the same function, " \
      "and the program has gone back to earlier lines. Typical causes: an endless loop, or preparation of " \
      "data on one rank only.")                                                                             \
    /* The stacks show no rank outside of a collective. The ranks may be in different calls, a rank may     \
     * wait for a key, or the network or a GPU may have failed. */                                                  \
    X(COLLECTIVES_DIFFER, ERROR,                                                                            \
      "${subject} ${waits}, while ${waiters}: their calls differ; no progress for ${time}",                 \
      "every rank must call the same collectives in the same order: check for uneven numbers of "           \
      "batches and for branches that not all ranks take",                                                   \
      "rank 3 (n1, pid 812) waits in broadcast (train.py:57), while 7 ranks wait in all_reduce "            \
      "(train.py:88): their calls differ; no progress for 42.0 s",                                          \
      "Successive samples of the stacks are equal: all ranks wait in collectives, but not all in the same collective. Typical " \
      "causes: uneven numbers of batches, or a branch that depends on the rank.")                                   \
    X(RANK_BEHIND, ERROR,                                                                                   \
      "${subject} ${has} ${misses} ${call}, in which ${waiters}${last}; no progress for ${time}",           \
      "'ddpctl stacks --rank ${rank}' shows what rank ${rank} does; 'ddpctl flight flight_torch_*' in "     \
      "the attempt's log directory compares the flight records",                                            \
      "rank 3 (n1, pid 812) has not called all_reduce #9 (Float x 1024), in which ranks 0-2 wait "          \
      "(train.py:88); its last call is all_reduce #8 (Float x 1024) (train.py:88); no progress for 42.0 s", \
      "The stacks do not name a culprit. PyTorch's flight records (ddprun --flight_recorder) show that this rank has " \
      "not reached the call in which the others wait. Typical causes: an exception that was caught, a branch that " \
      "depends on the rank, or a GPU kernel that does not end.")                                                    \
    X(RANK_NEEDS_KEY, ERROR,                                                                                \
      "${subject} ${is} in ${place} and wait${s} for ${key}, which no rank has set${setter}; no progress for ${time}${waiters}", \
      "find the rank that should set the key: it has taken another branch, has used another name for the key, or has " \
      "ended",                                                                                              \
      "rank 3 (n1, pid 812) is in wait_for_model (train.py:57) and waits for key 'epoch/3', "               \
      "which no rank has set; no progress for 42.0 s; 7 ranks wait in all_reduce (train.py:88)",            \
      "Successive samples of the stacks are equal, and the rank waits for a key of the store. Some " \
      "programs set one key for each rank, and each name ends with the number of the rank. If only one of " \
      "these keys is missing, the finding shows the rank that should set it. Typical causes: a rank that has ended, or a key whose " \
      "name depends on the rank.")                                                                           \
    X(ALL_RANKS_WAIT, ERROR,                                                                                \
      "${subject} wait in ${place}, without progress for ${time}, and every process is alive; probable "    \
      "cause: ${between}",                                                                                  \
      "check the network between the nodes ('ping -M do -s 1472 HOST', or -s 8972 for an MTU of 9000) and " \
      "the GPUs ('dmesg | grep Xid'); NCCL_DEBUG=INFO prints the transport that NCCL uses",                 \
      "all 8 ranks wait in all_reduce (train.py:88), without progress for 42.0 s, and every process "       \
      "is alive; probable cause: the connection between n0 and n1 (rank 0 sends to 10.9.7.2:57878 without " \
      "an answer)",                                                                                         \
      "Successive samples of the stacks show all ranks in the same collective, and no process has ended. " \
      "If the kernel sends a rank's data again and again without an answer, the finding shows the two " \
      "nodes. It also states whether the path between these nodes loses large packets. Typical causes: a " \
      "bad cable or switch, a path MTU that is too small, or a failed GPU (Xid).")

/* Ranks that wait because of the problems above. */
#define FINDINGS_OF_WAITERS(X)                                                                              \
    X(BARRIER_INCOMPLETE, WARNING,                                                                          \
      "${subject}: ${arrived} of ${members} ranks have waited for ${time}; missing: ${missing}",            \
      "see the findings about the missing ranks",                                                           \
      "barrier 'epoch-3': 3 of 4 ranks have waited for 32.0 s; missing: rank 3",                            \
      "A barrier opens when all its members have arrived. Some have waited for ten seconds, or the "        \
      "barrier has timed out, and the named ranks are missing. The findings above this one show why. "      \
      "Typical causes: a missing rank that computes, has ended, or waits elsewhere.")                       \
    X(INIT_INCOMPLETE, WARNING,                                                                             \
      "${subject}: ${arrived} of ${members} ranks have waited for ${time} for ${what}; missing: "           \
      "${missing}",                                                                                         \
      "see the findings about the missing ranks; the waiting ranks continue when the missing ranks " \
      "arrive",                     \
      "init_process_group: 3 of 4 ranks have waited for 32.0 s for rank 3's Gloo address; missing: rank 3", \
      "The ranks wait for a key that a missing rank sets during the set-up of a process group of "          \
      "PyTorch. Typical causes: a rank that is still importing, has failed, or was not started.")           \
    X(RANK_STATE_DIFFERS, WARNING,                                                                          \
      "${subject} ${does}, while ${others}; no progress for ${time}; the stacks cannot be read: ${note}",   \
      "'ddpctl stacks' shows what all threads wait for; once py-spy can read the stacks, the next report "   \
      "shows the line of the program",                                                                       \
      "rank 3 (n1, pid 812) is sleeping in clock_nanosleep, while 7 ranks are sleeping in futex; no "       \
      "progress for 43.0 s; the stacks cannot be read: py-spy is not installed; pip install py-spy",        \
      "There are two cases. Either each of several samples found this rank asleep in the same system call, " \
      "and the other ranks in another one. Or this rank printed a Python traceback and then slept. The "    \
      "finding is "                                                                                         \
      "uncertain without stacks: the others may wait for something else, or the program may have handled "   \
      "the exception. Typical causes: a sleep, a read from a file, pipe or socket without data, or a "       \
      "hang at the exit of a rank.")                                                                         \
    X(STACKS_UNREADABLE, NOTE,                                                                              \
      "the job made no progress for ${time}, and the stacks of ${subject} cannot be read: ${note}",         \
      "make the stacks readable, as the finding says; then ddprun reports the rank that the others wait for", \
      "the job made no progress for 36.0 s, and the stacks of 4 ranks cannot be read: py-spy is not "       \
      "installed; pip install py-spy",                                                                      \
      "Stacks were sampled because the job made no progress, but no sample shows a Python "     \
      "frame. Typical causes: py-spy is not installed, or the system forbids ptrace.")                       \
    X(KEY_NOT_SET, WARNING,                                                                                 \
      "${waiters} for ${subject}, for ${time} now; no rank has set it",                                     \
      "find the rank that should set the key, among the ranks that do not wait: it is busy, has ended, "    \
      "or has taken another branch",                                                                        \
      "rank 1 (n1, pid 812) waits for key 'model-ready', for 32.0 s now; no rank has set it",               \
      "The waiting ranks continue as soon as some rank sets the key; until then these ranks do nothing. " \
      "The wait has lasted for ten seconds. Typical causes: a rank that is busy or has ended, or a key " \
      "whose name depends on the rank.")

/* PyTorch's ranks during the setup of a process group. ${who} lists processes; processes that do not belong to the job
 * come first. PyTorch itself reports such problems only after its timeout (30 min by default) and names no process. The
 * store counts the registrations of each group (hub/torch_observer.c), so these findings name the processes within
 * seconds. hub/lost_rank.c makes INIT_ABANDONED when the connection of a waiting rank closes, and keeps this finding
 * until the end of the round. */
#define FINDINGS_OF_TORCH(X)                                                                                \
    X(STORE_SHARED, ERROR,                                                                                  \
      "${subject}: two launches have shared this store for ${time} (${count} ${come}, ${belong}): ${who}",  \
      "stop the launch that you do not want; if the launch that you keep still waits after that, start it " \
      "again, because PyTorch still counts the stopped processes; to run both launches, give each launch "  \
      "its own --master_port",                                                                              \
      "init_process_group: two launches have shared this store for 10.0 s (4 processes take part, but the " \
      "job has 2 ranks): the other launch has pid 90 on n1 (python x.py), as rank 0; pid 91 on n1 (python " \
      "x.py), as rank 1; this job has rank 0 (n1, pid 71); rank 1 (n1, pid 72)",                            \
      "Processes of another launch have registered in the same process group. Typical cause: two "       \
      "launches with the same host and port.")                                                              \
    X(GROUP_TOO_LARGE, WARNING,                                                                             \
      "${subject}: the group has been too large for ${time} (${count} ${come}, ${belong}): ${who}",         \
      "if the program starts processes that join the group (mp.spawn), start them with --nproc_per_node "   \
      "instead; if the program sets the group up twice, give the second group its own keys: "               \
      "init_process_group(store=PrefixStore('second', TCPStore(...)), ...); if another launch used this "   \
      "store, give each launch its own --master_port",                                                      \
      "init_process_group: the group has been too large for 10.0 s (4 processes of this job take part, but " \
      "the job has 2 ranks): pid 75, started by rank 0; pid 76, started by rank 1; rank 0 (n1, pid 71); "   \
      "rank 1 (n1, pid 72)",                                                                                \
      "More processes registered in a PyTorch process group than the job has ranks. Typical causes: mp.spawn "      \
      "inside the workers, or a second init_process_group with the same store.")                                    \
    X(RANK_REPEATED, WARNING,                                                                               \
      "${subject} has registered twice in init_process_group, the second time ${time} ago: two processes act " \
      "as this rank",                                                                                       \
      "if the program starts processes that join the group (mp.spawn), start them with "                    \
      "--nproc_per_node instead, or set another MASTER_PORT for them",                                      \
      "rank 0 has registered twice in init_process_group, the second time 4.0 s ago: two processes act as " \
      "this rank",                                                                                          \
      "Two connections have set the address of the same rank. ddprun reports this only if a worker has failed " \
      "or the job makes no progress. Typical cause: every worker starts its own ranks, which inherit MASTER_PORT.")             \
    X(GROUP_BEYOND_JOB, ERROR,                                                                              \
      "${subject}: ${arrived} of ${members} ranks have waited for ${time} for ${what}, but the highest "       \
      "rank of this job is ${last}",                                                                        \
      "the program asks for a larger world than this job has: pass RANK and WORLD_SIZE to "                 \
      "init_process_group, or start more workers (--nproc_per_node, --nnodes)",                             \
      "init_process_group: 2 of 2 ranks have waited for 32.0 s for rank 2's Gloo address, but the highest " \
      "rank of this job is 1",                                                                              \
      "The ranks wait for the key of a rank that does not exist: its number is not below WORLD_SIZE. "      \
      "Typical causes: a world_size that the script sets itself, or an environment variable of another launcher.") \
    X(INIT_ABANDONED, ERROR,                                                                                \
      "${subject} gave up ${setup_function} after it waited ${time} for ${what}; ${why}",                   \
      "make sure that every rank calls ${setup_function}, and that the program expects at most WORLD_SIZE ranks; " \
      "init_process_group(timeout=...) allows more time",                                                   \
      "rank 0 (n1, pid 71) gave up init_process_group after it waited 60.0 s for rank 1's Gloo address; "   \
      "rank 1: stopped (state T) (n1, pid 72), for 58.0 s",                                                 \
      "A rank waited for a process group of PyTorch until the group's timeout, and then exited. Typical "           \
      "causes: a rank that is stopped, has failed, or loads its data for longer than the timeout.")

#define FINDINGS(X)                                                                                         \
    FINDINGS_OF_HOSTS(X)                                                                                    \
    FINDINGS_OF_CONNECTIONS(X)                                                                              \
    FINDINGS_OF_REFUSALS(X)                                                                                 \
    FINDINGS_OF_REMOTE_HOSTS(X)                                                                             \
    FINDINGS_OF_LAUNCHES(X)                                                                                 \
    FINDINGS_OF_STRANGERS(X)                                                                                \
    FINDINGS_OF_THE_STORE(X)                                                                                \
    FINDINGS_OF_NODES(X)                                                                                    \
    FINDINGS_OF_TORCH(X)                                                                                    \
    FINDINGS_OF_HANGS(X)                                                                                    \
    FINDINGS_OF_RANKS(X)                                                                                    \
    FINDINGS_OF_WAITERS(X)

/* Codes of findings that may explain a hang, but are uncertain or do not use the stacks. The member `hang` of
 * report.json names one of these codes, or a row of FINDINGS_OF_HANGS. --on_hang acts on one of these findings only if
 * find_verdict (hub/monitor.c) makes it the verdict. */
#define HANG_SYMPTOMS(X)  \
    X(RANK_STOPPED)       \
    X(RANK_STALLED)       \
    X(RANK_IN_KERNEL)     \
    X(RANK_EXITED_EARLY)  \
    X(RANKS_DIVERGED)     \
    X(RANK_STATE_DIFFERS) \
    X(KEY_NOT_SET)        \
    X(GROUP_TOO_LARGE)    \
    X(RANK_REPEATED)

/* clang-format on */

enum finding_grade {
#define X(name, word) FINDING_##name##_GRADE,
    FINDING_GRADES(X)
#undef X
};

/* The order of the codes is the order of printing, but notes are printed last. If several codes fit a hang, hang.c uses
 * the first of them. */
enum finding_code {
    FINDING_NONE,
#define X(code, ...) FINDING_##code,
    FINDINGS(X)
#undef X
        FINDING_CODES
};

/* Sizes of the texts in bytes, with the NUL. A longer text is cut; a sentence or an advice then ends with "...". The
 * protocol has the same limits (hub/messages.h). */
enum { FINDING_SUBJECT_MAX = 160, FINDING_TEXT_MAX = 640 };

/* One finding, as text. The struct has no pointers, so it can be copied and sent. */
struct finding {
    enum finding_code code;
    /* number of findings with the same code that are not in the list; set only in the last listed finding with this
     * code */
    uint32_t more;
    char subject[FINDING_SUBJECT_MAX];
    char sentence[FINDING_TEXT_MAX];
    char advice[FINDING_TEXT_MAX];
};

/* Return the name of a code, such as "NODE_MISSING". The texts of codes, grades, sentences and advice are constant. */
const char *finding_code_name(enum finding_code code);
/* Return the grade of a code, such as "error". */
const char *finding_grade_name(enum finding_code code);
bool finding_is_trouble(enum finding_code code); /* true for a warning or an error */
bool finding_is_count(enum finding_code code);   /* true if the finding counts missing nodes */
/* Return true if the finding is about a hang and replaces `kept`. `kept` is the code of an earlier finding about this
 * hang, or FINDING_NONE if no such finding exists. A verdict replaces every finding. A symptom replaces only
 * FINDING_NONE or its own code, because a later symptom may be a consequence of the hang. */
bool finding_names_hang(enum finding_code code, enum finding_code kept);
/* Return the code with this name, or FINDING_NONE. */
enum finding_code finding_by_name(const char *name);

/* Return the sentence (finding_sentence) or the advice (finding_advice) of this code. The text contains
 * placeholders. */
const char *finding_sentence(enum finding_code code);
const char *finding_advice(enum finding_code code);

/* Make the finding with this code. The arguments after `subject` are pairs: the name of a placeholder and its text.
 * NULL ends the pairs. A text that is too long is cut and ends with "...". The text of the pair "advice" replaces the
 * advice of the row, and may contain placeholders, too. */
void finding_make(struct finding *f, enum finding_code code, const char *subject, ...)
    __attribute__((sentinel));

/* Format "GPU 2 of n1" in `out`, and return `out`. `gpu` is an index or a UUID, as in CUDA_VISIBLE_DEVICES. */
const char *finding_gpu_name(char out[FINDING_SUBJECT_MAX], const char *gpu, const char *host);
/* Make GPU_BUSY about the GPU of a failed rank. `users` names the other processes on this GPU, from the record of the
 * failure. Return false if `users` is empty. */
bool finding_gpu_users(struct finding *f, const char *gpu, const char *host, int rank, const char *users);

/* The text that finding_format prints before the code. */
#define FINDING_CODE_MARK "\n  finding  "

/* Return the name of the code that finding_format has written in `text`, or NULL if `text` has no code. */
const char *finding_named_in(const char *text);

/* Format sentence, advice and code as three lines; the last line has no newline. */
void finding_format(const struct finding *f, char *text, size_t size);

/* Return the sentence without "subject: " in front. The finding owns the text. */
const char *finding_predicate(const struct finding *f);

/* Append `text` with all placeholders filled in. For each placeholder, `put` is called with `user` and the
 * placeholder's name, and appends the value to `out`. Return false if memory is short. */
typedef bool (*finding_word)(void *user, struct slice word, struct buf *out);
bool finding_fill(struct buf *out, const char *text, finding_word put, void *user);

/* Append the table as a section of the manual page. Return false if memory is short. */
bool findings_print_man(struct buf *out);

/* --- explain ------------------------------------------------------------------------------------------------ */

/* Append the meaning, the detection, typical causes, the remedy and an example of `code`. `code` is the name of a
 * finding ("RANK_STALLED", in any case), an exit code of ddprun ("125"), or the name of a signal ("SIGKILL" stands for
 * exit code 137). If `code` is only a part of some names of findings, append one line for each of these names. If
 * `code` is NULL, append one line for each finding and exit code. With `as_json`, append one JSON object instead.
 * Return DDP_ERR_ARG if no code matches, or DDP_ERR_NOMEM if memory is short. */
ddp_status explain_code(const char *code, bool as_json, struct buf *out, struct ddp_err *err);

#endif
