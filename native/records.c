/* Records one after the other in bytes of the log: the loops of store/following.py and store/recovery.py; and the
 * keys of many messages at once, that of store/key_hashes.py. */

#include "kourou.h"

#define MAGIC_V1 0xDAA320A7u
#define HEAD_BYTES 88       /* V1, both hosts IPv4: the body follows */
#define RECORD_BYTES_MIN 91 /* no body, no topic, no properties, and their three lengths */
#define UNUSUAL_BITS 0x3C   /* transactions; hosts that are IPv6 */
#define TOPIC_BYTES_MAX 127
#define PROPERTIES_BYTES_MAX 32767
#define CRC_START "__CRC32#\x01"
#define CRC_START_BYTES 9
#define CRC_BYTES 20
#define CRC_DIGITS 10
#define GROUPS_MAX 512
#define SLOTS 1024 /* a power of two, and never more than half full */

typedef struct {
    const uint8_t *at;
    Py_ssize_t size;
} Span;

/* What a message is known by; of size 0 what it has not. */
typedef struct {
    Span tags, keys, unique_id;
} Names;

typedef struct {
    int64_t place, queue_offset, stored_ms;
    int32_t size, queue_id;
    Span topic, properties; /* these without the CRC of the whole, if it has one */
    Names names;
} Record;

/* By what messages are found: hashes, and for each of them the place of the message. */
typedef struct {
    PyObject *hashes, *places;
} Keys;

/* A queue, as far as records of it were met. */
typedef struct {
    Span topic;
    int32_t queue_id;
    uint32_t prefix_hash;
    int64_t next;
    PyObject *numbers;
} Group;

typedef struct {
    PyObject *queue_of, *runs;
    Keys keys;
    int has_keys, count;
    uint16_t slots[SLOTS]; /* one more than the group's number; 0: free */
    Group groups[GROUPS_MAX];
} Walk;

int records_start(PyObject *Py_UNUSED(module))
{
    return 0;
}

/* ------------------------------------------------------------------------------- is it a usual record, and whole */

static int is_crc(const uint8_t *end, uint32_t sum)
{
    uint8_t expected[CRC_BYTES] = CRC_START;
    sum &= 0x7FFFFFFF;
    for (int digit = 0; digit < CRC_DIGITS; digit++, sum /= 10)
        expected[CRC_START_BYTES + digit] = (uint8_t)('0' + sum % 10); /* the last digit comes first */
    expected[CRC_BYTES - 1] = 2;
    return memcmp(end, expected, CRC_BYTES) == 0;
}

static int starts_with(Span text, const char *start, Py_ssize_t size)
{
    return text.size >= size && memcmp(text.at, start, (size_t)size) == 0;
}

static int holds_crc_start(Span properties)
{
    const uint8_t *end = properties.at + properties.size;
    for (Span rest = properties; rest.size >= CRC_START_BYTES;) {
        const uint8_t *found = memchr(rest.at, '_', (size_t)rest.size);
        if (found == NULL)
            return 0;
        rest = (Span){found, end - found};
        if (starts_with(rest, CRC_START, CRC_START_BYTES))
            return 1;
        rest = (Span){found + 1, end - found - 1};
    }
    return 0;
}

/* Whether the end of some properties looks like a CRC of the whole, some of its bytes apart. */
static int was_a_crc(Span properties)
{
    Py_ssize_t size = properties.size < CRC_BYTES ? properties.size : CRC_BYTES;
    const uint8_t *end = properties.at + properties.size - size;
    int alike = 0, digits = 0;
    for (Py_ssize_t i = 0; i < size && i < CRC_START_BYTES; i++)
        alike += end[i] == (uint8_t)CRC_START[i];
    for (Py_ssize_t i = CRC_START_BYTES; i < size - 1; i++)
        digits += end[i] >= '0' && end[i] <= '9';
    return alike >= 3 && alike + digits + (size > 0 && end[size - 1] == 2) >= 12;
}

/* The CRC of the whole stands for that of the body, too. Records of other brokers have that of the body alone,
 * which says nothing of what follows it: so much must be seen of the properties that they are some. */
static int is_whole(const uint8_t *record, Record *found, int64_t body_size)
{
    Span *properties = &found->properties;
    const uint8_t *crc = record + found->size - CRC_BYTES;
    if (properties->size >= CRC_BYTES && memcmp(crc, CRC_START, CRC_START_BYTES) == 0) {
        properties->size -= CRC_BYTES;
        if (properties->size > 0 && crc[-1] != 2) /* the CRC is no property of its own then */
            return 0;
        return is_crc(crc, crc32_of(0, record, (size_t)(found->size - CRC_BYTES)));
    }
    if (memchr(properties->at, 0, (size_t)properties->size) != NULL || holds_crc_start(*properties) ||
        was_a_crc(*properties))
        return 0;
    return get_u32(record + 8) == (crc32_of(0, record + HEAD_BYTES, (size_t)body_size) & 0x7FFFFFFF);
}

/* The record at `at`, of which `left` bytes are there; 0: it is not a usual one, or not whole. */
static int read_record(const uint8_t *at, int64_t left, int64_t place, Record *found)
{
    if (left < RECORD_BYTES_MIN)
        return 0;
    int64_t size = (int32_t)get_u32(at), body_size = (int32_t)get_u32(at + 84);
    if (get_u32(at + 4) != MAGIC_V1 || size < RECORD_BYTES_MIN || size > left ||
        get_u64(at + 28) != (uint64_t)place || get_u32(at + 36) & UNUSUAL_BITS || body_size < 0 ||
        body_size > size - RECORD_BYTES_MIN)
        return 0;
    int64_t topic_at = HEAD_BYTES + body_size + 1, topic_size = at[topic_at - 1];
    int64_t properties_at = topic_at + topic_size + 2, properties_size = size - properties_at;
    if (topic_size < 1 || topic_size > TOPIC_BYTES_MAX || properties_size < 0 ||
        properties_size > PROPERTIES_BYTES_MAX || get_u16(at + properties_at - 2) != properties_size)
        return 0;
    found->place = place;
    found->size = (int32_t)size;
    found->queue_id = (int32_t)get_u32(at + 12);
    found->queue_offset = (int64_t)get_u64(at + 20);
    found->stored_ms = (int64_t)get_u64(at + 56);
    found->topic = (Span){at + topic_at, (Py_ssize_t)topic_size};
    found->properties = (Span){at + properties_at, (Py_ssize_t)properties_size};
    return is_whole(at, found, body_size);
}

/* -------------------------------------------------------------------------------------------- its properties */

static int is_ascii(Span text)
{
    uint8_t all = 0;
    for (Py_ssize_t i = 0; i < text.size; i++)
        all |= text.at[i];
    return all < 0x80;
}

/* What follows `name` in an entry that begins with it; 0: that is nothing, or not ASCII. */
static int take_value(Span entry, const char *name, Py_ssize_t size, Span *value)
{
    if (!starts_with(entry, name, size))
        return 1;
    *value = (Span){entry.at + size, entry.size - size};
    return value->size > 0 && is_ascii(*value);
}

/* Find what a message is known by; of two entries with one name the later wins. 0: there is an entry without a
 * name, or one that counts and is empty or not ASCII: somebody else sees to those. */
static int read_names(Span properties, Names *names)
{
    names->tags = names->keys = names->unique_id = (Span){NULL, 0};
    for (Span rest = properties; rest.size > 0;) {
        const uint8_t *stop = memchr(rest.at, 2, (size_t)rest.size);
        Span entry = {rest.at, stop == NULL ? rest.size : stop - rest.at};
        if (entry.size > 0 && memchr(entry.at, 1, (size_t)entry.size) == NULL)
            return 0;
        if (!take_value(entry, "TAGS\x01", 5, &names->tags) || !take_value(entry, "KEYS\x01", 5, &names->keys) ||
            !take_value(entry, "UNIQ_KEY\x01", 9, &names->unique_id))
            return 0;
        Py_ssize_t taken = entry.size + (stop != NULL);
        rest = (Span){rest.at + taken, rest.size - taken};
    }
    return 1;
}

/* Java's String.hashCode of all so far and `text` behind it. */
static uint32_t java_hash(uint32_t so_far, Span text)
{
    for (Py_ssize_t i = 0; i < text.size; i++)
        so_far = 31 * so_far + text.at[i];
    return so_far;
}

/* The hash of "topic#", with which the keys of its messages begin. */
static uint32_t prefix_hash_of(Span topic)
{
    return 31 * java_hash(0, topic) + '#';
}

/* ------------------------------------------------------------------------------------------------ its queue */

static uint32_t first_slot(const Record *found)
{
    uint32_t mixed = (uint32_t)found->queue_id * 0x9E3779B1u + (uint32_t)found->topic.size;
    for (Py_ssize_t i = found->topic.size > 6 ? found->topic.size - 6 : 0; i < found->topic.size; i++)
        mixed = mixed * 0x01000193u ^ found->topic.at[i]; /* names differ at their ends */
    return (mixed ^ mixed >> 15) & (SLOTS - 1);
}

/* Asks for the queue of a record: queue_of(topic, queue_id) -> (next offset, queue), or None. 1: there it is, and
 * `into` has a list of its own; 0: None; -1: an error. */
static int ask(Walk *walk, const Record *found, Group *into)
{
    PyObject *answer = PyObject_CallFunction(walk->queue_of, "y#i", (const char *)found->topic.at, found->topic.size,
                                             (int)found->queue_id);
    if (answer == NULL || answer == Py_None) {
        int result = answer == NULL ? -1 : 0;
        Py_XDECREF(answer);
        return result;
    }
    PyObject *queue, *run = NULL;
    long long next;
    into->numbers = NULL;
    if (PyTuple_Check(answer) && PyArg_ParseTuple(answer, "LO", &next, &queue)) {
        into->numbers = PyList_New(0);
        run = into->numbers == NULL ? NULL : PyTuple_Pack(2, queue, into->numbers);
    } else if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "queue_of(topic, queue_id) -> (next offset, queue) or None");
    }
    Py_DECREF(answer);
    int result = run == NULL || PyList_Append(walk->runs, run) < 0 ? -1 : 1;
    Py_XDECREF(run);
    if (result < 0)
        Py_CLEAR(into->numbers);
    else
        into->next = next;
    return result;
}

/* The group of a record; NULL, perhaps with an error: it is not known, or one too many. */
static Group *group_of(Walk *walk, const Record *found)
{
    uint32_t slot = first_slot(found);
    for (; walk->slots[slot]; slot = (slot + 1) & (SLOTS - 1)) {
        Group *group = &walk->groups[walk->slots[slot] - 1];
        if (group->queue_id == found->queue_id && group->topic.size == found->topic.size &&
            memcmp(group->topic.at, found->topic.at, (size_t)found->topic.size) == 0)
            return group;
    }
    Group *group = &walk->groups[walk->count];
    if (walk->count == GROUPS_MAX || ask(walk, found, group) <= 0)
        return NULL;
    group->topic = found->topic;
    group->queue_id = found->queue_id;
    group->prefix_hash = prefix_hash_of(found->topic);
    walk->slots[slot] = (uint16_t)++walk->count;
    return group;
}

/* ---------------------------------------------------------------------------------------------- taking it in */

static int append_new(PyObject *list, PyObject *number)
{
    int result = number == NULL ? -1 : PyList_Append(list, number);
    Py_XDECREF(number);
    return result;
}

static int add_key(const Keys *into, uint32_t prefix_hash, Span key, PyObject *place)
{
    uint32_t hash = java_hash(prefix_hash, key);
    if (hash >= 0x80000000u) /* without its sign; |-2**31| does not fit: 0, as in the original */
        hash = hash == 0x80000000u ? 0 : 0u - hash;
    return append_new(into->hashes, PyLong_FromUnsignedLong(hash)) < 0 ? -1 : PyList_Append(into->places, place);
}

/* The unique id first, then the keys, which stand with spaces between them. */
static int add_keys(const Keys *into, uint32_t prefix_hash, const Names *names, PyObject *place)
{
    if (names->unique_id.size > 0 && add_key(into, prefix_hash, names->unique_id, place) < 0)
        return -1;
    for (Span rest = names->keys; rest.size > 0;) {
        const uint8_t *stop = memchr(rest.at, ' ', (size_t)rest.size);
        Span key = {rest.at, stop == NULL ? rest.size : stop - rest.at};
        if (key.size > 0 && add_key(into, prefix_hash, key, place) < 0)
            return -1;
        Py_ssize_t taken = key.size + (stop != NULL);
        rest = (Span){rest.at + taken, rest.size - taken};
    }
    return 0;
}

static int take(Walk *walk, Group *group, const Record *found)
{
    PyObject *place = PyLong_FromLongLong(found->place);
    if (place == NULL)
        return -1;
    int32_t tag = (int32_t)java_hash(0, found->names.tags);
    int result = PyList_Append(group->numbers, place);
    if (result == 0)
        result = append_new(group->numbers, PyLong_FromLong(found->size));
    if (result == 0)
        result = append_new(group->numbers, PyLong_FromLong(tag));
    if (result == 0 && walk->has_keys)
        result = add_keys(&walk->keys, group->prefix_hash, &found->names, place);
    Py_DECREF(place);
    group->next++;
    return result;
}

/* Takes the usual records from `at` on, whose place in the log is `place`; 0, or -1 and an error. `at` is then the
 * first byte that was not taken, `last` the last record that was (its size is 0 when none was). */
static int take_all(Walk *walk, const Py_buffer *data, Py_ssize_t *at, int64_t place, Record *last)
{
    const uint8_t *bytes = data->buf;
    Record found;
    while (read_record(bytes + *at, data->len - *at, place, &found) && is_ascii(found.topic) &&
           read_names(found.properties, &found.names)) {
        Group *group = group_of(walk, &found);
        if (group == NULL)
            return PyErr_Occurred() ? -1 : 0;
        if (group->next != found.queue_offset || found.queue_offset == INT64_MAX)
            return 0;
        if (take(walk, group, &found) < 0)
            return -1;
        *at += found.size;
        place += found.size;
        *last = found;
    }
    return 0;
}

static Walk *begin(PyObject *queue_of, int has_keys)
{
    Walk *walk = PyMem_Malloc(sizeof(Walk));
    if (walk == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    walk->queue_of = queue_of;
    walk->has_keys = has_keys;
    walk->count = 0;
    memset(walk->slots, 0, sizeof walk->slots);
    walk->runs = PyList_New(0);
    walk->keys = (Keys){PyList_New(0), PyList_New(0)};
    return walk;
}

static void end(Walk *walk)
{
    for (int i = 0; i < walk->count; i++)
        Py_DECREF(walk->groups[i].numbers);
    Py_XDECREF(walk->runs);
    Py_XDECREF(walk->keys.hashes);
    Py_XDECREF(walk->keys.places);
    PyMem_Free(walk);
}

static PyObject *walked(Walk *walk, const Py_buffer *data, Py_ssize_t at, int64_t place)
{
    Record last = {.size = 0};
    if (walk->runs == NULL || walk->keys.hashes == NULL || walk->keys.places == NULL ||
        take_all(walk, data, &at, place, &last) < 0)
        return NULL;
    return Py_BuildValue("n(LiL)OOO", at, (long long)last.place, (int)last.size, (long long)last.stored_ms,
                         walk->runs, walk->keys.hashes, walk->keys.places);
}

/* walk(data, at, place, queue_of, has_keys) -> (stop, (place, size, store time), runs, hashes, places)
 *
 * The usual records in `data` from `at` on, which is `place` in the log: whole, visible, each with the offset its
 * queue expects. `stop` is the first byte that was left: of a record that is not usual, or not there to its end. Of
 * the last record taken: place, size (0: none was), store time. `runs`: (queue, [place, size, tag, ...]) in the order
 * they were asked for; one whose first record was left after all is empty. `hashes` and `places`: by what the
 * messages are found, unless `has_keys` is false. */
static PyObject *walk_method(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "walk(data, at, place, queue_of, has_keys)");
        return NULL;
    }
    Py_ssize_t at = PyLong_AsSsize_t(args[1]);
    if (at == -1 && PyErr_Occurred())
        return NULL;
    long long place = PyLong_AsLongLong(args[2]);
    if (place == -1 && PyErr_Occurred())
        return NULL;
    int has_keys = PyObject_IsTrue(args[4]);
    Py_buffer data;
    if (has_keys < 0 || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result = NULL;
    if (at < 0 || at > data.len || place < 0 || place > INT64_MAX - data.len) {
        PyErr_Format(PyExc_ValueError, "byte %zd of %zd, at %lld of the log", at, data.len, place);
    } else {
        Walk *walk = begin(args[3], has_keys);
        if (walk != NULL) {
            result = walked(walk, &data, at, place);
            end(walk);
        }
    }
    PyBuffer_Release(&data);
    return result;
}

/* ------------------------------------------------------------------------------------------ keys by themselves */

static Span span_of(PyObject *bytes)
{
    return (Span){(const uint8_t *)PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes)};
}

/* 1: its keys were added; 0: it is not a usual one; -1: an error. */
static int add_keys_of(const Keys *into, PyObject *message)
{
    if (!PyTuple_Check(message) || PyTuple_GET_SIZE(message) != 4 || !PyBytes_Check(PyTuple_GET_ITEM(message, 0)) ||
        !PyBytes_Check(PyTuple_GET_ITEM(message, 1)))
        return 0;
    Span topic = span_of(PyTuple_GET_ITEM(message, 0)), properties = span_of(PyTuple_GET_ITEM(message, 1));
    Names names;
    if (!is_ascii(topic) || !read_names(properties, &names))
        return 0;
    return add_keys(into, prefix_hash_of(topic), &names, PyTuple_GET_ITEM(message, 3)) < 0 ? -1 : 1;
}

/* add_keys(messages, at, hashes, places) -> the first message from `at` on that was left: the loop of
 * KeyHashes.collect. A message is (topic, properties, where in these a unique id begins, place). */
static PyObject *add_keys_method(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 4 || !PyList_Check(args[0]) || !PyList_Check(args[2]) || !PyList_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "add_keys(messages: list, at, hashes: list, places: list)");
        return NULL;
    }
    Keys into = {args[2], args[3]};
    Py_ssize_t at = PyLong_AsSsize_t(args[1]);
    if (at == -1 && PyErr_Occurred())
        return NULL;
    for (; at >= 0 && at < PyList_GET_SIZE(args[0]); at++) {
        PyObject *message = PyList_GET_ITEM(args[0], at);
        Py_INCREF(message);
        int was_added = add_keys_of(&into, message);
        Py_DECREF(message);
        if (was_added < 0)
            return NULL;
        if (!was_added)
            break;
    }
    return PyLong_FromSsize_t(at);
}

PyMethodDef records_methods[] = {
    {"add_keys", (PyCFunction)(void (*)(void))add_keys_method, METH_FASTCALL, "By what messages are to be found."},
    {"walk", (PyCFunction)(void (*)(void))walk_method, METH_FASTCALL, "The usual records that follow each other."},
    {NULL, NULL, 0, NULL},
};
