/* The way of nearly every token, in C: one read from the engine, one write to the client, no Python between.
 *
 * `express.py` and `reactor.py` hold the same in Python. They say what is right, and run where this was not built.
 * `serve` is `Reactor.walk`: it waits in the reactor's epoll and walks what is ready. `Pass` is what `express` makes:
 * the handler of an engine's connection that stands between two chunks. Whatever is not one plain token, in one
 * chunk, in one read, which the client takes at once, goes to the methods of `Upstream` and `Stream` that handle it in
 * Python too; so does every handler that is no `Pass`.
 *
 * A `Pass` writes down for itself what it passed on, and tells stream and events only when Python is about to look:
 * before it calls a method of theirs, and when the stream says `settle`.
 *
 * Nothing here blocks while it holds the interpreter's lock: sockets are told not to wait, and `serve` gives the lock
 * back for as long as it waits itself.
 */

#ifndef TOKEN_PASS_H
#define TOKEN_PASS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

#define RECV_BYTES (64 * 1024)
#define PLAIN_BYTES 4096
#define MAX_EVENTS 512

#define LENGTH(literal) (sizeof(literal) - 1)
#define USAGE "\"usage\""

/* Names of what is read, set and called in Python objects. */
#define NAMES(X)                                                                                                       \
    X(broke) X(client) X(client_left) X(events) X(failed) X(fd) X(fileno) X(gaps) X(heard_at) X(hold) X(last) X(now)   \
    X(on_event) X(recv) X(send) X(sock) X(take) X(token_at) X(woken)

/* The module's. */
typedef struct {
    PyTypeObject *pass_type;
    PyTypeObject *socket_type;
    PyObject *one;
#define FIELD(name) PyObject *name;
    NAMES(FIELD)
#undef FIELD
} State;

typedef struct {
    PyObject_HEAD
    PyObject *upstream;
    PyObject *stream;
    PyObject *events;
    PyObject *reactor;
    PyObject *bounds;
    PyObject *gaps;
    PyObject *recv;
    PyObject *send;
    PyObject *client_fileno; /* `fileno` of the client's socket if it is one of the system's, else NULL */
    int engine_fd;           /* -1 unless the engine's socket is one of the system's */
    /* What stream and events were not told yet. */
    long tokens;
    double token_at; /* when the last of them came */
    char *last;      /* its chunk */
    Py_ssize_t last_size;
    Py_ssize_t last_room;
} Pass;

extern PyType_Spec pass_spec;

/* What a digit of a chunk's size stands for; -1 for what is none. */
int hex_value(char letter);

/* Whether `text` is one whole chunk with one event of one line that only goes on. */
int is_plain_token(const char *text, Py_ssize_t length);

/* The handler: what epoll said of the engine's socket, in a batch that began at `now`; -1 for an error that is set. */
int handle(State *state, Pass *pass, uint32_t mask, double now);

/* Tell stream and events what was passed on since they were told last; -1 for an error that is set. */
int settle(State *state, Pass *pass);

/* `serve(reactor, epoll_fd, handlers, nap_s, wait_ms, turn_s)`: how many events were served. */
PyObject *serve(PyObject *module, PyObject *args);

/* `find_done(data, at, end)`: where the first `[DONE]` in data[at:end] is; -1 is nowhere. */
PyObject *find_done(PyObject *module, PyObject *args);

/* `find_usage(data, at, end)`: where the first "usage" with something in it is in data[at:end]; -1 is nowhere. */
PyObject *find_usage(PyObject *module, PyObject *args);

/* `line_ends(data)`: how many LF there are. */
PyObject *line_ends(PyObject *module, PyObject *data);

/* `whole_chunks(data, at)`: what the whole chunks from there on hold, none of which is the last, and where they end. */
PyObject *whole_chunks(PyObject *module, PyObject *args);

/* Take the error that is set. */
PyObject *caught(void);

#endif
