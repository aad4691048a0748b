/* What a plain token looks like. `express.py` says it in Python. */

#include "token_pass.h"

#include <string.h>

/* "data:{}\n\n" is the shortest event, and its chunk is this long. */
#define SHORTEST_BYTES 14
#define MAX_SIZE_DIGITS 3

static const char NO_USAGE[] = "\"usage\":null";
static const char TAIL[] = "}\n\n\r\n";

/* How often `what` stands in `text`, none within another. */
static Py_ssize_t count(const char *text, Py_ssize_t length, const char *what, size_t what_length)
{
    Py_ssize_t found = 0;
    const char *end = text + length, *at = text;
    while ((at = memmem(at, (size_t)(end - at), what, what_length)) != NULL) {
        found++;
        at += what_length;
    }
    return found;
}

/* Whether the word stands there at all, and another time than with nothing in it. Few bytes are a `g`: looking for its
 * own costs a third of looking for the word. */
static int tells_usage(const char *text, Py_ssize_t length)
{
    const char *end = text + length, *at = text;
    while ((at = memchr(at, 'g', (size_t)(end - at))) != NULL) {
        if (at - text >= 4 && end - at >= 3 && memcmp(at - 4, USAGE, LENGTH(USAGE)) == 0)
            return count(text, length, USAGE, LENGTH(USAGE)) != count(text, length, NO_USAGE, LENGTH(NO_USAGE));
        at++;
    }
    return 0;
}

int hex_value(char letter)
{
    if (letter >= '0' && letter <= '9')
        return letter - '0';
    if (letter >= 'a' && letter <= 'f')
        return letter - 'a' + 10;
    return letter >= 'A' && letter <= 'F' ? letter - 'A' + 10 : -1;
}

/* The number of digits of the size line, if it says that the chunk is all of `text`; else 0. */
static Py_ssize_t size_digits(const char *text, Py_ssize_t length)
{
    Py_ssize_t size = 0, digits = 0;
    int lower = 0, upper = 0;
    for (; digits < MAX_SIZE_DIGITS; digits++) {
        int value = hex_value(text[digits]);
        if (value < 0)
            break;
        lower |= text[digits] >= 'a';
        upper |= text[digits] >= 'A' && text[digits] <= 'F';
        size = size * 16 + value;
    }
    if (digits == 0 || text[0] == '0' || (lower && upper) || digits + size + 4 != length)
        return 0;
    return digits;
}

int is_plain_token(const char *text, Py_ssize_t length)
{
    if (length < SHORTEST_BYTES || length > PLAIN_BYTES)
        return 0;
    Py_ssize_t digits = size_digits(text, length);
    if (digits == 0)
        return 0;
    const char *event = text + digits, *tail = text + length - LENGTH(TAIL);
    if (memcmp(event, "\r\ndata:", 7) != 0 || event[event[7] == ' ' ? 8 : 7] != '{')
        return 0;
    event += 7;
    size_t inside = (size_t)(tail - event);
    if (memcmp(tail, TAIL, LENGTH(TAIL)) != 0 || memchr(event, '\n', inside) || memchr(event, '\r', inside))
        return 0;
    return !tells_usage(text, length);
}
