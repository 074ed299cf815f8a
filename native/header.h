/* The JSON header of a request, as clients write it: no spaces, no field twice, nothing nested but extFields.
 * Whatever else is good JSON is none of its business: it says no, and msgspec has a look. */

#ifndef KOUROU_HEADER_H
#define KOUROU_HEADER_H

#include "kourou.h"

#define HEADER_FIELDS 14

typedef enum { NOTHING, TEXT, ESCAPED, BARE } Kind; /* ESCAPED: has backslashes or bytes beyond ASCII */

/* A value, still as it stands in the header; a text without its quotes. */
typedef struct {
    Kind kind;
    const uint8_t *at;
    Py_ssize_t size;
} Value;

typedef struct {
    Value opaque, flag;
    Value fields[HEADER_FIELDS]; /* of extFields, those of a send, by their names of one letter, a to n */
} Header;

/* Whether it is as described; `header` is filled then. */
int header_read(Header *header, const uint8_t *data, Py_ssize_t size);

/* Whether it is an integer from `least` to `most`, as a number or as a text. */
int value_integer(const Value *value, int64_t least, int64_t most, int64_t *result);

/* Whether it is a text, or not there at all. */
int value_is_absent(const Value *value);
int value_is(const Value *value, const char *text);

/* The text, with what was escaped as itself, in UTF-8 that is still to be seen valid: its size, or -1. There must
 * be room for `value->size` bytes. */
Py_ssize_t value_text(const Value *value, uint8_t *into);

#endif
