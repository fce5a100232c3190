/* findings.h -- everything that ddprun can detect about a job that does not start, hangs or fails: one table.
 *
 * A row is a stable code, a severity, a sentence and an advice. The report at a time-out, `ddpctl why`, its JSON, the
 * reports of barriers and the manual page are printed from here. The rows stand in the order in which they are
 * printed: a possible cause stands above its consequences.
 *
 * In the texts ${subject} is the culprit ("rank 3", "node 1 (n1, pid 77)"); the maker of a finding passes every other
 * word in braces. */
#ifndef RENDEZVOUS_FINDINGS_H
#define RENDEZVOUS_FINDINGS_H

#include "base/buf.h"

#include <stdint.h>

/* A note is no trouble by itself; a warning may be the reason for trouble; an error needs a user who acts. */
#define FINDING_GRADES(X) \
    X(NOTE, "note")       \
    X(WARNING, "warning") \
    X(ERROR, "error")

/* clang-format off */

/* A node's findings about itself before it starts any worker. */
#define FINDINGS_OF_HOSTS(X)                                                                                 \
    X(PORT_IN_USE, ERROR,                                                                                    \
      "${subject}: port ${port} is taken by ${holder}",                                                      \
      "end that process if it is a leftover, or give this job another --master_port on every node")          \
    X(NOBODY_SERVES, ERROR,                                                                                  \
      "nobody serves the store: ${subject} is none of the addresses of ${host} (${addresses})",              \
      "give an address of the node that shall have the store, or say --host_store=yes on exactly one node")  \
    X(MASTER_NAME_IS_LOOPBACK, ERROR,                                                                        \
      "on ${host} the name '${subject}' means ${address}, where no other node can reach the store",          \
      "remove the name from that line of /etc/hosts on ${host}, or give the address as a number on all "     \
      "nodes: ${such}")                                                                                      \
    X(BRIDGE_ADDRESS, WARNING,                                                                               \
      "${subject} is the address of ${interface} on ${host}, which other machines are likely to have as "    \
      "well",                                                                                                \
      "give an address that all nodes reach, as ${such}")                                                    \
    X(LOOPBACK_ADDRESS, WARNING,                                                                             \
      "${subject} is a loopback address: only ddprun processes on ${host} can join through it",              \
      "no change if all nodes run on ${host}; for nodes on other hosts give an address that they reach, on every node: ${such}") \
    X(LIMIT_NOFILE, WARNING,                                                                                 \
      "${subject} allows ${have} open files, and this job needs about ${need} there",                        \
      "'ulimit -n ${need}' before the start, LimitNOFILE= of a service, or nofile in limits.conf")           \
    X(LIMIT_NPROC, WARNING,                                                                                  \
      "${subject} allows this user ${have} processes and threads, and this job needs about ${need} there",   \
      "'ulimit -u ${need}' before the start, or nproc in limits.conf")                                       \
    X(LIMIT_MEMLOCK, WARNING,                                                                                \
      "${subject} allows ${have} of locked memory, and it has InfiniBand, which needs all it can get",       \
      "set LimitMEMLOCK=infinity for the service that starts ddprun (slurmd, the container's runtime); "     \
      "limits.conf does not count for services")                                                             \
    X(SHM_SMALL, WARNING,                                                                                    \
      "/dev/shm on ${subject} has ${have} free, and ${workers} need about ${need} there",                    \
      "start the container with --shm-size=8g or --ipc=host, or delete what dead jobs have left there")      \
    X(ADDRESS_NOT_UNIQUE, ERROR,                                                                             \
      "${subject} and ${other} both say that they are at ${address}: an address inside each of them "        \
      "(docker0 and the like) and no way between them",                                                      \
      "give each node an address that the others reach: --local_addr")                                       \
    X(ADDRESS_TRANSLATED, WARNING,                                                                           \
      "${subject} has the address ${own}, and comes to the store from ${seen}: addresses are translated on " \
      "the way (NAT)",                                                                                       \
      "the store needs no more, but nobody can connect to that node: for workers that connect to each "      \
      "other (libddp, Gloo, NCCL) give it a network without translation, a container --network=host")        \
    X(PORTS_CLOSED, ERROR,                                                                                   \
      "the store's port is open, but others are not: ${subject} ${words}",                                               \
      "workers talk over ports of the kernel's choice: open all TCP ports between the nodes, or some of them "   \
      "and name those (libddp: DDP_PORT_RANGE=LOW-HIGH)")

/* Between a node and the store; launcher/net/dial_plan.h says which fits when. ${host} is the name as the user
 * wrote it, ${at} the address and port that were tried, ${address} the address alone, ${here} this node, ${took} how
 * long it took, ${bytes} the first bytes of an answer, ${hosts} the line of /etc/hosts. */
#define FINDINGS_OF_CONNECTIONS(X)                                                                           \
    X(NAME_IS_LOOPBACK, ERROR,                                                                               \
      "on ${here} the name '${host}' means ${address}, which is ${here} itself; the store is on another "    \
      "node${hosts}",                                                                                        \
      "remove that name from the line in /etc/hosts of ${here}, or give the address as a number on all "     \
      "nodes")                                                                                               \
    X(NAME_UNKNOWN, ERROR,                                                                                   \
      "${here} does not find the name '${host}' (no such name)",                                             \
      "check the spelling; the name of a new pod or machine takes a while: is it scheduled, and does the "   \
      "service have this name? A numeric address needs no name service")                                     \
    X(RESOLVER_DOWN, ERROR,                                                                                  \
      "${here} cannot ask for the name '${host}': its name service does not answer",                         \
      "look at /etc/resolv.conf on ${here}, or give the address as a number")                                \
    X(RESOLVER_SILENT, ERROR,                                                                                \
      "${here} has asked its name service for '${host}', and has had no answer for ${took}",                 \
      "look at /etc/resolv.conf on ${here}, or give the address as a number")                                \
    X(RESOLVE_FAILED, ERROR,                                                                                 \
      "${here} cannot find the address of '${host}' (${error})",                                             \
      "give the address as a number")                                                                        \
    X(NO_ROUTE, ERROR,                                                                                       \
      "${here} has no route to ${address}",                                                                  \
      "is it the right network? 'ip route get ${address}' shows what ${here} would do; an interface may be " \
      "down, or a container has a network of its own")                                                       \
    X(ROUTE_UNREACHABLE, ERROR,                                                                              \
      "${here} has a route that declares ${address} unreachable",                                            \
      "'ip route get ${address}' on ${here} shows the rule")                                                 \
    X(ROUTE_PROHIBITED, ERROR,                                                                               \
      "${here} has a route or rule that prohibits ${address}",                                               \
      "'ip route get ${address}' and 'ip rule' on ${here} show it; a firewall's output rules may be it")     \
    X(FAMILY_OFF, ERROR,                                                                                     \
      "${here} cannot use the address ${address}: its protocol is switched off here",                        \
      "give an address of the other family (IPv4 or IPv6), or switch it on")                                 \
    X(ROUTE_FAILED, ERROR,                                                                                   \
      "${here} has no way to ${address} (${error})",                                                         \
      "'ip route get ${address}' on ${here} shows what it would do")                                         \
    X(MASTER_IS_LOOPBACK, ERROR,                                                                             \
      "${at} is ${here} itself, and nothing listens there; the store is on another node",                    \
      "give the address of the node that has the store, as the other nodes see it, on all nodes; when all "   \
      "of them run on this machine: is the one with the store started, with the same port?")                  \
    X(CONNECT_REFUSED, ERROR,                                                                                \
      "${at} is up and refuses after ${took}: nothing listens on that port",                                 \
      "is ddprun running there, with the same port? A store that listens on another address, and a "         \
      "firewall that rejects, look the same from here")                                                      \
    X(CONNECT_DROPPED, ERROR,                                                                                \
      "${at} does not answer: no connection within ${took}, and no refusal either",                          \
      "a firewall or security group that drops packets to that port, a wrong address, or a machine that is " \
      "frozen; a firewall must let that one TCP port in")                                                    \
    X(HOST_SILENT, ERROR,                                                                                    \
      "no machine answers for ${address} on its network (the kernel gave up after ${took})",                 \
      "is that machine up, is the address right, is its cable or link up?")                                  \
    X(CONNECT_REJECTED, ERROR,                                                                               \
      "somebody on the way to ${at} says after ${took} that it must not be reached",                         \
      "a firewall rejects it (firewalld does so by default): let that TCP port in")                          \
    X(NET_UNREACHABLE, ERROR,                                                                                \
      "a router on the way to ${at} knows no way there",                                                     \
      "is it the right network? 'ip route get ${address}' shows the first step")                             \
    X(CONNECT_PROHIBITED, ERROR,                                                                             \
      "${here} is not allowed to connect to ${at}",                                                          \
      "a route, a firewall's output rule or a container's policy on ${here} prohibits it")                   \
    X(NO_DESCRIPTORS, ERROR,                                                                                 \
      "${here} has no file descriptor left for a connection",                                                \
      "'ulimit -n' raises the limit")                                                                        \
    X(CONNECT_FAILED, ERROR,                                                                                 \
      "the connection to ${at} fails after ${took} (${error})",                                              \
      "look at the network between ${here} and ${address}")                                                  \
    X(HELLO_UNANSWERED, ERROR,                                                                               \
      "${at} takes connections, but nobody there says a word within ${took}",                                \
      "its ddprun may be stopped or starved; or a proxy (a service mesh's sidecar) or another service has "  \
      "that port")                                                                                           \
    X(HELLO_CUT, ERROR,                                                                                      \
      "${at} takes connections and closes them at our first words",                                          \
      "a store of another user of its host (start it as the same user, or with --insecure), a proxy or load " \
      "balancer without a store behind it, PyTorch's own store (before 2.5) or another "      \
      "service; in a service mesh switch the sidecar off for this job (sidecar.istio.io/inject: \"false\")")                                   \
    X(PORT_IS_HTTP, ERROR,                                                                                   \
      "${at} is a web server or HTTP proxy and not a store: it says \"${bytes}\"",                           \
      "choose another port, or give the store's own address and not a proxy's")                              \
    X(PORT_IS_TLS, ERROR,                                                                                    \
      "${at} speaks TLS and is not a store",                                                                 \
      "choose another port; in a service mesh switch the sidecar off for this job "                          \
      "(sidecar.istio.io/inject: \"false\")")                                                                \
    X(PORT_IS_SSH, ERROR,                                                                                    \
      "${at} is an SSH server and not a store: it says \"${bytes}\"",                                        \
      "choose another port")                                                                                 \
    X(PORT_IS_TORCH, ERROR,                                                                                  \
      "${at} is a store of PyTorch's (torchrun, or a script's own) and not of ddprun's",                     \
      "start ddprun on that node too, and not torchrun; or choose another port")                             \
    X(PORT_IS_FOREIGN, ERROR,                                                                                \
      "${at} is another service and not a store: it says \"${bytes}\"",                                      \
      "choose another port")                                                                                 \
    X(HELLO_FAILED, ERROR,                                                                                   \
      "the connection to ${at} breaks at our first words (${error})",                                        \
      "look at the network between ${here} and ${address}")

/* Refused nodes; the sentence in ${words} names both values and both hosts (admission.c). */
#define FINDING_WAS_REFUSED "a node was refused ${time} ago: ${words}"
#define FINDINGS_OF_REFUSALS(X)                                                                              \
    X(WRONG_TASK_LAYOUT, ERROR, "${words}",                                                                  \
      "start one ddprun on each node, which starts the workers itself (srun --ntasks-per-node=1 ddprun "     \
      "..., mpirun --map-by ppr:1:node ddprun ...), or run one worker in each task (ddprun --per_task ...)") \
    X(LAUNCHED_TWICE, ERROR, "${words}",                                                                     \
      "end one of the two; two jobs on the same nodes need different --rdzv_id and --master_port")           \
    X(NODE_RANK_TAKEN, ERROR, "${words}${unclaimed}",                                                        \
      "give every node a --node_rank of its own; end the other ddprun if it is a stray one")                 \
    X(NODE_RANK_TOO_HIGH, ERROR, FINDING_WAS_REFUSED,                                                        \
      "node ranks count from 0 to nnodes - 1")                                                               \
    X(JOB_FULL, ERROR, "${words}",                                                                           \
      "raise --nnodes, or end a node that is not wanted: one of an earlier start, or of another job")        \
    X(VERSION_DIFFERS, ERROR, FINDING_WAS_REFUSED,                                                           \
      "install the same version of ddprun on every node")                                                    \
    X(JOB_DIFFERS, ERROR, FINDING_WAS_REFUSED,                                                               \
      "give every node the same --rdzv_id, or another port to each job")                                     \
    X(NNODES_DIFFERS, ERROR, FINDING_WAS_REFUSED,                                                            \
      "give every node the same --nnodes")                                                                   \
    X(NPROC_DIFFERS, ERROR, FINDING_WAS_REFUSED,                                                             \
      "give every node the same --nproc_per_node, or say --uneven")                                          \
    X(PROGRAM_DIFFERS, ERROR, FINDING_WAS_REFUSED,                                                           \
      "start the same program on every node, give each job an --rdzv_id, or say --uneven")                       \
    X(STALE_INSTANCE, ERROR, FINDING_WAS_REFUSED,                                                            \
      "start this ddprun again")                                                                             \
    X(JOB_OVER, ERROR, FINDING_WAS_REFUSED,                                                                  \
      "start the job again, under another --rdzv_id if the old one is still ending")                         \
    X(STORE_FULL, ERROR, FINDING_WAS_REFUSED,                                                                \
      "raise the store's --max_bytes")                                                                       \
    X(BAD_JOIN, ERROR, FINDING_WAS_REFUSED,                                                                  \
      "this is an error in ddprun: please report it")                                                        \
    X(ALREADY_IN, ERROR, FINDING_WAS_REFUSED,                                                                \
      "this is an error in ddprun: please report it")

/* How the job was started, by a scheduler and on its nodes. ${launch} is what starts one ddprun on each node there. */
#define FINDINGS_OF_LAUNCHES(X)                                                                              \
    X(LAUNCHED_ON_ONE_NODE, ERROR,                                                                           \
      "${scheduler} has given ${subject} ${count} nodes, but ${who} only on the first of them",              \
      "'${launch} ...' starts one on each node; --nnodes=1 says that this node is enough")                   \
    X(STEP_IS_SMALLER, WARNING,                                                                              \
      "${scheduler} has given ${subject} ${count} nodes, but has started ddprun on ${launched} of them",     \
      "'${launch} ...' starts one on each node (look for --ntasks=1); --nnodes=${launched} says that it is " \
      "meant")                                                                                               \
    X(NNODES_NOT_LAUNCHED, WARNING,                                                                          \
      "${subject} wants ${count} nodes (--nnodes), but ${scheduler} has started ddprun on ${launched}",      \
      "ask ${scheduler} for ${count} nodes, or leave --nnodes out")                                          \
    X(NPROC_UNEVEN, NOTE,                                                                                    \
      "${subject} brings ${most} and ${other} ${least}; ${world}",                                           \
      "nothing, if that is what you want; else look why ${other} counts less")

/* Clients of the store's port that are no part of the job. */
#define FINDINGS_OF_STRANGERS(X)                                                                             \
    X(PROXY_BETWEEN, ERROR,                                                                                  \
      "connections come in from ${subject}${times}, which is a proxy's address (a service mesh's sidecar)",  \
      "switch the sidecar off for this job (sidecar.istio.io/inject: \"false\")")                            \
    X(TLS_CLIENT, WARNING,                                                                                   \
      "${subject} speaks TLS to the store${times}: a service mesh or a browser, and no ddprun",              \
      "in a service mesh switch the sidecar off for this job (sidecar.istio.io/inject: \"false\")")          \
    X(TORCHRUN_INSTEAD, WARNING,                                                                             \
      "${subject} speaks PyTorch's protocol${times}, but no ddprun has joined from there",                   \
      "start ddprun there, in place of torchrun or the bare script")                                         \
    X(OTHER_JOB, WARNING,                                                                                    \
      "${subject} asks for job '${job}'${times}, and this store serves job '${here}'",                       \
      "give every node the same --rdzv_id; end a launcher that is left from another job")                    \
    X(SILENT_CLIENT, NOTE,                                                                                   \
      "${subject} has connected${times} and never said a whole word",                                        \
      "a health check or a port scanner; or a firewall that lets connections begin and drops what follows")  \
    X(FOREIGN_CLIENT, NOTE,                                                                                  \
      "${subject} was turned away${times}: it speaks ${kind}, its first bytes are ${bytes}",                   \
      "a port scanner, a health check or a monitor; harmless, but a node that is missing may be behind it")

/* The store itself. */
#define FINDINGS_OF_THE_STORE(X)                                                                             \
    X(ACCEPT_QUEUE_OVERFLOWED, WARNING,                                                                      \
      "the queue for new connections on ${subject} has overflowed ${count} times since the store began "     \
      "(somaxconn ${somaxconn})",                                                                            \
      "sysctl net.core.somaxconn=${wanted} on that machine")                                                 \
    X(STORE_WITHOUT_FILES, ERROR,                                                                            \
      "the store on ${subject} has turned ${count} connections away for want of file descriptors",           \
      "raise the hard limit there: 'ulimit -n', LimitNOFILE= of a service")                                  \
    X(STORE_OUT_OF_ROOM, ERROR,                                                                                     \
      "the store on ${subject} is full: ${used} of ${max} bytes",                                            \
      "raise --max-bytes, or look for a program that keeps data in keys: ddpctl keys")

/* Why a node is not here. */
#define FINDINGS_OF_NODES(X)                                                                                 \
    X(PROGRAM_MISSING_ON_NODE, ERROR,                                                                        \
      "${subject} cannot start the program: ${words}",                                                       \
      "the program, its interpreter and its libraries must be there on every node under the same name")      \
    X(WORKER_FAILED, ERROR,                                                                                  \
      "${subject} ${words}, ${time} after the start of the round",                                           \
      "what came after this is a consequence; its last words are in its log and in the report")              \
    X(NODE_LOST_SILENT, ERROR,                                                                               \
      "${subject} has been lost for ${time}: ${words}",                                                          \
      "the machine or the network to it is down, or it is frozen; what ran there cannot be asked")           \
    X(NODE_LOST_CLOSED, ERROR,                                                                               \
      "${subject} has been lost for ${time}: ${words}",                                                          \
      "its ddprun has ended or was killed there: look at its output, and for an out-of-memory kill")         \
    X(NODE_STOOD_STILL, ERROR,                                                                               \
      "${subject} stood still for at least ${time}, and the job goes on without it: ${words}",               \
      "find out what stopped it: kill -STOP, Ctrl-Z, a debugger, a frozen container, a virtual machine that " \
      "was moved or suspended; a --node_timeout longer than such a pause lets the job wait for it")          \
    X(NODE_UNHEARD, ERROR,                                                                                   \
      "the store has given up ${subject}, although it ran all the time: ${words}",                           \
      "what it says does not arrive: look at the network and the firewalls between it and the store")        \
    X(NODE_CAME_AND_DIED, ERROR,                                                                             \
      "${subject} had come, stayed ${stayed}, and has been gone for ${time}: ${words}",                          \
      "its ddprun has ended or was killed there: look at its output; start it again, the job waits")         \
    X(NODE_LEFT, ERROR,                                                                                      \
      "${subject} has left ${time} ago: ${words}",                                                           \
      "somebody has stopped it there: a user, a scheduler, a time limit")                                    \
    X(NODE_WAS_REFUSED, ERROR,                                                                               \
      "${subject} is still missing: its ddprun was refused (${code}) and has ended",                         \
      "mend what it was refused for and start it again there${then}")                                        \
    X(NODE_NEVER_CAME, ERROR,                                                                                \
      "${subject} ${have} not come: no ddprun with that node rank has joined in ${time}",     \
      "is ddprun started there, with this --node_rank and with ${endpoint} as the master? If it is, it "     \
      "says itself where it is stuck")                                                                       \
    X(TOO_FEW_NODES, ERROR,                                                                                  \
      "${subject} ${have} come in ${time}: ${hosts}",                                                           \
      "is ddprun started on the others, with the same --rdzv_id and ${endpoint} as --rdzv_endpoint? If it "  \
      "is, it says itself where it is stuck")                                                                \
    X(TOO_FEW_LEFT, ERROR,                                                                                   \
      "only ${subject} ${are} left: the job waits for ${missing} to join, for ${left} at "                       \
      "most (${knob} is ${limit}), and ends then",                                                           \
      "start ddprun on another node with the same --rdzv_id and ${endpoint} as --rdzv_endpoint, and it goes " \
      "on; Ctrl-C on each of the nodes ends it now; a smaller MIN in --nnodes=MIN:MAX lets it go on with fewer") \
    X(NODE_DOES_NOT_STOP, WARNING,                                                                           \
      "${subject} was told to stop ${time} ago and has not said that it has",                                \
      "a worker there may be in the kernel and cannot be killed; see its own output")                        \
    X(LATE_NODE_IS_SPARE, NOTE,                                                                              \
      "${subject} came when the job was running with ${members}: it waits as a spare for the next round",    \
      "nothing; --grow=now restarts the workers with it at once")

/* Why a rank does not come: what is known of it. "the end of a process outweighs what it does now". */
#define FINDINGS_OF_RANKS(X)                                                                                 \
    X(RANK_LEFT_EARLY, WARNING,                                                                              \
      "${subject} ended with 0 while ${waiters} waited for ${it} ${where}",                                     \
      "it believed to be ready: uneven numbers of batches, or a branch that ends one rank early; let every " \
      "rank come to the same barriers and collectives, and all of them to one last barrier before they end") \
    X(RANK_KILLED, ERROR,                                                                                    \
      "${subject}: was killed by signal ${signal}${where}",                                                  \
      "look at its last words; a kill without words is often the kernel's, for memory")                      \
    X(RANK_EXITED, ERROR,                                                                                    \
      "${subject}: has exited with code ${code}${where}",                                                    \
      "with 0 it believes to be ready while others wait for it; else look at its last words")                \
    X(RANK_NODE_LOST, ERROR,                                                                                 \
      "${subject}: its node is lost${where}",                                                                \
      "see what is said of the node")                                                                        \
    X(RANK_STANDS_STILL, WARNING,                                                                            \
      "${subject} has made no step for ${time}${last}, and ${others} for it in ${call}; it ${does}",       \
      "it may only need longer (a checkpoint, an evaluation); kill -CONT ${pid} if it is stopped, else ask it " \
      "with py-spy dump --pid ${pid} or gdb -p ${pid}")                                                      \
    X(UNEVEN_INPUTS, ERROR,                                                                                  \
      "${subject} in ${what}, while ${other} in ${elsewhere}: they have gone different ways",                \
      "uneven numbers of batches, or a branch that not all ranks take: every rank must come to the same "    \
      "barriers and collectives in the same order")                                                          \
    X(RANK_STOPPED, ERROR,                                                                                   \
      "${subject}: is stopped (state T)${where}${since}",                                                    \
      "kill -CONT ${pid} lets it go on; a debugger or a suspended terminal may hold it")                     \
    X(RANK_IN_KERNEL, ERROR,                                                                                 \
      "${subject}: hangs in the kernel (state D${wchan})${where}${since}",                                   \
      "a disk, a network file system or a driver does not answer on that host: look there first")            \
    X(RANK_BURNS_CPU, WARNING,                                                                               \
      "${subject}: computes (${cpu} % CPU)${where} and has not come; ${heard}",                               \
      "it may only need longer (preparing data, importing); ask it with py-spy dump --pid ${pid} or gdb")    \
    X(RANK_WAITS_ELSEWHERE, ERROR,                                                                           \
      "${subject}: connected${where}, but waits for ${waits}; last heard ${silent} ago",                     \
      "it has gone another way than the others: compare what they call before this point")                   \
    X(RANK_DISCONNECTED, WARNING,                                                                            \
      "${subject}: was connected${where}, but has closed its connection; last heard ${silent} ago",          \
      "it may compute on without the store, or be about to end; ask it with py-spy dump or gdb")             \
    X(RANK_HAS_NOT_COME, WARNING,                                                                            \
      "${subject}: connected${where}, but has not come; last heard ${silent} ago${does}",                    \
      "it sleeps or waits for something outside the store: ask it with py-spy dump --pid ${pid} or gdb")     \
    X(RANK_NOT_CONNECTED, WARNING,                                                                           \
      "${subject}: never connected; its process was started${where}${does}",                                 \
      "it is still loading, or uses no store at all; ask it with py-spy dump --pid ${pid} or gdb")           \
    X(RANK_UNKNOWN, ERROR,                                                                                   \
      "${subject}: never connected",                                                                         \
      "no agent has started it here, and it has not introduced itself")

/* The ranks that wait because of the above. */
#define FINDINGS_OF_WAITERS(X)                                                                               \
    X(BARRIER_WAITS, WARNING,                                                                                \
      "${subject}: ${arrived} of ${members} ranks have waited for ${time}, ${missing} missing",              \
      "see what is said of the missing ranks")                                                               \
    X(SETUP_UNFINISHED, WARNING,                                                                             \
      "${subject}: ${arrived} of ${members} ranks have been in it for ${time} and wait for ${what}; not there: " \
      "${missing}",                                                                                          \
      "see what is said of the ranks that are not there; it goes on by itself when they come")               \
    X(KEY_AWAITED, WARNING,                                                                                  \
      "${waiters} for ${subject}, for ${time} now, and nobody has set it",                                      \
      "the rank that sets it is busy, gone, or on another way: see the ranks that do not wait")

/* What PyTorch's ranks do at the start. ${who} are processes, those first that do not belong there. */
#define FINDINGS_OF_TORCH(X)                                                                                 \
    X(STORE_SHARED, ERROR,                                                                                   \
      "${subject}: ${count} processes take part, ${belong}: two launches share this store: ${who}",            \
      "end the launch that is not wanted, and start the other again if it waits, too: PyTorch waits for a "   \
      "number that cannot be right any more, and more time would not help; or give each a --master_port of "  \
      "its own")                                                                                             \
    X(GROUP_TOO_LARGE, WARNING,                                                                              \
      "${subject}: ${count} ${come}, ${belong}: ${who}",                               \
      "when the program starts processes that join the group (mp.spawn), start them with --nproc_per_node "  \
      "instead, or give them RANK and WORLD_SIZE that count all of them; when it sets the group up again, give "  \
      "that one names of its own: init_process_group(store=PrefixStore('second', TCPStore(...)), ...); when "   \
      "another launch has used this store, give each a --master_port")                                       \
    X(GROUP_BEYOND_JOB, ERROR,                                                                               \
      "${subject}: ${arrived} of ${members} ranks have been in it for ${time} and wait for ${what}, but the last " \
      "rank of this job is ${last}",                                                                          \
      "the program asks for a larger world than this job has: let init_process_group take rank and world_size "  \
      "from RANK and WORLD_SIZE, or start as many workers as it counts on (--nproc_per_node, --nnodes)")     \
    X(SETUP_GIVEN_UP, ERROR,                                                                                 \
      "${subject} gave up ${setup} after ${time} of waiting for ${what}; ${why}",                            \
      "see to it that every rank comes there, and that the program counts on no more than WORLD_SIZE of them; " \
      "init_process_group(timeout=...) gives them more time")

#define FINDINGS(X)                                                                                          \
    FINDINGS_OF_HOSTS(X)                                                                                     \
    FINDINGS_OF_CONNECTIONS(X)                                                                               \
    FINDINGS_OF_REFUSALS(X)                                                                                  \
    FINDINGS_OF_LAUNCHES(X)                                                                                  \
    FINDINGS_OF_STRANGERS(X)                                                                                 \
    FINDINGS_OF_THE_STORE(X)                                                                                 \
    FINDINGS_OF_NODES(X)                                                                                     \
    FINDINGS_OF_TORCH(X)                                                                                     \
    FINDINGS_OF_RANKS(X)                                                                                     \
    FINDINGS_OF_WAITERS(X)

/* clang-format on */

enum finding_grade {
#define X(name, word) FINDING_##name##_GRADE,
    FINDING_GRADES(X)
#undef X
};

enum finding_code {
    FINDING_NONE,
#define X(code, ...) FINDING_##code,
    FINDINGS(X)
#undef X
        FINDING_CODES
};

enum { FINDING_SUBJECT_MAX = 160, FINDING_TEXT_MAX = 640 };

/* One finding, as text. */
struct finding {
    enum finding_code code;
    uint32_t more; /* others of the same code that were left out after this one */
    char subject[FINDING_SUBJECT_MAX];
    char sentence[FINDING_TEXT_MAX];
    char advice[FINDING_TEXT_MAX];
};

/* "NODE_NEVER_CAME", "error". */
const char *finding_code_name(enum finding_code code);
const char *finding_grade_name(enum finding_code code);
bool finding_is_trouble(enum finding_code code); /* more than a note */
bool finding_is_count(enum finding_code code);   /* says who is missing, and not why */
/* FINDING_NONE when there is no such row. */
enum finding_code finding_by_name(const char *name);

/* The texts of a row, with their words still in braces. */
const char *finding_sentence(enum finding_code code);
const char *finding_advice(enum finding_code code);

/* Fill in a row: `subject`, then pairs of a word and its text, then NULL. Longer text is cut with "...". */
void finding_make(struct finding *f, enum finding_code code, const char *subject, ...)
    __attribute__((sentinel));

/* The sentence behind "subject: ", when it begins so. */
const char *finding_predicate(const struct finding *f);

/* The words of a template that stand for something, put by a callback: false = memory is short. */
typedef bool (*finding_word)(void *user, struct slice word, struct buf *out);
bool finding_fill(struct buf *out, const char *text, finding_word put, void *user);

/* The table as a section of the manual page. False when memory is short. */
bool findings_print_man(struct buf *out);

#endif
