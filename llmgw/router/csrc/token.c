/* One token's way from the engine's socket to the client's. */

#include "token_pass.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* What was read is a Python object only once it is known how long it is. The interpreter's lock guards it. */
static char arrived[RECV_BYTES];

/* ---- telling Python ---- */

static int add_to_attribute(PyObject *object, PyObject *name, long amount)
{
    PyObject *before = PyObject_GetAttr(object, name);
    PyObject *more = before != NULL ? PyLong_FromLong(amount) : NULL;
    PyObject *after = more != NULL ? PyNumber_Add(before, more) : NULL;
    Py_XDECREF(before);
    Py_XDECREF(more);
    int result = after != NULL ? PyObject_SetAttr(object, name, after) : -1;
    Py_XDECREF(after);
    return result;
}

/* Set an attribute to what is given away, and whose making may have failed. */
static int set_attribute(PyObject *object, PyObject *name, PyObject *value)
{
    int result = value != NULL ? PyObject_SetAttr(object, name, value) : -1;
    Py_XDECREF(value);
    return result;
}

int settle(State *state, Pass *pass)
{
    long tokens = pass->tokens;
    if (tokens == 0)
        return 0;
    pass->tokens = 0;
    if (add_to_attribute(pass->events, state->events, tokens) < 0
        || set_attribute(pass->events, state->last, PyBytes_FromStringAndSize(pass->last, pass->last_size)) < 0
        || set_attribute(pass->stream, state->heard_at, PyFloat_FromDouble(pass->token_at)) < 0)
        return -1;
    return set_attribute(pass->stream, state->token_at, PyFloat_FromDouble(pass->token_at));
}

/* Call a method of the connection or the stream, which may look at everything. The argument is given away. */
static int tell(State *state, Pass *pass, PyObject *object, PyObject *method, PyObject *argument)
{
    PyObject *result = NULL;
    if (settle(state, pass) == 0)
        result = PyObject_CallMethodOneArg(object, method, argument);
    Py_DECREF(argument);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* ---- one token ---- */

static int keep(Pass *pass, const char *text, Py_ssize_t length)
{
    if (length > pass->last_room) {
        char *room = PyMem_Realloc(pass->last, (size_t)length * 2);
        if (room == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        pass->last = room;
        pass->last_room = length * 2;
    }
    memcpy(pass->last, text, (size_t)length);
    pass->last_size = length;
    return 0;
}

/* Put a new item into a list; its making may have failed. */
static int set_item(PyObject *list, Py_ssize_t index, PyObject *item)
{
    return item != NULL ? PyList_SetItem(list, index, item) : -1;
}

/* Count a gap in the first class that ends at it or above, and to the sum behind them. */
static int count_gap(State *state, Pass *pass, double gap)
{
    Py_ssize_t low = 0, high = PyTuple_GET_SIZE(pass->bounds), sum = PyList_GET_SIZE(pass->gaps) - 1;
    while (low < high) {
        Py_ssize_t middle = (low + high) / 2;
        if (PyFloat_AS_DOUBLE(PyTuple_GET_ITEM(pass->bounds, middle)) < gap)
            low = middle + 1;
        else
            high = middle;
    }
    PyObject *before = PyList_GetItem(pass->gaps, low);
    if (before == NULL || set_item(pass->gaps, low, PyNumber_Add(before, state->one)) < 0)
        return -1;
    before = PyList_GetItem(pass->gaps, sum);
    double total = before != NULL ? PyFloat_AsDouble(before) : -1.0;
    if (total == -1.0 && PyErr_Occurred())
        return -1;
    return set_item(pass->gaps, sum, PyFloat_FromDouble(total + gap));
}

/* A read brought a token: write it down, and the gap before it. */
static int note(State *state, Pass *pass, const char *text, Py_ssize_t length, double now)
{
    double before = pass->token_at;
    if (pass->tokens == 0) { /* Python may have moved it since */
        PyObject *token_at = PyObject_GetAttr(pass->stream, state->token_at);
        if (token_at == NULL)
            return -1;
        before = PyFloat_AsDouble(token_at);
        Py_DECREF(token_at);
        if (before == -1.0 && PyErr_Occurred())
            return -1;
    }
    if (keep(pass, text, length) < 0)
        return -1;
    pass->tokens++;
    pass->token_at = now;
    return count_gap(state, pass, now - before);
}

/* Whether a call failed only for now: epoll says again that there is something, and what was not sent is held. */
static int not_now(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* One read from the engine: its length, -1 for an error that is set, -2 when there is nothing. The bytes are in
 * `arrived`, or in `*object` when a socket that is not the system's made one. */
static Py_ssize_t receive(Pass *pass, PyObject **object)
{
    if (pass->engine_fd >= 0) {
        ssize_t length = recv(pass->engine_fd, arrived, RECV_BYTES, MSG_DONTWAIT);
        if (length < 0 && not_now())
            return -2;
        if (length < 0)
            PyErr_SetFromErrno(PyExc_OSError);
        return length;
    }
    *object = PyObject_CallFunction(pass->recv, "i", RECV_BYTES);
    if (*object != NULL && !PyBytes_Check(*object)) {
        PyErr_SetString(PyExc_TypeError, "a socket's recv returned no bytes");
        Py_CLEAR(*object);
    }
    if (*object != NULL)
        return PyBytes_GET_SIZE(*object);
    if (!PyErr_ExceptionMatches(PyExc_BlockingIOError))
        return -1;
    PyErr_Clear();
    return -2;
}

/* What a client's socket that is not the system's took, or -1 for an error that is set. */
static Py_ssize_t give_by_call(Pass *pass)
{
    PyObject *taken = PyObject_CallFunction(pass->send, "y#", pass->last, pass->last_size);
    if (taken == NULL && PyErr_ExceptionMatches(PyExc_BlockingIOError)) {
        PyErr_Clear();
        return 0;
    }
    Py_ssize_t sent = taken != NULL ? PyLong_AsSsize_t(taken) : -1;
    Py_XDECREF(taken);
    return sent;
}

/* One write of the last chunk to the client: how much it took, or -1 for an error that is set. */
static Py_ssize_t give(Pass *pass)
{
    if (pass->client_fileno == NULL)
        return give_by_call(pass);
    /* The descriptor is asked for each time: a socket that was closed says -1, and its number may be another's. */
    PyObject *number = PyObject_CallNoArgs(pass->client_fileno);
    if (number == NULL)
        return -1;
    int fd = (int)PyLong_AsLong(number);
    Py_DECREF(number);
    ssize_t sent = send(fd, pass->last, (size_t)pass->last_size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && not_now())
        return 0;
    if (sent < 0)
        PyErr_SetFromErrno(PyExc_OSError);
    return sent;
}

static int pass_on(State *state, Pass *pass, const char *text, Py_ssize_t length, double now)
{
    if (note(state, pass, text, length, now) < 0)
        return -1;
    Py_ssize_t sent = give(pass);
    if (sent == length)
        return 0;
    if (sent < 0) {
        if (!PyErr_ExceptionMatches(PyExc_OSError))
            return -1;
        PyErr_Clear();
        if (settle(state, pass) < 0)
            return -1;
        PyObject *told = PyObject_CallMethodNoArgs(pass->stream, state->client_left);
        Py_XDECREF(told);
        return told == NULL ? -1 : 0;
    }
    PyObject *rest = PyBytes_FromStringAndSize(pass->last + sent, length - sent);
    return rest != NULL ? tell(state, pass, pass->stream, state->hold, rest) : -1;
}

int handle(State *state, Pass *pass, uint32_t mask, double now)
{
    if (mask != EPOLLIN) {
        PyObject *said = PyLong_FromUnsignedLong(mask);
        return said != NULL ? tell(state, pass, pass->upstream, state->on_event, said) : -1;
    }
    PyObject *chunk = NULL;
    Py_ssize_t length = receive(pass, &chunk);
    if (length == -2)
        return 0;
    if (length < 0)
        return PyErr_ExceptionMatches(PyExc_OSError) ? tell(state, pass, pass->upstream, state->broke, caught()) : -1;
    const char *text = chunk != NULL ? PyBytes_AS_STRING(chunk) : arrived;
    if (is_plain_token(text, length)) {
        int result = pass_on(state, pass, text, length, now);
        Py_XDECREF(chunk);
        return result;
    }
    if (chunk == NULL && (chunk = PyBytes_FromStringAndSize(arrived, length)) == NULL)
        return -1;
    return tell(state, pass, pass->upstream, state->take, chunk);
}
