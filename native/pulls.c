/* What a pull reads: the loops of store/ahead.py, store/reading.py, broker/filters.py and broker/handlers/pull_run.py.
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
    if (!PyFrozenSet_CheckExact(wanted) || PySet_GET_SIZE(wanted) > CODES_MAX)
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

/* pull_reply(template, broker_id, least, most, opaque, entries, at, verdicts, queue_offset, count_max, bytes_max,
 *            scan_max, block_entries, wanted, lowest_place, view_of)
 *   -> (frame, next_offset, count, size), the whole reply;
 *      False when there are not enough entries; None when it has to be found out in the plain way. */
static PyObject *pull_reply(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 16 || !PyBytes_Check(args[0]) || !PyBytes_Check(args[5]) ||
        (args[7] != Py_None && !PyBytes_Check(args[7]))) {
        PyErr_SetString(PyExc_TypeError, "pull_reply(template: bytes, broker_id, least, most, opaque, entries: bytes, "
                                         "at, verdicts: bytes | None, queue_offset, count_max, bytes_max, scan_max, "
                                         "block_entries, wanted, lowest_place, view_of)");
        return NULL;
    }
    Search search;
    Found found;
    int64_t broker_id, least, most, opaque, at;
    if (!is_long(args[1], &broker_id) || !is_long(args[2], &least) || !is_long(args[3], &most) ||
        !is_long(args[4], &opaque) || !is_long(args[6], &at) || !is_long(args[8], &search.queue_offset) ||
        !is_long(args[9], &search.count_max) || !is_long(args[10], &search.bytes_max) ||
        !is_long(args[11], &search.scan_max) || !is_long(args[12], &search.block_entries) ||
        !is_long(args[14], &search.lowest_place))
        Py_RETURN_NONE;
    if (!has_codes(args[13], &search)) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    int64_t available = PyBytes_GET_SIZE(args[5]) / ENTRY_BYTES;
    if (at < 0 || at > available || search.queue_offset < 0 || most < search.queue_offset || search.count_max < 1 ||
        search.count_max > PICKED_MAX || search.block_entries < 1 || search.scan_max < 1 ||
        search.lowest_place < 0 || (size_t)PyBytes_GET_SIZE(args[0]) + 5 * 20 > HEAD_BYTES_MAX)
        Py_RETURN_NONE;
    search.entries = (const uint8_t *)PyBytes_AS_STRING(args[5]) + at * ENTRY_BYTES;
    search.available = (Py_ssize_t)(available - at);
    search.left = most - search.queue_offset;
    search.verdicts = NULL;
    if (args[7] != Py_None) {
        search.verdicts = (const uint8_t *)PyBytes_AS_STRING(args[7]);
        if (PyBytes_GET_SIZE(args[7]) < search.available)
            search.available = PyBytes_GET_SIZE(args[7]);
    }
    int result = pick(&search, &found);
    if (result == MORE_ENTRIES)
        Py_RETURN_FALSE;
    if (result != DONE)
        Py_RETURN_NONE;
    uint8_t head[HEAD_BYTES_MAX];
    int64_t numbers[5] = {broker_id, found.next_offset, least, most, opaque};
    size_t head_size =
        fill((const uint8_t *)PyBytes_AS_STRING(args[0]), (size_t)PyBytes_GET_SIZE(args[0]), numbers, 5, head);
    Py_buffer log;
    if (head_size == 0 || !sees(args[15], &found, &log)) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    PyObject *frame = framed(head, head_size, &found, &log);
    PyBuffer_Release(&log);
    if (frame == NULL) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(NLnL)", frame, (long long)found.next_offset, found.count, (long long)found.bytes);
}

int pulls_start(PyObject *Py_UNUSED(module))
{
    return 0;
}

PyMethodDef pulls_methods[] = {
    {"pull_reply", (PyCFunction)(void (*)(void))pull_reply, METH_FASTCALL, "A pull's whole reply, in one copy."},
    {NULL, NULL, 0, NULL},
};
