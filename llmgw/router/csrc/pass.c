/* `Pass`, the type. */

#include "token_pass.h"

#include <string.h>

static PyObject *attribute_of(PyObject *object, PyObject *first, PyObject *second)
{
    PyObject *between = PyObject_GetAttr(object, first);
    if (between == NULL)
        return NULL;
    PyObject *found = PyObject_GetAttr(between, second);
    Py_DECREF(between);
    return found;
}

/* The socket whose own method this is, if it is one of the system's (borrowed). */
static PyObject *system_socket(State *state, PyObject *method, const char *name)
{
    if (!PyCFunction_Check(method) || strcmp(((PyCFunctionObject *)method)->m_ml->ml_name, name) != 0)
        return NULL;
    PyObject *self = PyCFunction_GET_SELF(method);
    return self != NULL && PyObject_TypeCheck(self, state->socket_type) ? self : NULL;
}

static int fill(State *state, Pass *pass)
{
    pass->gaps = PyObject_GetAttr(pass->stream, state->gaps);
    pass->recv = attribute_of(pass->upstream, state->sock, state->recv);
    pass->send = attribute_of(pass->stream, state->client, state->send);
    if (pass->gaps == NULL || pass->recv == NULL || pass->send == NULL)
        return -1;
    if (!PyList_Check(pass->gaps) || PyList_GET_SIZE(pass->gaps) != PyTuple_GET_SIZE(pass->bounds) + 2) {
        PyErr_SetString(PyExc_TypeError, "the gaps of a stream are no list with a cell a class, one beyond, and a sum");
        return -1;
    }
    if (system_socket(state, pass->recv, "recv") != NULL) {
        /* Whoever closes it takes the handler out of the reactor first: the number stays its own. */
        PyObject *fd = PyObject_GetAttr(pass->upstream, state->fd);
        if (fd == NULL)
            return -1;
        pass->engine_fd = (int)PyLong_AsLong(fd);
        Py_DECREF(fd);
        if (PyErr_Occurred())
            return -1;
    }
    PyObject *client = system_socket(state, pass->send, "send");
    if (client != NULL && (pass->client_fileno = PyObject_GetAttr(client, state->fileno)) == NULL)
        return -1;
    return 0;
}

static int check(PyObject *bounds)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bounds); i++) {
        if (!PyFloat_Check(PyTuple_GET_ITEM(bounds, i))) {
            PyErr_SetString(PyExc_TypeError, "a bound is no float");
            return -1;
        }
    }
    return 0;
}

static PyObject *pass_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"upstream", "stream", "events", "reactor", "bounds", NULL};
    PyObject *upstream, *stream, *events, *reactor, *bounds;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OOOOO!:Pass", names, &upstream, &stream, &events, &reactor, &PyTuple_Type, &bounds))
        return NULL;
    Pass *pass = (Pass *)type->tp_alloc(type, 0);
    if (pass == NULL)
        return NULL;
    pass->engine_fd = -1;
    pass->upstream = Py_NewRef(upstream);
    pass->stream = Py_NewRef(stream);
    pass->events = Py_NewRef(events);
    pass->reactor = Py_NewRef(reactor);
    pass->bounds = Py_NewRef(bounds);
    if (check(bounds) < 0 || fill(PyType_GetModuleState(type), pass) < 0)
        Py_CLEAR(pass);
    return (PyObject *)pass;
}

/* Called by a reactor that walks in Python. */
static PyObject *pass_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"mask", NULL};
    unsigned int mask;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "I:Pass", names, &mask))
        return NULL;
    State *state = PyType_GetModuleState(Py_TYPE(self));
    PyObject *now = PyObject_GetAttr(((Pass *)self)->reactor, state->now);
    if (now == NULL)
        return NULL;
    double at = PyFloat_AsDouble(now);
    Py_DECREF(now);
    if ((at == -1.0 && PyErr_Occurred()) || handle(state, (Pass *)self, mask, at) < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(settle_doc, "settle()\n--\n\nTell stream and events what was passed on since they were told last.");

static PyObject *pass_settle(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (settle(PyType_GetModuleState(Py_TYPE(self)), (Pass *)self) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef pass_methods[] = {
    {"settle", pass_settle, METH_NOARGS, settle_doc},
    {NULL, NULL, 0, NULL},
};

static int pass_traverse(PyObject *self, visitproc visit, void *arg)
{
    Pass *pass = (Pass *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(pass->upstream);
    Py_VISIT(pass->stream);
    Py_VISIT(pass->events);
    Py_VISIT(pass->reactor);
    Py_VISIT(pass->bounds);
    Py_VISIT(pass->gaps);
    Py_VISIT(pass->recv);
    Py_VISIT(pass->send);
    Py_VISIT(pass->client_fileno);
    return 0;
}

/* The collector clears only what nothing can call any more. */
static int pass_clear(PyObject *self)
{
    Pass *pass = (Pass *)self;
    Py_CLEAR(pass->upstream);
    Py_CLEAR(pass->stream);
    Py_CLEAR(pass->events);
    Py_CLEAR(pass->reactor);
    Py_CLEAR(pass->bounds);
    Py_CLEAR(pass->gaps);
    Py_CLEAR(pass->recv);
    Py_CLEAR(pass->send);
    Py_CLEAR(pass->client_fileno);
    return 0;
}

static void pass_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    pass_clear(self);
    PyMem_Free(((Pass *)self)->last);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot pass_slots[] = {
    {Py_tp_doc, "The handler of an engine's connection that stands between two chunks."},
    {Py_tp_new, pass_new},
    {Py_tp_call, pass_call},
    {Py_tp_methods, pass_methods},
    {Py_tp_traverse, pass_traverse},
    {Py_tp_clear, pass_clear},
    {Py_tp_dealloc, pass_dealloc},
    {0, NULL},
};

PyType_Spec pass_spec = {
    .name = "llmgw.router._token_pass.Pass",
    .basicsize = sizeof(Pass),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = pass_slots,
};
