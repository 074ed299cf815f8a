/* What a pull reads: the loops of store/reading.py, and what an SQL92 expression is asked about (protocol/record.py).
 *
 * A consume queue entry is a place in the log (i64), the size of the record there (i32), and a tag code (i64).
 * Nothing is believed of an entry before it was compared with the bytes that are really there. */

#include "kourou.h"

#define ENTRY_BYTES 20
#define PICKED_MAX 512
#define CODES_MAX 128
#define SPAN_BYTES_MAX (8 << 20)
#define HEAD_BYTES_MAX 1024
#define PREFIX_BYTES 8
#define FRAME_BYTES_MAX (16 * 1024 * 1024)

typedef struct {
    int64_t place;
    int32_t size;
} Picked;

typedef struct {
    const uint8_t *entries; /* the first is that of `queue_offset` */
    const uint8_t *verdicts; /* one byte for each of them, or NULL: 0 when it is not wanted */
    Py_ssize_t available;
    int64_t queue_offset, left; /* so many entries has the queue from there on */
    int64_t count_max, bytes_max, scan_max, block_entries;
    int64_t lowest_place;
    int64_t codes[CODES_MAX];
    int codes_count; /* -1: any tag will do */
} Search;

typedef struct {
    Picked picked[PICKED_MAX];
    Py_ssize_t count;
    int64_t bytes, next_offset;
} Found;

enum { LEFT_TO_THE_TWIN = 0, DONE = 1, MORE_ENTRIES = 2 };

static inline int64_t place_of(const Search *search, int64_t index)
{
    return (int64_t)get_u64(search->entries + index * ENTRY_BYTES);
}

static inline int32_t size_of(const Search *search, int64_t index)
{
    return (int32_t)get_u32(search->entries + index * ENTRY_BYTES + 8);
}

static inline int is_wanted(const Search *search, int64_t index)
{
    if (search->verdicts != NULL)
        return search->verdicts[index] != 0;
    if (search->codes_count < 0)
        return 1;
    int64_t tag = (int64_t)get_u64(search->entries + index * ENTRY_BYTES + 12);
    for (int i = 0; i < search->codes_count; i++)
        if (search->codes[i] == tag)
            return 1;
    return 0;
}

/* Takes the entry at `index`, if it leads to a record of its own behind the one before. */
static int take(const Search *search, int64_t index, Found *found)
{
    int64_t place = place_of(search, index);
    int32_t size = size_of(search, index);
    if (size <= 0 || size > SPAN_BYTES_MAX || place < search->lowest_place || place > INT64_MAX / 2)
        return LEFT_TO_THE_TWIN;
    if (found->count > 0) {
        const Picked *last = &found->picked[found->count - 1];
        if (place < last->place + last->size || place + size - found->picked[0].place > SPAN_BYTES_MAX)
            return LEFT_TO_THE_TWIN;
    }
    if (index + 1 < search->left) {
        if (index + 1 >= search->available)
            return MORE_ENTRIES;
        if (place_of(search, index + 1) == place)
            return LEFT_TO_THE_TWIN; /* a mere copy of the next one */
    }
    found->picked[found->count++] = (Picked){place, size};
    found->bytes += size;
    return DONE;
}

/* The same decisions as `Reader._read_all` and `Reader._read_some` come to. A search with a filter that has found
 * enough goes on to the next one that is wanted, or to the end of its block: so nobody looks there twice. */
static int pick(const Search *search, Found *found)
{
    int64_t end = search->scan_max < search->left ? search->scan_max : search->left;
    found->count = 0;
    found->bytes = 0;
    if (search->available < 1 || place_of(search, 0) < search->lowest_place)
        return LEFT_TO_THE_TWIN;
    for (int64_t index = 0; index < end; index++) {
        int64_t offset = search->queue_offset + index;
        if (found->count >= search->count_max && offset % search->block_entries == 0) {
            found->next_offset = offset;
            return DONE;
        }
        if (index >= search->available)
            return MORE_ENTRIES;
        if (!is_wanted(search, index))
            continue;
        if (found->count > 0 &&
            (found->count >= search->count_max || found->bytes + size_of(search, index) > search->bytes_max)) {
            found->next_offset = offset;
            return DONE;
        }
        int taken = take(search, index, found);
        if (taken != DONE)
            return taken;
    }
    found->next_offset = search->queue_offset + end;
    return found->count > 0 ? DONE : LEFT_TO_THE_TWIN;
}

static int is_long(PyObject *value, int64_t *number)
{
    *number = PyLong_Check(value) ? PyLong_AsLongLong(value) : -1;
    if (*number == -1 && PyErr_Occurred()) {
        PyErr_Clear(); /* too large for anything here */
        return 0;
    }
    return PyLong_Check(value);
}

/* The tag codes that are wanted: None for all. 0 when there is anything unusual about them. */
static int has_codes(PyObject *wanted, Search *search)
{
    search->codes_count = -1;
    if (wanted == Py_None)
        return 1;
    if (!PyAnySet_CheckExact(wanted) || PySet_GET_SIZE(wanted) > CODES_MAX)
        return 0;
    search->codes_count = 0;
    PyObject *codes = PyObject_GetIter(wanted), *code;
    int is_usual = codes != NULL;
    while (is_usual && (code = PyIter_Next(codes)) != NULL) {
        is_usual = search->codes_count < CODES_MAX && is_long(code, &search->codes[search->codes_count]);
        search->codes_count++;
        Py_DECREF(code);
    }
    Py_XDECREF(codes);
    return is_usual && !PyErr_Occurred();
}

static size_t put_decimal(uint8_t *at, int64_t number)
{
    uint8_t digits[20];
    size_t count = 0, sign = number < 0;
    uint64_t rest = sign ? 0 - (uint64_t)number : (uint64_t)number;
    do
        digits[count++] = (uint8_t)('0' + rest % 10);
    while ((rest /= 10) != 0);
    if (sign)
        at[0] = '-';
    for (size_t i = 0; i < count; i++)
        at[sign + i] = digits[count - 1 - i];
    return sign + count;
}

/* Puts the numbers in the places of %d; returns how long it is then, or 0 when they do not fit each other. */
static size_t fill(const uint8_t *template, size_t size, const int64_t *numbers, size_t count, uint8_t *head)
{
    size_t used = 0, length = 0;
    for (size_t at = 0; at < size; at++) {
        if (template[at] != '%') {
            head[length++] = template[at];
            continue;
        }
        if (at + 1 >= size || template[at + 1] != 'd' || used >= count)
            return 0;
        length += put_decimal(head + length, numbers[used++]);
        at++;
    }
    return used == count ? length : 0;
}

static PyObject *framed(const uint8_t *head, size_t head_size, const Found *found, const Py_buffer *log)
{
    int64_t size = (int64_t)(PREFIX_BYTES + head_size) + found->bytes;
    PyObject *frame = size > FRAME_BYTES_MAX ? NULL : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (frame == NULL)
        return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AS_STRING(frame);
    put_u32(at, (uint32_t)(size - 4));
    put_u32(at + 4, (uint32_t)head_size); /* its highest byte, 0, says that the header is JSON */
    memcpy(at + PREFIX_BYTES, head, head_size);
    at += PREFIX_BYTES + head_size;
    const uint8_t *start = log->buf;
    for (Py_ssize_t i = 0; i < found->count; i++) {
        const Picked *each = &found->picked[i];
        if (i + 1 < found->count)
            __builtin_prefetch(start + (found->picked[i + 1].place - found->picked[0].place));
        memcpy(at, start + (each->place - found->picked[0].place), (size_t)each->size);
        at += each->size;
    }
    return frame;
}

/* The bytes of the log from the first picked record to the end of the last; 0 when they are not to be had so. */
static int sees(PyObject *view_of, const Found *found, Py_buffer *log)
{
    const Picked *first = &found->picked[0], *last = &found->picked[found->count - 1];
    int64_t span = last->place + last->size - first->place;
    PyObject *view = PyObject_CallFunction(view_of, "LL", (long long)span, (long long)first->place);
    if (view == NULL || view == Py_None || PyObject_GetBuffer(view, log, PyBUF_SIMPLE) < 0) {
        Py_XDECREF(view);
        return 0;
    }
    Py_DECREF(view); /* the buffer keeps it */
    if (log->len == span)
        return 1;
    PyBuffer_Release(log);
    return 0;
}

/* What a reply is made from besides records: its header with %d for each number, of which the second is found. */
typedef struct {
    PyObject *template, *view_of;
    int64_t numbers[5];
} Head;

enum { BROKER_ID = 0, NEXT_OFFSET = 1, LEAST = 2, MOST = 3, OPAQUE = 4 };

static int is_usual(const Search *search, const Head *head)
{
    return search->queue_offset >= 0 && head->numbers[MOST] >= search->queue_offset && search->count_max >= 1 &&
           search->count_max <= PICKED_MAX && search->block_entries >= 1 && search->scan_max >= 1 &&
           PyBytes_GET_SIZE(head->template) + 5 * 20 <= HEAD_BYTES_MAX;
}

/* The reply with what is found, False or None, as `pull_reply` says. */
static PyObject *replied(Search *search, Head *head)
{
    Found found;
    uint8_t text[HEAD_BYTES_MAX];
    Py_buffer log;
    if (!is_usual(search, head))
        Py_RETURN_NONE;
    search->left = head->numbers[MOST] - search->queue_offset;
    if (search->lowest_place < 0)
        search->lowest_place = 0;
    int result = pick(search, &found);
    if (result == MORE_ENTRIES)
        Py_RETURN_FALSE;
    if (result != DONE)
        Py_RETURN_NONE;
    head->numbers[NEXT_OFFSET] = found.next_offset;
    size_t size = fill((const uint8_t *)PyBytes_AS_STRING(head->template), (size_t)PyBytes_GET_SIZE(head->template),
                       head->numbers, 5, text);
    PyObject *frame = NULL;
    if (size > 0 && sees(head->view_of, &found, &log)) {
        frame = framed(text, size, &found, &log);
        PyBuffer_Release(&log);
    }
    if (frame == NULL) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    return Py_BuildValue("((N)nLnL)", frame, PyBytes_GET_SIZE(frame), (long long)found.next_offset, found.count,
                         (long long)found.bytes);
}

/* Lets the search begin with entry `first` of `entries`; 0 when there is none. */
static int begins_at(Search *search, PyObject *entries, int64_t first)
{
    int64_t available = PyBytes_GET_SIZE(entries) / ENTRY_BYTES;
    if (first < 0 || first > available)
        return 0;
    search->entries = (const uint8_t *)PyBytes_AS_STRING(entries) + first * ENTRY_BYTES;
    search->available = (Py_ssize_t)(available - first);
    search->verdicts = NULL;
    return 1;
}

static PyObject *none_unless_error(void)
{
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* pull_reply(template, broker_id, least, most, opaque, entries, first, verdicts, queue_offset, count_max, bytes_max,
 *            scan_max, block_entries, wanted, lowest_place, view_of)
 *   -> ((frame,), its size, next_offset, count, size), the whole reply;
 *      False when there are not enough entries; None when it has to be found out in the plain way. */
static PyObject *pull_reply(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 16 || !PyBytes_Check(args[0]) || !PyBytes_Check(args[5]) ||
        (args[7] != Py_None && !PyBytes_Check(args[7]))) {
        PyErr_SetString(PyExc_TypeError, "pull_reply(template: bytes, broker_id, least, most, opaque, "
                                         "entries: bytes, first, verdicts: bytes | None, queue_offset, count_max, "
                                         "bytes_max, scan_max, block_entries, wanted, lowest_place, view_of)");
        return NULL;
    }
    Search search;
    Head head = {args[0], args[15], {0}};
    int64_t first;
    if (!is_long(args[1], &head.numbers[BROKER_ID]) || !is_long(args[2], &head.numbers[LEAST]) ||
        !is_long(args[3], &head.numbers[MOST]) || !is_long(args[4], &head.numbers[OPAQUE]) ||
        !is_long(args[6], &first) || !is_long(args[8], &search.queue_offset) ||
        !is_long(args[9], &search.count_max) || !is_long(args[10], &search.bytes_max) ||
        !is_long(args[11], &search.scan_max) || !is_long(args[12], &search.block_entries) ||
        !is_long(args[14], &search.lowest_place) || !has_codes(args[13], &search) ||
        !begins_at(&search, args[5], first))
        return none_unless_error();
    if (args[7] != Py_None) {
        search.verdicts = (const uint8_t *)PyBytes_AS_STRING(args[7]);
        if (PyBytes_GET_SIZE(args[7]) < search.available)
            search.available = PyBytes_GET_SIZE(args[7]);
    }
    return replied(&search, &head);
}

static PyObject *name_min_offset, *name_max_offset, *name_old_end; /* of a queue */
static PyObject *name_messages_max, *name_bytes_max, *name_scan_max; /* of StoreConfig */

static int has_number(PyObject *object, PyObject *name, int64_t *number)
{
    PyObject *value = PyObject_GetAttr(object, name);
    int is_usual_number = value != NULL && is_long(value, number);
    Py_XDECREF(value);
    return is_usual_number;
}

/* kept_reply(queue, config, kept, entries_together, block_entries, queue_offset, count_max, wanted, template, opaque,
 *            lowest_place, view_of)
 *   -> as `pull_reply`, out of kept[queue, queue_offset // entries_together]; never False. */
static PyObject *kept_reply(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 12 || !PyDict_Check(args[2]) || !PyBytes_Check(args[8])) {
        PyErr_SetString(PyExc_TypeError, "kept_reply(queue, config, kept: dict, entries_together, block_entries, "
                                         "queue_offset, count_max, wanted, template: bytes, opaque, lowest_place, "
                                         "view_of)");
        return NULL;
    }
    Search search;
    Head head = {args[8], args[11], {0}};
    int64_t together, old_end, messages_max, scan_max;
    if (!has_number(args[0], name_min_offset, &head.numbers[LEAST]) ||
        !has_number(args[0], name_max_offset, &head.numbers[MOST]) || !has_number(args[0], name_old_end, &old_end) ||
        !has_number(args[1], name_messages_max, &messages_max) || !has_number(args[1], name_scan_max, &scan_max) ||
        !has_number(args[1], name_bytes_max, &search.bytes_max) || !is_long(args[3], &together) ||
        !is_long(args[4], &search.block_entries) || !is_long(args[5], &search.queue_offset) ||
        !is_long(args[6], &search.count_max) || !has_codes(args[7], &search) ||
        !is_long(args[9], &head.numbers[OPAQUE]) || !is_long(args[10], &search.lowest_place))
        return none_unless_error();
    if (search.queue_offset < head.numbers[LEAST] || search.queue_offset >= head.numbers[MOST] ||
        search.queue_offset < old_end || search.queue_offset < 0 || together < 1)
        Py_RETURN_NONE;
    if (search.count_max > messages_max)
        search.count_max = messages_max;
    if (search.count_max < 1)
        search.count_max = 1;
    search.scan_max = search.codes_count < 0 || scan_max < search.count_max ? search.count_max : scan_max;
    PyObject *key = Py_BuildValue("(OL)", args[0], (long long)(search.queue_offset / together));
    PyObject *entries = key == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(args[2], key));
    Py_XDECREF(key);
    PyObject *reply = NULL;
    if (entries != NULL && PyBytes_Check(entries) && begins_at(&search, entries, search.queue_offset % together))
        reply = replied(&search, &head);
    else
        reply = none_unless_error();
    Py_XDECREF(entries);
    if (reply != Py_False)
        return reply;
    Py_DECREF(reply);
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------------- what an expression asks for */

#define BODY_LENGTH_AT 84
#define BODY_AT 88
#define SYS_FLAG_AT 39
#define HOST_BITS 0x30
#define MAGIC_V1 0xDAA320A7u
#define LOOKED_AHEAD 4

typedef struct {
    const uint8_t *at;
    Py_ssize_t size;
} Span;

/* Whether these bytes are one whole record of the usual kind; `properties` is where they are then. */
static int has_properties(const Py_buffer *record, Span *properties)
{
    const uint8_t *at = record->buf;
    if (record->len < BODY_AT + 3 || get_u32(at) != (uint64_t)record->len || get_u32(at + 4) != MAGIC_V1 ||
        (at[SYS_FLAG_AT] & HOST_BITS))
        return 0;
    int64_t body_bytes = (int32_t)get_u32(at + BODY_LENGTH_AT);
    if (body_bytes < 0 || BODY_AT + body_bytes + 3 > record->len)
        return 0;
    int64_t topic_at = BODY_AT + body_bytes + 1, topic_bytes = at[topic_at - 1];
    if (topic_bytes > 127 || topic_at + topic_bytes + 2 > record->len)
        return 0;
    int64_t start = topic_at + topic_bytes + 2;
    properties->at = at + start;
    properties->size = record->len - start;
    return (int16_t)get_u16(at + start - 2) == properties->size;
}

/* The value of the last entry of this name: NULL when there is none, and of no bytes when it is empty. */
static Span value_in(const Span *properties, const char *name, Py_ssize_t name_size)
{
    Span value = {NULL, 0};
    const uint8_t *at = properties->at, *end = at + properties->size;
    while (at < end) {
        const uint8_t *stop = memchr(at, 2, (size_t)(end - at));
        if (stop == NULL)
            stop = end;
        if (stop - at > name_size && at[name_size] == 1 && memcmp(at, name, (size_t)name_size) == 0) {
            value.at = at + name_size + 1;
            value.size = stop - value.at;
        }
        at = stop + 1;
    }
    return value;
}

/* Whether it can be looked for entry by entry. */
static int is_plain_name(PyObject *name)
{
    const char *at = PyBytes_AS_STRING(name);
    size_t size = (size_t)PyBytes_GET_SIZE(name);
    return memchr(at, 1, size) == NULL && memchr(at, 2, size) == NULL;
}

/* A row of values, None for each that is not there; NULL without an error when it is not for us to say. */
static PyObject *row_of(const Span *properties, PyObject *names)
{
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    PyObject *row = PyTuple_New(count);
    for (Py_ssize_t i = 0; row != NULL && i < count; i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        Span found = value_in(properties, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name));
        if ((found.at != NULL && found.size == 0) || !is_plain_name(name)) {
            Py_DECREF(row);
            return NULL; /* an empty one does not count, and an earlier one may */
        }
        PyObject *value = found.at == NULL ? Py_NewRef(Py_None)
                                           : PyBytes_FromStringAndSize((const char *)found.at, found.size);
        if (value == NULL)
            Py_CLEAR(row);
        else
            PyTuple_SET_ITEM(row, i, value);
    }
    return row;
}

/* The head and the end of a record that is soon to be looked at: they come from far. */
static void bring_near(PyObject *record)
{
    if (!PyMemoryView_Check(record))
        return;
    const Py_buffer *view = PyMemoryView_GET_BUFFER(record);
    if (view->len <= BODY_AT)
        return;
    const uint8_t *at = view->buf, *end = at + view->len;
    __builtin_prefetch(at);
    __builtin_prefetch(at + BODY_LENGTH_AT);
    for (int lines = 1; lines <= 3 && end - 64 * lines >= at; lines++)
        __builtin_prefetch(end - 64 * lines);
}

static PyObject *row_or_plainly(PyObject *record, PyObject *names, PyObject *plainly)
{
    Py_buffer view;
    Span properties;
    PyObject *row = NULL;
    if (PyObject_GetBuffer(record, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (has_properties(&view, &properties))
        row = row_of(&properties, names);
    PyBuffer_Release(&view);
    if (row == NULL && !PyErr_Occurred())
        row = PyObject_CallFunctionObjArgs(plainly, record, names, NULL);
    return row;
}

/* values_of_each(records, names, plainly) -> for each record a tuple of the values of these properties;
 * plainly(record, names) says it of one that is not of the usual kind. */
static PyObject *values_of_each(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "values_of_each(records, names: tuple[bytes, ...], plainly)");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[1]); i++)
        if (!PyBytes_Check(PyTuple_GET_ITEM(args[1], i))) {
            PyErr_SetString(PyExc_TypeError, "values_of_each(records, names: tuple[bytes, ...], plainly)");
            return NULL;
        }
    PyObject *records = PySequence_Tuple(args[0]); /* ours alone: what is called may change any other */
    if (records == NULL)
        return NULL;
    Py_ssize_t size = PyTuple_GET_SIZE(records);
    PyObject *rows = PyList_New(size);
    for (Py_ssize_t i = 0; rows != NULL && i < size; i++) {
        if (i + LOOKED_AHEAD < size)
            bring_near(PyTuple_GET_ITEM(records, i + LOOKED_AHEAD));
        PyObject *row = row_or_plainly(PyTuple_GET_ITEM(records, i), args[1], args[2]);
        if (row == NULL)
            Py_CLEAR(rows);
        else
            PyList_SET_ITEM(rows, i, row);
    }
    Py_DECREF(records);
    return rows;
}

int pulls_start(PyObject *Py_UNUSED(module))
{
    name_min_offset = PyUnicode_InternFromString("min_offset");
    name_max_offset = PyUnicode_InternFromString("max_offset");
    name_old_end = PyUnicode_InternFromString("old_end");
    name_messages_max = PyUnicode_InternFromString("pull_messages_in_memory_max");
    name_bytes_max = PyUnicode_InternFromString("pull_bytes_in_memory_max");
    name_scan_max = PyUnicode_InternFromString("scan_entries_max");
    return name_min_offset && name_max_offset && name_old_end && name_messages_max && name_bytes_max && name_scan_max
               ? 0
               : -1;
}

PyMethodDef pulls_methods[] = {
    {"pull_reply", (PyCFunction)(void (*)(void))pull_reply, METH_FASTCALL, "A pull's whole reply, in one copy."},
    {"kept_reply", (PyCFunction)(void (*)(void))kept_reply, METH_FASTCALL, "The same, out of entries that are kept."},
    {"values_of_each", (PyCFunction)(void (*)(void))values_of_each, METH_FASTCALL, "Properties of many records."},
    {NULL, NULL, 0, NULL},
};
