/* See header.h. */

#include "header.h"

typedef struct {
    const uint8_t *at, *end;
} Cursor;

static int take(Cursor *cursor, uint8_t expected)
{
    if (cursor->at == cursor->end || *cursor->at != expected)
        return 0;
    cursor->at++;
    return 1;
}

static int read_text(Cursor *cursor, Value *value)
{
    const uint8_t *at = cursor->at + 1, *end = cursor->end;
    value->kind = TEXT;
    value->at = at;
    for (; at < end && *at != '"'; at++) {
        if (*at < 0x20)
            return 0;
        if (*at >= 0x80) {
            value->kind = ESCAPED;
        } else if (*at == '\\') {
            value->kind = ESCAPED;
            at++;
        }
    }
    if (at >= end)
        return 0;
    value->size = at - value->at;
    cursor->at = at + 1;
    return 1;
}

static int is_canonical(const uint8_t *at, Py_ssize_t size)
{
    if (size && *at == '-') {
        at++;
        size--;
        if (size && *at == '0')
            return 0; /* -0 is somebody else's to read */
    }
    if (size < 1 || size > 19 || (*at == '0' && size > 1))
        return 0;
    for (; size; at++, size--)
        if (*at < '0' || *at > '9')
            return 0;
    return 1;
}

static int read_bare(Cursor *cursor, Value *value)
{
    const uint8_t *at = cursor->at;
    value->kind = BARE;
    value->at = at;
    while (at < cursor->end && *at != ',' && *at != '}')
        at++;
    value->size = at - value->at;
    cursor->at = at;
    return value_is(value, "null") || value_is(value, "true") || value_is(value, "false") ||
           is_canonical(value->at, value->size);
}

static int read_value(Cursor *cursor, Value *value)
{
    if (cursor->at == cursor->end)
        return 0;
    return *cursor->at == '"' ? read_text(cursor, value) : read_bare(cursor, value);
}

static int read_name(Cursor *cursor, Value *name)
{
    return cursor->at < cursor->end && *cursor->at == '"' && read_text(cursor, name) && name->kind == TEXT &&
           take(cursor, ':');
}

/* Reads into `slot`, which must not have been read before; without one, what nobody asks for. */
static int read_into(Cursor *cursor, Value *slot)
{
    Value ignored = {NOTHING, NULL, 0};
    if (slot == NULL)
        return read_value(cursor, &ignored) && ignored.kind != ESCAPED;
    return slot->kind == NOTHING && read_value(cursor, slot);
}

static int read_fields(Cursor *cursor, Value *fields)
{
    if (!take(cursor, '{'))
        return 0;
    do {
        Value name;
        Value *slot = NULL;
        if (!read_name(cursor, &name))
            return 0;
        if (name.size == 1 && *name.at >= 'a' && *name.at < 'a' + HEADER_FIELDS)
            slot = &fields[*name.at - 'a'];
        if (!read_into(cursor, slot))
            return 0;
    } while (take(cursor, ','));
    return take(cursor, '}');
}

int header_read(Header *header, const uint8_t *data, Py_ssize_t size)
{
    Cursor cursor = {data, data + size};
    int has_fields = 0;
    memset(header, 0, sizeof *header);
    if (!take(&cursor, '{'))
        return 0;
    do {
        Value name;
        if (!read_name(&cursor, &name))
            return 0;
        if (value_is(&name, "extFields")) {
            if (has_fields++ || !read_fields(&cursor, header->fields))
                return 0;
        } else {
            Value *slot = value_is(&name, "opaque") ? &header->opaque : value_is(&name, "flag") ? &header->flag : NULL;
            if (!read_into(&cursor, slot))
                return 0;
        }
    } while (take(&cursor, ','));
    return has_fields && take(&cursor, '}') && cursor.at == cursor.end;
}

int value_is(const Value *value, const char *text)
{
    return (size_t)value->size == strlen(text) && memcmp(value->at, text, (size_t)value->size) == 0;
}

int value_is_absent(const Value *value)
{
    return value->kind == NOTHING || (value->kind == BARE && value_is(value, "null"));
}

int value_integer(const Value *value, int64_t least, int64_t most, int64_t *result)
{
    if ((value->kind != TEXT && value->kind != BARE) || !is_canonical(value->at, value->size))
        return 0;
    int is_negative = *value->at == '-';
    uint64_t sum = 0; /* 19 digits fit */
    for (Py_ssize_t i = is_negative; i < value->size; i++)
        sum = sum * 10 + (uint64_t)(value->at[i] - '0');
    if (sum > (uint64_t)INT64_MAX)
        return 0;
    *result = is_negative ? -(int64_t)sum : (int64_t)sum;
    return *result >= least && *result <= most;
}

static int hex_digit(uint8_t digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* The character of \u00XX, if it is one of ASCII; else -1. */
static int escaped_ascii(const uint8_t *digits)
{
    int high = hex_digit(digits[2]), low = hex_digit(digits[3]);
    if (digits[0] != '0' || digits[1] != '0' || high < 0 || high > 7 || low < 0)
        return -1;
    return high << 4 | low;
}

Py_ssize_t value_text(const Value *value, uint8_t *into)
{
    static const char short_ones[] = "\"\\/bfnrt", stand_for[] = "\"\\/\b\f\n\r\t";
    const uint8_t *at = value->at, *end = at + value->size;
    uint8_t *start = into;
    if (value->kind == TEXT) {
        memcpy(into, at, (size_t)value->size);
        return value->size;
    }
    if (value->kind != ESCAPED)
        return -1;
    while (at < end) {
        if (*at != '\\') {
            *into++ = *at++;
        } else if (end - at >= 6 && at[1] == 'u') {
            int character = escaped_ascii(at + 2);
            if (character < 0)
                return -1;
            *into++ = (uint8_t)character;
            at += 6;
        } else {
            const char *found = end - at >= 2 && at[1] ? strchr(short_ones, at[1]) : NULL;
            if (found == NULL)
                return -1;
            *into++ = (uint8_t)stand_for[found - short_ones];
            at += 2;
        }
    }
    return into - start;
}
