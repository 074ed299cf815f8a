/* Many records at once, taken apart for the columns of Arrow, and such columns put together to messages: the loops
 * of spark/columns.py, property_columns.py, store_scan.py and sending.py.
 *
 * Numbers come and go as arrays of NumPy or Arrow, in the order of bytes of this machine; `data` is what they say
 * where to look in, and none of them is believed before it was compared with its length. */

#include "kourou.h"

#define RECORD_BYTES_MIN 91
#define HEAD_BYTES 88 /* up to and with the length of the body, when both hosts are IPv4 */
#define HOST_V6_MORE 12
#define BORN_HOST_V6 0x10
#define STORE_HOST_V6 0x20
#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu
#define CRC_PROPERTY_BYTES 20
#define ITEM_HEAD_BYTES 20 /* of a message in a batch: size, magic 0, CRC 0, flag, length of the body */
#define PROPERTIES_BYTES_MAX 32767
#define NAME_END 1
#define VALUE_END 2
#define AHEAD 8            /* records */
#define LATER_ONES_MAX 64 /* entries of one message that are compared with each other */

int columns_start(PyObject *Py_UNUSED(module))
{
    return 0;
}

static PyObject *refused(const char *why)
{
    PyErr_SetString(PyExc_ValueError, why);
    return NULL;
}

/* ---------------------------------------------------------------------------------------------------- arguments */

/* Buffers of arguments, held until `let_go`. */
typedef struct {
    Py_buffer views[8];
    int held;
} Held;

static void let_go(Held *held)
{
    while (held->held)
        PyBuffer_Release(&held->views[--held->held]);
}

/* `kinds` has a letter for each argument: r(ead) or w(rite). 0, or -1 with an error and nothing held. */
static int take_hold(Held *held, PyObject *const *args, Py_ssize_t count, const char *kinds, const char *usage)
{
    held->held = 0;
    if (count != (Py_ssize_t)strlen(kinds)) {
        PyErr_SetString(PyExc_TypeError, usage);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyObject_GetBuffer(args[i], &held->views[i], kinds[i] == 'w' ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0) {
            let_go(held);
            return -1;
        }
        held->held++;
    }
    return 0;
}

/* Arrays may lie anywhere, so their numbers are copied out and in. */
static inline int64_t i64_at(const void *array, Py_ssize_t index)
{
    int64_t value;
    memcpy(&value, (const uint8_t *)array + 8 * index, 8);
    return value;
}

static inline void set_i64(void *array, Py_ssize_t index, int64_t value)
{
    memcpy((uint8_t *)array + 8 * index, &value, 8);
}

static inline int32_t i32_at(const void *array, Py_ssize_t index)
{
    int32_t value;
    memcpy(&value, (const uint8_t *)array + 4 * index, 4);
    return value;
}

static inline void set_i32(void *array, Py_ssize_t index, int32_t value)
{
    memcpy((uint8_t *)array + 4 * index, &value, 4);
}

/* Whether `length` bytes from `at` on are all within `size`. */
static inline int is_inside(int64_t at, int64_t length, int64_t size)
{
    return at >= 0 && length >= 0 && at <= size && length <= size - at;
}

/* A few bytes are copied as sixteen where there is room for that on both sides: no call, and no loop. */
static inline void copy_piece(uint8_t *to, const uint8_t *to_end, const uint8_t *from, const uint8_t *from_end,
                              size_t size)
{
    if (size <= 16 && to_end - to >= 16 && from_end - from >= 16)
        memcpy(to, from, 16);
    else
        memcpy(to, from, size);
}

/* ------------------------------------------------------------------------------------------------------ records */

/* record_starts(data, stop) -> (starts, end): where records begin by their sizes, as long as these make sense and
 * they begin before `stop`; and where the last one ends. */
static PyObject *record_starts(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Held held;
    Py_ssize_t stop = count == 2 ? PyLong_AsSsize_t(args[1]) : 0;
    if (stop == -1 && PyErr_Occurred())
        return NULL;
    if (take_hold(&held, args, count == 2 ? 1 : 0, "r", "record_starts(data, stop)") < 0)
        return NULL;
    const uint8_t *data = held.views[0].buf;
    Py_ssize_t length = held.views[0].len, room = length / RECORD_BYTES_MIN + 1, found = 0, at = 0;
    if (stop > length - RECORD_BYTES_MIN + 1)
        stop = length - RECORD_BYTES_MIN + 1;
    int64_t *starts = PyMem_Malloc((size_t)room * sizeof(int64_t));
    if (starts == NULL) {
        let_go(&held);
        return PyErr_NoMemory();
    }
    while (at < stop) {
        Py_ssize_t size = get_u32(data + at);
        if (size < RECORD_BYTES_MIN || size > length - at)
            break;
        starts[found++] = at; /* each takes 91 bytes or more: there is room */
        if (size < (length - at) / AHEAD) /* neighbours are mostly alike, and the memory is far: 0.1 us a record */
            __builtin_prefetch(data + at + AHEAD * size);
        at += size;
    }
    let_go(&held);
    PyObject *result = Py_BuildValue("(y#n)", (const char *)starts, found * (Py_ssize_t)sizeof(int64_t), at);
    PyMem_Free(starts);
    return result;
}

/* The parts of one record; each has its row of the table that `record_parts` fills. */
enum { SIZE, BODY_AT, BODY_LENGTH, TOPIC_AT, TOPIC_LENGTH, PROPERTIES_AT, PROPERTIES_LENGTH, TEXT_LENGTH, PARTS };

/* Finds the parts of the record at `at`, and says whether they add up to it. */
static int take_apart(const uint8_t *data, int64_t length, int64_t at, int64_t *parts, uint32_t *sys_flag)
{
    if (!is_inside(at, RECORD_BYTES_MIN, length))
        return 0;
    const uint8_t *start = data + at;
    int64_t size = (int32_t)get_u32(start), end = at + size;
    uint32_t magic = get_u32(start + 4);
    if (size < RECORD_BYTES_MIN || size > length - at || (magic != MAGIC_V1 && magic != MAGIC_V2))
        return 0;
    *sys_flag = get_u32(start + 36);
    int64_t body_at = at + HEAD_BYTES + (*sys_flag & BORN_HOST_V6 ? HOST_V6_MORE : 0) +
                      (*sys_flag & STORE_HOST_V6 ? HOST_V6_MORE : 0);
    if (body_at + 3 > end)
        return 0;
    int64_t body_length = (int32_t)get_u32(data + body_at - 4), topic_at = body_at + body_length + 1, topic_length;
    if (body_length < 0 || topic_at + 2 > end)
        return 0;
    if (magic == MAGIC_V1) {
        topic_length = (int8_t)data[topic_at - 1];
    } else {
        topic_length = (int16_t)get_u16(data + topic_at - 1);
        topic_at++;
    }
    int64_t properties_at = topic_at + topic_length + 2;
    if (topic_length < 0 || properties_at > end)
        return 0;
    int64_t properties_length = (int16_t)get_u16(data + properties_at - 2), text_length = properties_length;
    if (properties_length < 0 || properties_at + properties_length != end)
        return 0;
    if (text_length >= CRC_PROPERTY_BYTES && memcmp(data + end - CRC_PROPERTY_BYTES, "__CRC32#", 8) == 0)
        text_length -= CRC_PROPERTY_BYTES;
    parts[SIZE] = size;
    parts[BODY_AT] = body_at;
    parts[BODY_LENGTH] = body_length;
    parts[TOPIC_AT] = topic_at;
    parts[TOPIC_LENGTH] = topic_length;
    parts[PROPERTIES_AT] = properties_at;
    parts[PROPERTIES_LENGTH] = properties_length;
    parts[TEXT_LENGTH] = text_length;
    return 1;
}

/* record_parts(data, starts, table, sys_flags) -> how many of the records, from the first on, are made up by their
 * parts; the table (PARTS rows of i64) and the flags (i32) are filled for these. */
static PyObject *record_parts(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Held held;
    if (take_hold(&held, args, count, "rrww", "record_parts(data, starts, table, sys_flags)") < 0)
        return NULL;
    const Py_buffer *data = &held.views[0], *starts = &held.views[1], *table = &held.views[2];
    Py_ssize_t records = starts->len / 8, found = 0;
    if (starts->len % 8 || table->len / 8 / PARTS != records || table->len % (8 * PARTS) ||
        held.views[3].len != 4 * records) {
        let_go(&held);
        return refused("the table is not one for so many records");
    }
    for (; found < records; found++) {
        int64_t parts[PARTS];
        uint32_t sys_flag;
        if (!take_apart(data->buf, data->len, i64_at(starts->buf, found), parts, &sys_flag))
            break;
        for (int part = 0; part < PARTS; part++)
            set_i64(table->buf, part * records + found, parts[part]);
        set_i32(held.views[3].buf, found, (int32_t)sys_flag);
    }
    let_go(&held);
    return PyLong_FromSsize_t(found);
}

/* piece_sums(data, froms, tos, sums): the CRC-32 of each stretch of the data, its top bit cleared. */
static PyObject *piece_sums(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Held held;
    if (take_hold(&held, args, count, "rrrw", "piece_sums(data, froms, tos, sums)") < 0)
        return NULL;
    const Py_buffer *data = &held.views[0];
    Py_ssize_t size = held.views[1].len;
    int is_fit = size % 8 == 0 && held.views[2].len == size && held.views[3].len == size;
    for (Py_ssize_t i = 0; is_fit && i < size / 8; i++) {
        int64_t from = i64_at(held.views[1].buf, i), to = i64_at(held.views[2].buf, i);
        is_fit = from >= 0 && from <= to && to <= data->len;
        if (is_fit)
            set_i64(held.views[3].buf, i,
                    crc32_of(0, (const uint8_t *)data->buf + from, (size_t)(to - from)) & 0x7FFFFFFF);
    }
    let_go(&held);
    if (!is_fit)
        return refused("the stretches do not lie within the data");
    Py_RETURN_NONE;
}

/* pick_pieces(data, places, lengths, bounds, picked): the bytes at each place, side by side; `bounds` (i32) are
 * where each begins, and the last one ends. `picked` is as long as all of them together. */
static PyObject *pick_pieces(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Held held;
    if (take_hold(&held, args, count, "rrrww", "pick_pieces(data, places, lengths, bounds, picked)") < 0)
        return NULL;
    const Py_buffer *data = &held.views[0], *places = &held.views[1], *picked = &held.views[4];
    Py_ssize_t pieces = places->len / 8;
    int is_fit = places->len % 8 == 0 && held.views[2].len == places->len &&
                 held.views[3].len == 4 * (pieces + 1) && picked->len <= INT32_MAX;
    const uint8_t *from = data->buf;
    uint8_t *to = picked->buf;
    int64_t at = 0;
    for (Py_ssize_t i = 0; is_fit && i < pieces; i++) {
        int64_t place = i64_at(places->buf, i), length = i64_at(held.views[2].buf, i);
        is_fit = is_inside(place, length, data->len) && length <= picked->len - at;
        if (!is_fit)
            break;
        set_i32(held.views[3].buf, i, (int32_t)at);
        copy_piece(to + at, to + picked->len, from + place, from + data->len, (size_t)length);
        at += length;
    }
    is_fit = is_fit && at == picked->len;
    if (is_fit)
        set_i32(held.views[3].buf, pieces, (int32_t)at);
    let_go(&held);
    if (!is_fit)
        return refused("the pieces do not lie within the data, or make up another length");
    Py_RETURN_NONE;
}

/* --------------------------------------------------------------------------------------------------- properties */

/* One entry with a name and a value: [begin, middle) and [middle + 1, end) of the data. */
typedef struct {
    int32_t begin, middle, end;
} Entry;

typedef struct {
    Entry *entries;
    size_t count, room;
} Entries;

static int append_entry(Entries *all, Entry entry)
{
    if (all->count == all->room) {
        size_t room = all->room ? 2 * all->room : 1024;
        Entry *larger = PyMem_Realloc(all->entries, room * sizeof(Entry));
        if (larger == NULL)
            return -1;
        all->entries = larger;
        all->room = room;
    }
    all->entries[all->count++] = entry;
    return 0;
}

/* Appends what counts of one message's properties: 0, or -1 without memory. */
static int append_message(Entries *all, const uint8_t *data, int32_t begin, int32_t stop)
{
    while (begin < stop) {
        const uint8_t *closed = memchr(data + begin, VALUE_END, (size_t)(stop - begin));
        int32_t end = closed == NULL ? stop : (int32_t)(closed - data);
        const uint8_t *parted = memchr(data + begin, NAME_END, (size_t)(end - begin));
        if (parted != NULL) {
            Entry entry = {begin, (int32_t)(parted - data), end};
            if (entry.middle > begin && entry.middle + 1 < end && append_entry(all, entry) < 0)
                return -1;
        }
        begin = end + 1;
    }
    return 0;
}

/* Whether two entries of one message may have the same name: the later one would win. Where there are many, that
 * is not looked into. */
static int has_repeated(const uint8_t *data, const Entry *entries, size_t count)
{
    if (count > LATER_ONES_MAX)
        return 1;
    for (size_t i = 1; i < count; i++) {
        size_t size = (size_t)(entries[i].middle - entries[i].begin);
        const uint8_t *name = data + entries[i].begin;
        for (size_t j = 0; j < i; j++)
            if ((size_t)(entries[j].middle - entries[j].begin) == size && data[entries[j].begin] == name[0] &&
                memcmp(data + entries[j].begin, name, size) == 0)
                return 1;
    }
    return 0;
}

/* Whether bounds (i32) rise from 0 or more to no more than `size`. */
static int are_bounds(const Py_buffer *bounds, Py_ssize_t size)
{
    if (bounds->len % 4 || bounds->len < 4 || size > INT32_MAX - 1 || i32_at(bounds->buf, 0) < 0)
        return 0;
    Py_ssize_t last = bounds->len / 4 - 1;
    for (Py_ssize_t i = 0; i < last; i++)
        if (i32_at(bounds->buf, i) > i32_at(bounds->buf, i + 1))
            return 0;
    return i32_at(bounds->buf, last) <= size;
}

/* property_entries(data, bounds) -> (firsts, entries, is_repeated): the entries (three i32 each) of all messages,
 * of which those of one lie between two of `bounds`; which is the first of each message, and how many there are
 * (i32); and whether a name may stand twice in one message. */
static PyObject *property_entries(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Held held;
    if (take_hold(&held, args, count, "rr", "property_entries(data, bounds)") < 0)
        return NULL;
    const Py_buffer *data = &held.views[0], *bounds = &held.views[1];
    if (!are_bounds(bounds, data->len)) {
        let_go(&held);
        return refused("the bounds do not lie within the data");
    }
    Entries all = {NULL, 0, 0};
    PyObject *firsts = PyBytes_FromStringAndSize(NULL, bounds->len), *result = NULL;
    Py_ssize_t messages = bounds->len / 4 - 1;
    int is_repeated = 0, is_done = firsts != NULL;
    for (Py_ssize_t i = 0; is_done && i < messages; i++) {
        size_t first = all.count;
        set_i32(PyBytes_AS_STRING(firsts), i, (int32_t)first); /* of three bytes or more each: fits */
        is_done = append_message(&all, data->buf, i32_at(bounds->buf, i), i32_at(bounds->buf, i + 1)) == 0;
        if (is_done && !is_repeated && all.count > first)
            is_repeated = has_repeated(data->buf, all.entries + first, all.count - first);
    }
    if (is_done) {
        set_i32(PyBytes_AS_STRING(firsts), messages, (int32_t)all.count);
        result = Py_BuildValue("(Oy#i)", firsts, all.count ? (const char *)all.entries : "",
                               (Py_ssize_t)(all.count * sizeof(Entry)), is_repeated);
    } else if (firsts != NULL) {
        PyErr_NoMemory();
    }
    Py_XDECREF(firsts);
    PyMem_Free(all.entries);
    let_go(&held);
    return result;
}

static inline Entry entry_at(const Py_buffer *entries, Py_ssize_t index)
{
    Entry entry;
    memcpy(&entry, (const uint8_t *)entries->buf + index * (Py_ssize_t)sizeof(Entry), sizeof(Entry));
    return entry;
}

/* Whether each has its parts in order, within the data. */
static int are_entries(const Py_buffer *entries, Py_ssize_t size)
{
    if (entries->len % (Py_ssize_t)sizeof(Entry) || size > INT32_MAX - 1)
        return 0;
    for (Py_ssize_t i = 0; i < entries->len / (Py_ssize_t)sizeof(Entry); i++) {
        Entry entry = entry_at(entries, i);
        if (entry.begin < 0 || entry.middle < entry.begin || entry.end <= entry.middle || entry.end > size)
            return 0;
    }
    return 1;
}

/* Where the pieces of one text column go; sizes are known before. */
typedef struct {
    PyObject *bounds, *texts;
    uint8_t *to, *end;
    Py_ssize_t at;
} Column;

static int start_column(Column *column, Py_ssize_t pieces, Py_ssize_t size)
{
    column->bounds = PyBytes_FromStringAndSize(NULL, 4 * (pieces + 1));
    column->texts = PyBytes_FromStringAndSize(NULL, size);
    column->at = 0;
    if (column->bounds == NULL || column->texts == NULL)
        return -1;
    column->to = (uint8_t *)PyBytes_AS_STRING(column->texts);
    column->end = column->to + size;
    set_i32(PyBytes_AS_STRING(column->bounds), 0, 0);
    return 0;
}

static inline void add_text(Column *column, Py_ssize_t index, const uint8_t *from, const uint8_t *from_end,
                            int32_t size)
{
    copy_piece(column->to + column->at, column->end, from, from_end, (size_t)size);
    column->at += size;
    set_i32(PyBytes_AS_STRING(column->bounds), index + 1, (int32_t)column->at);
}

static void drop_column(Column *column)
{
    Py_XDECREF(column->bounds);
    Py_XDECREF(column->texts);
}

/* property_texts(data, entries) -> (name bounds, names, value bounds, values), each side by side. */
static PyObject *property_texts(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Held held;
    if (take_hold(&held, args, count, "rr", "property_texts(data, entries)") < 0)
        return NULL;
    const Py_buffer *data = &held.views[0], *entries = &held.views[1];
    if (!are_entries(entries, data->len)) {
        let_go(&held);
        return refused("the entries do not lie within the data");
    }
    Py_ssize_t there = entries->len / (Py_ssize_t)sizeof(Entry);
    int64_t name_bytes = 0, value_bytes = 0;
    for (Py_ssize_t i = 0; i < there; i++) {
        Entry entry = entry_at(entries, i);
        name_bytes += entry.middle - entry.begin;
        value_bytes += entry.end - entry.middle - 1;
    }
    if (name_bytes > INT32_MAX || value_bytes > INT32_MAX) { /* entries that lie over each other */
        let_go(&held);
        return refused("the entries have more text than a column has room for");
    }
    Column names = {0}, values = {0};
    PyObject *result = NULL;
    if (start_column(&names, there, name_bytes) == 0 && start_column(&values, there, value_bytes) == 0) {
        const uint8_t *start = data->buf, *end = start + data->len;
        for (Py_ssize_t i = 0; i < there; i++) {
            Entry entry = entry_at(entries, i);
            add_text(&names, i, start + entry.begin, end, entry.middle - entry.begin);
            add_text(&values, i, start + entry.middle + 1, end, entry.end - entry.middle - 1);
        }
        result = PyTuple_Pack(4, names.bounds, names.texts, values.bounds, values.texts);
    }
    drop_column(&names);
    drop_column(&values);
    let_go(&held);
    return result;
}

/* The last entry of this name from `first` to `stop`, or -1. */
static Py_ssize_t last_named(const Py_buffer *data, const Py_buffer *entries, Py_ssize_t first, Py_ssize_t stop,
                             const uint8_t *name, Py_ssize_t size)
{
    while (stop-- > first) {
        Entry entry = entry_at(entries, stop);
        const uint8_t *begin = (const uint8_t *)data->buf + entry.begin;
        if (entry.middle - entry.begin == size && memcmp(begin, name, (size_t)size) == 0)
            return stop;
    }
    return -1;
}

/* The column of the entries that `chosen` (i64 each, -1 for none) names; a bit for each that there is. */
static PyObject *chosen_values(const Py_buffer *data, const Py_buffer *entries, const int64_t *chosen,
                               Py_ssize_t messages)
{
    int64_t size = 0;
    Py_ssize_t missing = 0;
    for (Py_ssize_t i = 0; i < messages; i++) {
        if (chosen[i] < 0) {
            missing++;
            continue;
        }
        Entry entry = entry_at(entries, (Py_ssize_t)chosen[i]);
        size += entry.end - entry.middle - 1;
    }
    if (size > INT32_MAX)
        return refused("the values have more text than a column has room for");
    Column values = {0};
    PyObject *valid = PyBytes_FromStringAndSize(NULL, (messages + 7) / 8), *result = NULL;
    if (valid != NULL && start_column(&values, messages, size) == 0) {
        const uint8_t *start = data->buf, *end = start + data->len;
        uint8_t *bits = (uint8_t *)PyBytes_AS_STRING(valid);
        memset(bits, 0, (size_t)((messages + 7) / 8));
        for (Py_ssize_t i = 0; i < messages; i++) {
            Entry entry = {0, -1, 0};
            if (chosen[i] >= 0) {
                entry = entry_at(entries, (Py_ssize_t)chosen[i]);
                bits[i / 8] |= (uint8_t)(1 << i % 8);
            }
            add_text(&values, i, start + entry.middle + 1, end, entry.end - entry.middle - 1);
        }
        result = Py_BuildValue("(nOOO)", missing, valid, values.bounds, values.texts);
    }
    Py_XDECREF(valid);
    drop_column(&values);
    return result;
}

/* property_values(data, firsts, entries, name) -> (nulls, valid, bounds, values): of each message the value of its
 * last entry of that name, and a bit that says whether there is one. */
static PyObject *property_values(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Held held;
    if (take_hold(&held, args, count, "rrrr", "property_values(data, firsts, entries, name)") < 0)
        return NULL;
    const Py_buffer *data = &held.views[0], *firsts = &held.views[1], *entries = &held.views[2];
    PyObject *result = NULL;
    if (!are_entries(entries, data->len) || !are_bounds(firsts, entries->len / (Py_ssize_t)sizeof(Entry))) {
        let_go(&held);
        return refused("the entries do not lie within the data, or the first ones not within these");
    }
    Py_ssize_t messages = firsts->len / 4 - 1;
    int64_t *chosen = PyMem_Malloc((size_t)(messages ? messages : 1) * sizeof(int64_t));
    if (chosen == NULL) {
        PyErr_NoMemory();
    } else {
        for (Py_ssize_t i = 0; i < messages; i++)
            chosen[i] = last_named(data, entries, i32_at(firsts->buf, i), i32_at(firsts->buf, i + 1),
                                   held.views[3].buf, held.views[3].len);
        result = chosen_values(data, entries, chosen, messages);
    }
    PyMem_Free(chosen);
    let_go(&held);
    return result;
}

/* -------------------------------------------------------------------------------------------------- the other way */

/* Writes the message of one row at `to`, if it is there and fits into `room`: how many bytes it has, or -1. Bounds
 * are looked at here and not before: what is written may be where they lie. */
static int64_t join_item(uint8_t *to, int64_t room, const Held *held, Py_ssize_t row)
{
    int32_t body_at = i32_at(held->views[1].buf, row), properties_at = i32_at(held->views[3].buf, row);
    int64_t body_length = (int64_t)i32_at(held->views[1].buf, row + 1) - body_at;
    int64_t properties_length = (int64_t)i32_at(held->views[3].buf, row + 1) - properties_at;
    int64_t size = ITEM_HEAD_BYTES + body_length + 2 + properties_length;
    int32_t flag = i32_at(held->views[4].buf, row);
    if (!is_inside(body_at, body_length, held->views[0].len) || size > room || size > INT32_MAX ||
        !is_inside(properties_at, properties_length, held->views[2].len) ||
        properties_length > PROPERTIES_BYTES_MAX)
        return -1;
    put_u32(to, (uint32_t)size);
    put_u64(to + 4, 0);
    put_u32(to + 12, (uint32_t)flag);
    put_u32(to + 16, (uint32_t)body_length);
    to += ITEM_HEAD_BYTES;
    memcpy(to, (const uint8_t *)held->views[0].buf + body_at, (size_t)body_length);
    to += body_length;
    put_u16(to, (uint16_t)properties_length);
    memcpy(to + 2, (const uint8_t *)held->views[2].buf + properties_at, (size_t)properties_length);
    return size;
}

/* join_batch(bodies, body_bounds, properties, property_bounds, flags, rows, ends, joined): the messages of these
 * rows as SEND_BATCH_MESSAGE carries them, one after the other, and where each ends. Bounds and flags are i32, rows
 * and ends i64; `joined` is as long as all of them together. */
static PyObject *join_batch(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Held held;
    if (take_hold(&held, args, count, "rrrrrrww",
                  "join_batch(bodies, body_bounds, properties, property_bounds, flags, rows, ends, joined)") < 0)
        return NULL;
    const Py_buffer *bounds = &held.views[1], *rows = &held.views[5], *joined = &held.views[7];
    int is_fit = bounds->len >= 4 && bounds->len % 4 == 0 && held.views[3].len == bounds->len &&
                 held.views[4].len == bounds->len - 4 && rows->len % 8 == 0 && held.views[6].len == rows->len;
    int64_t at = 0;
    for (Py_ssize_t i = 0; is_fit && i < rows->len / 8; i++) {
        int64_t row = i64_at(rows->buf, i), size = -1;
        if (row >= 0 && row < bounds->len / 4 - 1)
            size = join_item((uint8_t *)joined->buf + at, joined->len - at, &held, (Py_ssize_t)row);
        is_fit = size >= 0;
        if (is_fit)
            set_i64(held.views[6].buf, i, at += size);
    }
    is_fit = is_fit && at == joined->len;
    let_go(&held);
    if (!is_fit)
        return refused("the rows are not there, or make up another length");
    Py_RETURN_NONE;
}

#define METHOD(name, about) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, about}

PyMethodDef columns_methods[] = {
    METHOD(record_starts, "Where records begin, by their sizes."),
    METHOD(record_parts, "Where the parts of records lie."),
    METHOD(piece_sums, "The CRC-32 of stretches of bytes."),
    METHOD(pick_pieces, "Pieces of bytes, side by side."),
    METHOD(property_entries, "The entries of the properties of many messages."),
    METHOD(property_texts, "The names and the values of entries."),
    METHOD(property_values, "The values of one property of many messages."),
    METHOD(join_batch, "The messages of a batch, one after the other."),
    {NULL, NULL, 0, NULL},
};
