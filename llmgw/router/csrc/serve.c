/* `serve`: the reactor's wait in its epoll, and its walk over what is ready. */

#include "token_pass.h"

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>

static double monotonic(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)((int64_t)now.tv_sec * 1000000000 + now.tv_nsec) / 1e9;
}

PyObject *caught(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
#endif
}

/* What is ready within `wait_ms`; -1 for an error that is set. */
static int poll_ready(int epoll_fd, struct epoll_event *ready, int wait_ms)
{
    int found;
    do {
        if (wait_ms == 0) {
            found = epoll_wait(epoll_fd, ready, MAX_EVENTS, 0);
        } else {
            Py_BEGIN_ALLOW_THREADS
            found = epoll_wait(epoll_fd, ready, MAX_EVENTS, wait_ms);
            Py_END_ALLOW_THREADS
        }
    } while (found < 0 && errno == EINTR && PyErr_CheckSignals() == 0);
    if (found < 0 && !PyErr_Occurred())
        PyErr_SetFromErrno(PyExc_OSError);
    return found;
}

static void nap(double seconds)
{
    struct timespec length = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    Py_BEGIN_ALLOW_THREADS
    clock_nanosleep(CLOCK_MONOTONIC, 0, &length, NULL); /* a signal makes it shorter, which is as well */
    Py_END_ALLOW_THREADS
}

/* One event to its handler, if it has one; an error of the handler's is told to the reactor. */
static int serve_one(State *state, PyObject *reactor, PyObject *handlers, const struct epoll_event *event, double now)
{
    PyObject *fd = PyLong_FromLong(event->data.fd);
    if (fd == NULL)
        return -1;
    PyObject *handler = PyDict_GetItemWithError(handlers, fd);
    int result = handler == NULL && PyErr_Occurred() ? -1 : 0;
    if (handler != NULL) {
        Py_INCREF(handler); /* it may take itself out of the handlers */
        if (Py_IS_TYPE(handler, state->pass_type)) {
            result = handle(state, (Pass *)handler, event->events, now);
        } else {
            PyObject *mask = PyLong_FromUnsignedLong(event->events);
            PyObject *returned = mask != NULL ? PyObject_CallOneArg(handler, mask) : NULL;
            Py_XDECREF(mask);
            Py_XDECREF(returned);
            result = returned == NULL ? -1 : 0;
        }
        Py_DECREF(handler);
        if (result < 0 && PyErr_ExceptionMatches(PyExc_Exception)) {
            PyObject *error = caught();
            PyObject *told = PyObject_CallMethodObjArgs(reactor, state->failed, fd, error, NULL);
            Py_DECREF(error);
            Py_XDECREF(told);
            result = told == NULL ? -1 : 0;
        }
    }
    Py_DECREF(fd);
    return result;
}

/* A batch of events that begins now; 1 when a handler woke a task, 0 when none did, -1 for an error that is set. */
static int serve_batch(
    State *state, PyObject *reactor, PyObject *handlers, const struct epoll_event *ready, int found, double at)
{
    PyObject *now = PyFloat_FromDouble(at);
    int result = now != NULL ? PyObject_SetAttr(reactor, state->now, now) : -1;
    Py_XDECREF(now);
    for (int i = 0; i < found && result == 0; i++)
        result = serve_one(state, reactor, handlers, &ready[i], at);
    if (result < 0)
        return -1;
    PyObject *woken = PyObject_GetAttr(reactor, state->woken);
    if (woken == NULL)
        return -1;
    result = PyObject_IsTrue(woken);
    Py_DECREF(woken);
    return result;
}

PyObject *serve(PyObject *module, PyObject *args)
{
    PyObject *reactor, *handlers;
    int epoll_fd, wait_ms;
    double nap_s, turn_s;
    if (!PyArg_ParseTuple(
            args, "OiO!did:serve", &reactor, &epoll_fd, &PyDict_Type, &handlers, &nap_s, &wait_ms, &turn_s))
        return NULL;
    State *state = PyModule_GetState(module);
    struct epoll_event ready[MAX_EVENTS];
    double began = monotonic();
    Py_ssize_t served = 0;
    int found = poll_ready(epoll_fd, ready, 0);
    while (found > 0) {
        double now = monotonic();
        served += found;
        int woken = serve_batch(state, reactor, handlers, ready, found, now);
        if (woken < 0)
            return NULL;
        if (woken > 0 || now - began >= turn_s)
            break;
        if (nap_s > 0)
            nap(nap_s);
        if (PyErr_CheckSignals() < 0)
            return NULL;
        found = poll_ready(epoll_fd, ready, nap_s > 0 ? 0 : wait_ms);
    }
    return found < 0 ? NULL : PyLong_FromSsize_t(served);
}
