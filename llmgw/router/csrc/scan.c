/* Searches in a read of many events: `events.py` and `upstream.py` say in Python what they find. */

#include "token_pass.h"

#include <string.h>

/* Digits of a chunk's size; no read holds a longer chunk. */
#define MAX_DIGITS 5

static const char NOTHING[] = ":null";
static const char DONE[] = "[DONE]";

/* Where `word` is in text[at:end], or -1. `rare` says which of its characters seldom occurs: looking for that one costs
 * a third of looking for the word. */
static Py_ssize_t find(const char *text, Py_ssize_t at, Py_ssize_t end, const char *word, size_t length, size_t rare)
{
    if ((size_t)(end - at) < length)
        return -1;
    const char *from = text + at + rare, *last = text + end;
    while (from < last && (from = memchr(from, word[rare], (size_t)(last - from))) != NULL) {
        const char *begin = from - rare;
        if ((size_t)(last - begin) >= length && memcmp(begin, word, length) == 0)
            return begin - text;
        from++;
    }
    return -1;
}

/* Read the arguments of a search; -1 for an error that is set. */
static int part_of(
    PyObject *args, const char *format, const char **text, Py_ssize_t *length, Py_ssize_t *at, Py_ssize_t *end)
{
    PyObject *data;
    if (!PyArg_ParseTuple(args, format, &data, at, end))
        return -1;
    *text = PyBytes_AS_STRING(data);
    *length = PyBytes_GET_SIZE(data);
    if (*at >= 0 && *at <= *end && *end <= *length)
        return 0;
    PyErr_SetString(PyExc_ValueError, "no such part of the data");
    return -1;
}

PyObject *find_done(PyObject *module, PyObject *args)
{
    (void)module;
    const char *text;
    Py_ssize_t length, at, end;
    if (part_of(args, "Snn:find_done", &text, &length, &at, &end) < 0)
        return NULL;
    return PyLong_FromSsize_t(find(text, at, end, DONE, LENGTH(DONE), 1));
}

PyObject *find_usage(PyObject *module, PyObject *args)
{
    (void)module;
    const char *text;
    Py_ssize_t length, at, end;
    if (part_of(args, "Snn:find_usage", &text, &length, &at, &end) < 0)
        return NULL;
    Py_ssize_t usage;
    while ((usage = find(text, at, end, USAGE, LENGTH(USAGE), 4)) >= 0) {
        at = usage + (Py_ssize_t)LENGTH(USAGE);
        if ((size_t)(length - at) < LENGTH(NOTHING) || memcmp(text + at, NOTHING, LENGTH(NOTHING)) != 0)
            break;
    }
    return PyLong_FromSsize_t(usage);
}

PyObject *line_ends(PyObject *module, PyObject *data)
{
    (void)module;
    if (!PyBytes_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "line ends are counted in bytes");
        return NULL;
    }
    const char *at = PyBytes_AS_STRING(data), *end = at + PyBytes_GET_SIZE(data);
    Py_ssize_t found = 0;
    while ((at = memchr(at, '\n', (size_t)(end - at))) != NULL)
        found++, at++;
    return PyLong_FromSsize_t(found);
}

/* The data of the chunk that begins at `at` and is all there, at least a byte of it: where it begins, and in `*size`
 * how long it is. 0 for any other chunk, and for one that says more of itself than its size. */
static Py_ssize_t whole_chunk(const char *text, Py_ssize_t length, Py_ssize_t at, Py_ssize_t *size)
{
    Py_ssize_t number = 0;
    int digits = 0, value;
    while (digits <= MAX_DIGITS && at < length && (value = hex_value(text[at])) >= 0) {
        number = number * 16 + value;
        digits++, at++;
    }
    if (number == 0 || digits > MAX_DIGITS || length - at < number + 4)
        return 0;
    if (memcmp(text + at, "\r\n", 2) != 0 || memcmp(text + at + 2 + number, "\r\n", 2) != 0)
        return 0;
    *size = number;
    return at + 2;
}

PyObject *whole_chunks(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *data;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(args, "Sn:whole_chunks", &data, &at))
        return NULL;
    const char *text = PyBytes_AS_STRING(data);
    Py_ssize_t length = PyBytes_GET_SIZE(data), total = 0, end, begin, size = 0;
    if (at < 0 || at > length) {
        PyErr_SetString(PyExc_ValueError, "no such part of the data");
        return NULL;
    }
    for (end = at; (begin = whole_chunk(text, length, end, &size)) != 0; end = begin + size + 2)
        total += size;
    PyObject *body = PyBytes_FromStringAndSize(NULL, total);
    if (body == NULL)
        return NULL;
    char *to = PyBytes_AS_STRING(body);
    for (Py_ssize_t from = at; from < end; from = begin + size + 2) {
        begin = whole_chunk(text, length, from, &size);
        memcpy(to, text + begin, (size_t)size);
        to += size;
    }
    return Py_BuildValue("Nn", body, end);
}
