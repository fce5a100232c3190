/* port_hold.h -- a port that is kept free for a worker to listen on later. Who asks for a free port and closes it again may
 * see it given to any connection of this machine before the worker, seconds later, has come so far. */
#ifndef LAUNCHER_PORT_HOLD_H
#define LAUNCHER_PORT_HOLD_H

/* A socket that is bound, on every address, and does not listen: the kernel gives its port to nobody who does not name it, and
 * lets those who name it with SO_REUSEADDR (as PyTorch's store does) listen there. Returns it, yours to close, and its port; -1
 * (errno) when there is none. */
int port_hold(int *port);

#endif
