/* The module. */

#include "token_pass.h"

PyDoc_STRVAR(serve_doc, "serve(reactor, epoll_fd, handlers, nap_s, wait_ms, turn_s, /)\n--\n\n"
                        "What `Reactor.walk` does; how many events were served.");

PyDoc_STRVAR(find_done_doc, "find_done(data, at, end, /)\n--\n\n"
                            "Where the first `[DONE]` in data[at:end] is; -1 is nowhere.");
PyDoc_STRVAR(find_usage_doc, "find_usage(data, at, end, /)\n--\n\n"
                             "Where the first \"usage\" with something in it is in data[at:end]; -1 is nowhere.");
PyDoc_STRVAR(line_ends_doc, "line_ends(data, /)\n--\n\nHow many LF there are.");
PyDoc_STRVAR(whole_chunks_doc, "whole_chunks(data, at, /)\n--\n\n"
                               "What the whole chunks from there on hold, none of them the last, and where they end.");

static PyMethodDef functions[] = {
    {"serve", serve, METH_VARARGS, serve_doc},
    {"find_done", find_done, METH_VARARGS, find_done_doc},
    {"find_usage", find_usage, METH_VARARGS, find_usage_doc},
    {"line_ends", line_ends, METH_O, line_ends_doc},
    {"whole_chunks", whole_chunks, METH_VARARGS, whole_chunks_doc},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
#define INTERN(name)                                                                                                   \
    if ((state->name = PyUnicode_InternFromString(#name)) == NULL)                                                     \
        return -1;
    NAMES(INTERN)
#undef INTERN
    if ((state->one = PyLong_FromLong(1)) == NULL)
        return -1;
    PyObject *sockets = PyImport_ImportModule("_socket");
    if (sockets == NULL)
        return -1;
    PyObject *socket_type = PyObject_GetAttrString(sockets, "socket");
    Py_DECREF(sockets);
    if (socket_type == NULL)
        return -1;
    state->socket_type = (PyTypeObject *)socket_type;
    state->pass_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &pass_spec, NULL);
    if (state->pass_type == NULL || PyModule_AddType(module, state->pass_type) < 0)
        return -1;
    if (PyModule_AddIntConstant(module, "RECV_BYTES", RECV_BYTES) < 0
        || PyModule_AddIntConstant(module, "PLAIN_BYTES", PLAIN_BYTES) < 0
        || PyModule_AddIntConstant(module, "MAX_EVENTS", MAX_EVENTS) < 0)
        return -1;
    return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->pass_type);
    Py_VISIT(state->socket_type);
    return 0;
}

static int module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->pass_type);
    Py_CLEAR(state->socket_type);
    Py_CLEAR(state->one);
#define FORGET(name) Py_CLEAR(state->name);
    NAMES(FORGET)
#undef FORGET
    return 0;
}

static void module_free(void *module)
{
    module_clear(module);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "llmgw.router._token_pass",
    .m_doc = "The way of nearly every token, in C.",
    .m_size = sizeof(State),
    .m_methods = functions,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__token_pass(void)
{
    return PyModuleDef_Init(&module_definition);
}
