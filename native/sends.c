/* What a send costs for each message: the loops of broker/handlers/send_run.py and store/store.py. */

#include "header.h"

#define UNIQUE_ID_BYTES 32
#define TRANSACTION_BITS 0xC
#define HOST_BITS 0x30
#define BORN_HOST_V6 0x10
#define STORE_HOST_V6 0x20
#define MAGIC_V1 0xDAA320A7u
#define CRC_PROPERTY_BYTES 20
#define PROPERTIES_BYTES_MAX 32767
#define RECORD_OVERHEAD_MAX (112 + 128 + 2 + CRC_PROPERTY_BYTES) /* two IPv6 hosts, the longest topic */

static PyObject *name_body, *name_header, *name_next_offset, *name_staged, *name_topic_bytes, *name_topic_part;

int sends_start(PyObject *Py_UNUSED(module))
{
    name_body = PyUnicode_InternFromString("body");
    name_header = PyUnicode_InternFromString("header");
    name_next_offset = PyUnicode_InternFromString("next_offset");
    name_staged = PyUnicode_InternFromString("staged");
    name_topic_bytes = PyUnicode_InternFromString("topic_bytes");
    name_topic_part = PyUnicode_InternFromString("topic_part");
    return name_body && name_header && name_next_offset && name_staged && name_topic_bytes && name_topic_part ? 0
                                                                                                              : -1;
}

static int append_and_drop(PyObject *list, PyObject *item)
{
    int result = item == NULL ? -1 : PyList_Append(list, item);
    Py_XDECREF(item);
    return result;
}

/* ------------------------------------------------------------------------------------ what is asked for */

enum { GROUP = 0, TOPIC = 1, DEFAULT_TOPIC = 2, DEFAULT_QUEUES = 3, QUEUE_ID = 4, SYS_FLAG = 5, BORN = 6, FLAG = 7,
       PROPERTIES = 8, RECONSUME_TIMES = 9, UNIT_MODE = 10, RECONSUME_MAX = 11, BATCH = 12, BROKER_NAME = 13 };

typedef struct {
    Header header;
    int64_t opaque, queue_id, sys_flag, born_ms, flag, reconsume_times;
} Asked;

static int is_optional_flag(const Value *value, int is_true_allowed)
{
    return value_is_absent(value) || (value->kind != ESCAPED && value_is(value, "false")) ||
           (is_true_allowed && value->kind != ESCAPED && value_is(value, "true"));
}

/* Whether it is a send with nothing unusual about its fields. */
static int read_asked(Asked *asked, const uint8_t *data, Py_ssize_t size)
{
    Header *header = &asked->header;
    Value *fields = header->fields;
    int64_t ignored, flag = 0;
    if (!header_read(header, data, size) || !value_integer(&header->opaque, INT32_MIN, INT32_MAX, &asked->opaque))
        return 0;
    if (header->flag.kind != NOTHING && (!value_integer(&header->flag, 0, 0, &flag)))
        return 0;
    asked->reconsume_times = 0;
    return fields[GROUP].kind == TEXT && fields[TOPIC].kind == TEXT && fields[DEFAULT_TOPIC].kind == TEXT &&
           value_integer(&fields[DEFAULT_QUEUES], INT32_MIN, INT32_MAX, &ignored) &&
           value_integer(&fields[QUEUE_ID], 0, INT32_MAX, &asked->queue_id) &&
           value_integer(&fields[SYS_FLAG], INT32_MIN, INT32_MAX, &asked->sys_flag) &&
           value_integer(&fields[BORN], INT64_MIN, INT64_MAX, &asked->born_ms) &&
           value_integer(&fields[FLAG], INT32_MIN, INT32_MAX, &asked->flag) &&
           (value_is_absent(&fields[PROPERTIES]) || fields[PROPERTIES].kind == TEXT ||
            fields[PROPERTIES].kind == ESCAPED) &&
           (value_is_absent(&fields[RECONSUME_TIMES]) ||
            value_integer(&fields[RECONSUME_TIMES], INT32_MIN, INT32_MAX, &asked->reconsume_times)) &&
           is_optional_flag(&fields[UNIT_MODE], 1) &&
           (value_is_absent(&fields[RECONSUME_MAX]) ||
            value_integer(&fields[RECONSUME_MAX], INT32_MIN, INT32_MAX, &ignored)) &&
           is_optional_flag(&fields[BATCH], 0) &&
           (value_is_absent(&fields[BROKER_NAME]) || fields[BROKER_NAME].kind == TEXT) &&
           !(asked->sys_flag & TRANSACTION_BITS);
}

/* What stands around a unique id: `Around` of usual_properties.py, without references of its own. */
typedef struct {
    const char *came_before, *came_after, *before, *after;
    Py_ssize_t came_before_size, came_after_size, before_size, after_size;
    PyObject *id_at, *tag;
} Around;

/* Whether `known` is one. Lives as long as it does. */
static int around_of(Around *around, PyObject *known)
{
    if (!PyTuple_Check(known) || PyTuple_GET_SIZE(known) != 9)
        return 0;
    PyObject *came_before = PyTuple_GET_ITEM(known, 1), *came_after = PyTuple_GET_ITEM(known, 2);
    PyObject *before = PyTuple_GET_ITEM(known, 5), *after = PyTuple_GET_ITEM(known, 6);
    if (!PyUnicode_Check(came_before) || !PyUnicode_Check(came_after) || !PyBytes_Check(before) ||
        !PyBytes_Check(after))
        return 0;
    around->came_before = PyUnicode_AsUTF8AndSize(came_before, &around->came_before_size);
    around->came_after = PyUnicode_AsUTF8AndSize(came_after, &around->came_after_size);
    if (around->came_before == NULL || around->came_after == NULL) {
        PyErr_Clear(); /* a lone surrogate: nothing that was received is equal to it */
        return 0;
    }
    around->before = PyBytes_AS_STRING(before);
    around->before_size = PyBytes_GET_SIZE(before);
    around->after = PyBytes_AS_STRING(after);
    around->after_size = PyBytes_GET_SIZE(after);
    around->id_at = PyTuple_GET_ITEM(known, 7);
    around->tag = PyTuple_GET_ITEM(known, 8);
    return 1;
}

static int is_alphanumeric(const uint8_t *text, Py_ssize_t size)
{
    for (; size; text++, size--)
        if (!((*text >= '0' && *text <= '9') || ((*text | 0x20) >= 'a' && (*text | 0x20) <= 'z')))
            return 0;
    return 1;
}

static int is_within(const Around *around, const uint8_t *text, Py_ssize_t size)
{
    return size == around->came_before_size + UNIQUE_ID_BYTES + around->came_after_size &&
           memcmp(text, around->came_before, (size_t)around->came_before_size) == 0 &&
           memcmp(text + size - around->came_after_size, around->came_after, (size_t)around->came_after_size) == 0 &&
           is_alphanumeric(text + around->came_before_size, UNIQUE_ID_BYTES);
}

static PyObject *stored_around(const Around *around, const uint8_t *unique_id)
{
    PyObject *stored = PyBytes_FromStringAndSize(NULL, around->before_size + UNIQUE_ID_BYTES + around->after_size);
    if (stored != NULL) {
        char *at = PyBytes_AS_STRING(stored);
        memcpy(at, around->before, (size_t)around->before_size);
        memcpy(at + around->before_size, unique_id, UNIQUE_ID_BYTES);
        memcpy(at + around->before_size + UNIQUE_ID_BYTES, around->after, (size_t)around->after_size);
    }
    return stored;
}

/* A run as it is looked at. */
typedef struct {
    PyObject *queues_of, *stored_as, *known; /* `known`: a list of one, what was around the last unique id */
    PyObject *topic;
    Py_ssize_t body_max;
    int64_t queues;
    uint8_t *text;
    Py_ssize_t text_room;
} Looking;

/* Whether the topic takes messages, 1 or 0; -1 and an error. Most messages are for that of the one before. */
static int find_topic(Looking *looking, const Value *name)
{
    if (looking->topic != NULL && PyUnicode_GET_LENGTH(looking->topic) == name->size &&
        memcmp(PyUnicode_1BYTE_DATA(looking->topic), name->at, (size_t)name->size) == 0)
        return 1;
    PyObject *topic = PyUnicode_DecodeASCII((const char *)name->at, name->size, NULL);
    PyObject *queues = topic == NULL ? NULL : PyObject_CallOneArg(looking->queues_of, topic);
    int64_t count = queues == NULL ? -1 : PyLong_AsLongLong(queues);
    Py_XDECREF(queues);
    if (count <= 0) {
        Py_XDECREF(topic);
        return PyErr_Occurred() ? -1 : 0;
    }
    Py_XSETREF(looking->topic, topic);
    looking->queues = count;
    return 1;
}

/* What the properties are stored as: references to properties, unique id, its place, tag; 1, or 0 when they are
 * unusual; -1 and an error. */
static int find_stored(Looking *looking, const Value *properties, int64_t sys_flag, PyObject *found[4])
{
    Around around;
    Py_ssize_t size = 0;
    if (properties->size >= looking->text_room) {
        uint8_t *more = PyMem_Realloc(looking->text, (size_t)properties->size + 1);
        if (more == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        looking->text = more;
        looking->text_room = properties->size + 1;
    }
    if (!value_is_absent(properties) && (size = value_text(properties, looking->text)) < 0)
        return 0;
    PyObject *known = PyList_GET_SIZE(looking->known) ? PyList_GET_ITEM(looking->known, 0) : Py_None;
    if (around_of(&around, known) && is_within(&around, looking->text, size)) {
        const uint8_t *unique_id = looking->text + around.came_before_size;
        found[0] = stored_around(&around, unique_id);
        found[1] = PyBytes_FromStringAndSize((const char *)unique_id, UNIQUE_ID_BYTES);
        found[2] = Py_NewRef(around.id_at);
        found[3] = Py_NewRef(around.tag);
        return found[0] != NULL && found[1] != NULL ? 1 : -1;
    }
    PyObject *text = PyUnicode_DecodeUTF8((const char *)looking->text, size, NULL);
    if (text == NULL) {
        PyErr_Clear();
        return 0;
    }
    PyObject *stored = PyObject_CallFunction(looking->stored_as, "OOL", looking->topic, text, (long long)sys_flag);
    Py_DECREF(text);
    if (stored == NULL)
        return -1;
    int is_stored = PyTuple_Check(stored) && PyTuple_GET_SIZE(stored) == 4;
    for (int i = 0; is_stored && i < 4; i++)
        found[i] = Py_NewRef(PyTuple_GET_ITEM(stored, i));
    Py_DECREF(stored);
    return is_stored;
}

/* Adds a message to `run` and what its sender is told of it to `asked`. */
static int add_message(PyObject *run, PyObject *asked_list, const Looking *looking, const Asked *asked, PyObject *body,
                       PyObject *const found[4])
{
    PyObject *queue_id = PyLong_FromLongLong(asked->queue_id);
    PyObject *key = queue_id == NULL ? NULL : PyTuple_Pack(2, looking->topic, queue_id);
    PyObject *numbers[4] = {
        PyLong_FromLongLong(asked->flag),
        PyLong_FromLongLong(asked->sys_flag),
        PyLong_FromLongLong(asked->born_ms),
        PyLong_FromLongLong(asked->reconsume_times),
    };
    PyObject *opaque = PyLong_FromLongLong(asked->opaque);
    int result = -1;
    if (key && numbers[0] && numbers[1] && numbers[2] && numbers[3] && opaque &&
        append_and_drop(run, PyTuple_Pack(9, key, body, found[0], found[2], found[3], numbers[0], numbers[1],
                                          numbers[2], numbers[3])) == 0)
        result = append_and_drop(asked_list, PyTuple_Pack(3, queue_id, found[1], opaque));
    for (int i = 0; i < 4; i++)
        Py_XDECREF(numbers[i]);
    Py_XDECREF(opaque);
    Py_XDECREF(key);
    Py_XDECREF(queue_id);
    return result;
}

/* 1 when it was taken, 0 when it is unusual, -1 and an error. */
static int look_at_one(Looking *looking, PyObject *header, PyObject *body, PyObject *asked_list, PyObject *run)
{
    Asked asked;
    PyObject *found[4] = {NULL, NULL, NULL, NULL};
    if (!PyBytes_Check(header) || !PyBytes_Check(body) || !PyBytes_GET_SIZE(body) ||
        PyBytes_GET_SIZE(body) > looking->body_max ||
        !read_asked(&asked, (const uint8_t *)PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header)))
        return 0;
    int result = find_topic(looking, &asked.header.fields[TOPIC]);
    if (result > 0 && asked.queue_id >= looking->queues)
        result = 0;
    if (result > 0)
        result = find_stored(looking, &asked.header.fields[PROPERTIES], asked.sys_flag, found);
    if (result > 0 && add_message(run, asked_list, looking, &asked, body, found) < 0)
        result = -1;
    for (int i = 0; i < 4; i++)
        Py_XDECREF(found[i]);
    return result;
}

/* look_at_sends(frames, asked, run, queues_of, stored_as, known, body_max): as SendRunHandler._look_at, up to the
 * first frame that is unusual. `queues_of(topic)` is how many queues take messages, 0 for none; `stored_as(topic,
 * text, sys_flag)` what properties are stored as, or None; it leaves in `known` what stands around their unique id. */
static PyObject *look_at_sends(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 7 || !PyList_Check(args[0]) || !PyList_Check(args[1]) || !PyList_Check(args[2]) ||
        !PyList_Check(args[5])) {
        PyErr_SetString(PyExc_TypeError, "look_at_sends(frames, asked, run, queues_of, stored_as, known, body_max)");
        return NULL;
    }
    Looking looking = {.queues_of = args[3], .stored_as = args[4], .known = args[5]};
    looking.body_max = PyLong_AsSsize_t(args[6]);
    int result = looking.body_max == -1 && PyErr_Occurred() ? -1 : 1;
    for (Py_ssize_t at = 0; result > 0 && at < PyList_GET_SIZE(args[0]); at++) {
        PyObject *frame = Py_NewRef(PyList_GET_ITEM(args[0], at)); /* whoever is asked may empty the list */
        PyObject *header = PyObject_GetAttr(frame, name_header);
        PyObject *body = header == NULL ? NULL : PyObject_GetAttr(frame, name_body);
        Py_DECREF(frame);
        result = header == NULL || body == NULL ? -1 : look_at_one(&looking, header, body, args[1], args[2]);
        Py_XDECREF(header);
        Py_XDECREF(body);
    }
    Py_XDECREF(looking.topic);
    PyMem_Free(looking.text);
    if (result < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------------------------------- into the log */

/* A message of a run, `Usual` of store.py, without references of its own. */
typedef struct {
    PyObject *key, *body, *properties, *id_at, *tag;
    int64_t queue_id, flag, sys_flag, born_ms, reconsume_times, prepared_offset;
} Usual;

static int usual_of(Usual *usual, PyObject *message)
{
    if (!PyTuple_Check(message) || PyTuple_GET_SIZE(message) != 9)
        goto wrong;
    usual->key = PyTuple_GET_ITEM(message, 0);
    usual->body = PyTuple_GET_ITEM(message, 1);
    usual->properties = PyTuple_GET_ITEM(message, 2);
    usual->id_at = PyTuple_GET_ITEM(message, 3);
    usual->tag = PyTuple_GET_ITEM(message, 4);
    if (!PyTuple_Check(usual->key) || PyTuple_GET_SIZE(usual->key) != 2 || !PyBytes_Check(usual->body) ||
        !PyBytes_Check(usual->properties))
        goto wrong;
    usual->queue_id = number_of(PyTuple_GET_ITEM(usual->key, 1));
    usual->flag = number_of(PyTuple_GET_ITEM(message, 5));
    usual->sys_flag = number_of(PyTuple_GET_ITEM(message, 6));
    usual->born_ms = number_of(PyTuple_GET_ITEM(message, 7));
    usual->reconsume_times = number_of(PyTuple_GET_ITEM(message, 8));
    usual->prepared_offset = 0;
    return PyErr_Occurred() ? -1 : 0;
wrong:
    PyErr_SetString(PyExc_TypeError, "no message of a run");
    return -1;
}

static int fits_i32(int64_t value)
{
    return value >= INT32_MIN && value <= INT32_MAX;
}

/* Where records go, and what they have in common. */
typedef struct {
    uint8_t *data;
    Py_ssize_t used, room;
    int64_t at, room_end, store_ms;
    PyObject *store_host;
} Log;

/* Writes the record behind the last one; its size, or 0 when there is no room for it or it is unusual. */
static Py_ssize_t write_record(Log *log, const Usual *usual, PyObject *born_host, PyObject *topic_part,
                               int64_t queue_offset)
{
    size_t born_size = (size_t)PyBytes_GET_SIZE(born_host), store_size = (size_t)PyBytes_GET_SIZE(log->store_host);
    size_t body_size = (size_t)PyBytes_GET_SIZE(usual->body), topic_size = (size_t)PyBytes_GET_SIZE(topic_part);
    size_t properties_size = (size_t)PyBytes_GET_SIZE(usual->properties);
    size_t size = 72 + born_size + store_size + body_size + topic_size + 2 + properties_size + CRC_PROPERTY_BYTES;
    if (properties_size + CRC_PROPERTY_BYTES > PROPERTIES_BYTES_MAX || size > INT32_MAX || topic_size > 128 ||
        (int64_t)size > log->room_end - log->at || size > (size_t)(log->room - log->used) ||
        !fits_i32(usual->queue_id) || !fits_i32(usual->flag) || !fits_i32(usual->sys_flag) ||
        !fits_i32(usual->reconsume_times))
        return 0;
    const uint8_t *body = (const uint8_t *)PyBytes_AS_STRING(usual->body);
    uint32_t host_bits = (born_size == 20 ? BORN_HOST_V6 : 0) | (store_size == 20 ? STORE_HOST_V6 : 0);
    uint8_t *record = log->data + log->used, *to = record + 48;
    put_u32(record, (uint32_t)size);
    put_u32(record + 4, MAGIC_V1);
    put_u32(record + 8, crc32_of(0, body, body_size) & 0x7FFFFFFF);
    put_u32(record + 12, (uint32_t)usual->queue_id);
    put_u32(record + 16, (uint32_t)usual->flag);
    put_u64(record + 20, (uint64_t)queue_offset);
    put_u64(record + 28, (uint64_t)log->at);
    put_u32(record + 36, ((uint32_t)usual->sys_flag & ~(uint32_t)HOST_BITS) | host_bits);
    put_u64(record + 40, (uint64_t)usual->born_ms);
    memcpy(to, PyBytes_AS_STRING(born_host), born_size);
    to += born_size;
    put_u64(to, (uint64_t)log->store_ms);
    memcpy(to + 8, PyBytes_AS_STRING(log->store_host), store_size);
    to += 8 + store_size;
    put_u32(to, (uint32_t)usual->reconsume_times);
    put_u64(to + 4, (uint64_t)usual->prepared_offset);
    put_u32(to + 12, (uint32_t)body_size);
    memcpy(to + 16, body, body_size);
    to += 16 + body_size;
    memcpy(to, PyBytes_AS_STRING(topic_part), topic_size);
    to += topic_size;
    put_u16(to, (uint16_t)(properties_size + CRC_PROPERTY_BYTES));
    memcpy(to + 2, PyBytes_AS_STRING(usual->properties), properties_size);
    to += 2 + properties_size;
    uint32_t sum = crc32_of(0, record, (size_t)(to - record)) & 0x7FFFFFFF;
    memcpy(to, "__CRC32#\x01", 9);
    for (int digit = 9; digit < 19; digit++, sum /= 10)
        to[digit] = (uint8_t)('0' + sum % 10); /* least significant first */
    to[19] = 2;
    return (Py_ssize_t)size;
}

/* What an index knows "topic#unique id" by, as key_hashes.py computes it; -1 when that is not for here. */
static int64_t hash_of(PyObject *topic, PyObject *properties, int64_t id_at)
{
    const uint8_t *text = (const uint8_t *)PyBytes_AS_STRING(topic);
    Py_ssize_t size = PyBytes_GET_SIZE(topic);
    uint32_t hash = 0;
    if (id_at <= 0 || id_at > PyBytes_GET_SIZE(properties) - UNIQUE_ID_BYTES)
        return -1;
    for (; size; text++, size--) {
        if (*text >= 0x80)
            return -1;
        hash = hash * 31 + *text;
    }
    hash = hash * 31 + '#';
    text = (const uint8_t *)PyBytes_AS_STRING(properties) + id_at;
    for (size = UNIQUE_ID_BYTES; size; text++, size--) {
        if (*text >= 0x80)
            return -1;
        hash = hash * 31 + *text;
    }
    return hash < 0x80000000u ? hash : hash > 0x80000000u ? (int64_t)(0u - hash) : 0;
}

/* The key goes into hashes and places where it is a usual unique id, else the message into `keyed`; and so do all
 * that follow it, because an index has its keys in the order of the log. */
static int note_keys(PyObject *hashes, PyObject *hash_places, PyObject *keyed, PyObject *queue, const Usual *usual,
                     PyObject *place)
{
    PyObject *topic = PyObject_GetAttr(queue, name_topic_bytes);
    int64_t id_at = topic == NULL ? -1 : number_of(usual->id_at);
    int result = -1;
    if (topic != NULL && !PyBytes_Check(topic)) {
        PyErr_SetString(PyExc_TypeError, "topic_bytes are bytes");
    } else if (topic != NULL && !(id_at == -1 && PyErr_Occurred())) {
        int64_t hash = PyList_GET_SIZE(keyed) ? -1 : hash_of(topic, usual->properties, id_at);
        if (hash >= 0)
            result = append_and_drop(hashes, PyLong_FromLongLong(hash)) < 0 ? -1 : PyList_Append(hash_places, place);
        else
            result = append_and_drop(keyed, PyTuple_Pack(4, topic, usual->properties, usual->id_at, place));
    }
    Py_XDECREF(topic);
    return result;
}

/* Three numbers more in `queue.staged`, and its next offset; neither when that fails, so that what is there can be
 * taken back. A queue with the first ones joins those that have some. */
static int stage_entry(PyObject *queue, PyObject *staged_queues, PyObject *place, PyObject *size, PyObject *tag,
                       PyObject *next_offset)
{
    PyObject *staged = PyObject_GetAttr(queue, name_staged);
    if (staged == NULL || !PyList_Check(staged)) {
        Py_XDECREF(staged);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "staged is a list");
        return -1;
    }
    Py_ssize_t before = PyList_GET_SIZE(staged);
    int result = before ? 0 : PyList_Append(staged_queues, queue);
    if (result == 0 &&
        (PyList_Append(staged, place) < 0 || PyList_Append(staged, size) < 0 || PyList_Append(staged, tag) < 0 ||
         PyObject_SetAttr(queue, name_next_offset, next_offset) < 0)) {
        PyList_SetSlice(staged, before, PY_SSIZE_T_MAX, NULL); /* to make a list shorter needs no memory */
        result = -1;
    }
    Py_DECREF(staged);
    return result;
}

/* What is known of the messages once they are in: five lists of append_run. */
typedef struct {
    PyObject *places, *staged_queues, *hashes, *hash_places, *keyed; /* `hashes` None: there is no index */
} Known;

static int note_message(Known *known, PyObject *queue, const Usual *usual, int64_t at, Py_ssize_t size,
                        PyObject *offset, int64_t queue_offset)
{
    PyObject *place = PyLong_FromLongLong(at), *length = PyLong_FromSsize_t(size);
    PyObject *next = PyLong_FromLongLong(queue_offset + 1);
    int result = -1;
    if (place != NULL && length != NULL && next != NULL)
        result = stage_entry(queue, known->staged_queues, place, length, usual->tag, next);
    if (result == 0 && known->hashes != Py_None)
        result = note_keys(known->hashes, known->hash_places, known->keyed, queue, usual, place);
    if (result == 0)
        result = append_and_drop(known->places, PyTuple_Pack(2, place, offset));
    Py_XDECREF(place);
    Py_XDECREF(length);
    Py_XDECREF(next);
    return result;
}

/* 1 when it is in, 0 when it is unusual, -1 and an error. */
static int append_one(Log *log, Known *known, PyObject *table, const Usual *usual, PyObject *born_host)
{
    PyObject *queue = PyDict_GetItemWithError(table, usual->key);
    if (queue == NULL)
        return PyErr_Occurred() ? -1 : 0;
    Py_INCREF(queue);
    PyObject *topic_part = PyObject_GetAttr(queue, name_topic_part);
    PyObject *offset = topic_part == NULL ? NULL : PyObject_GetAttr(queue, name_next_offset);
    int64_t queue_offset = offset == NULL ? -1 : number_of(offset);
    int result = PyErr_Occurred() ? -1 : 0;
    if (result == 0 && PyBytes_Check(topic_part) && PyBytes_GET_SIZE(topic_part) && queue_offset < INT64_MAX) {
        Py_ssize_t size = write_record(log, usual, born_host, topic_part, queue_offset);
        if (size) {
            result = note_message(known, queue, usual, log->at, size, offset, queue_offset) < 0 ? -1 : 1;
            log->at += size;
            log->used += size;
        }
    }
    Py_XDECREF(offset);
    Py_XDECREF(topic_part);
    Py_DECREF(queue);
    return result;
}

static int is_host(PyObject *host)
{
    return PyBytes_Check(host) && (PyBytes_GET_SIZE(host) == 8 || PyBytes_GET_SIZE(host) == 20);
}

/* As many bytes as the records of a run can have, but no more than `most`; -1 and an error, if it is none. */
static Py_ssize_t room_for(PyObject *run, int64_t most)
{
    Usual usual;
    int64_t room = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(run); i++) {
        if (usual_of(&usual, PyList_GET_ITEM(run, i)) < 0)
            return -1;
        int64_t size = PyBytes_GET_SIZE(usual.body) + PyBytes_GET_SIZE(usual.properties) + RECORD_OVERHEAD_MAX;
        room = size > most - room ? most : room + size; /* lists are long, and bytes may be in them many times */
    }
    return (Py_ssize_t)room;
}

/* What belongs to a message, out of lists with one for each; 1, or 0 when those end before its number; -1 and an
 * error. */
static int read_message(Usual *usual, PyObject **host, PyObject *message, PyObject *hosts, PyObject *prepared,
                        Py_ssize_t number)
{
    if (number >= PyList_GET_SIZE(hosts) || (prepared != Py_None && number >= PyList_GET_SIZE(prepared)))
        return 0;
    *host = PyList_GET_ITEM(hosts, number);
    if (!is_host(*host)) {
        PyErr_SetString(PyExc_TypeError, "a packed host has 8 or 20 bytes");
        return -1;
    }
    if (usual_of(usual, message) < 0)
        return -1;
    if (prepared != Py_None)
        usual->prepared_offset = number_of(PyList_GET_ITEM(prepared, number));
    return PyErr_Occurred() ? -1 : 1;
}

/* append_sends(run, born_hosts, prepared_offsets, store_host, table, at, room_end, store_ms, places, staged_queues,
 * hashes, hash_places, keyed) -> (data, end): the loop of Store.append_run. */
static PyObject *append_sends(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 13 || !PyList_Check(args[0]) || !PyList_Check(args[1]) ||
        !(args[2] == Py_None || PyList_Check(args[2])) || !is_host(args[3]) || !PyDict_Check(args[4]) ||
        !PyList_Check(args[8]) || !PyList_Check(args[9]) || !(args[10] == Py_None || PyList_Check(args[10])) ||
        !PyList_Check(args[11]) || !PyList_Check(args[12])) {
        PyErr_SetString(PyExc_TypeError, "append_sends(run, born_hosts, prepared_offsets, store_host, table, at, "
                                         "room_end, store_ms, places, staged_queues, hashes, hash_places, keyed)");
        return NULL;
    }
    PyObject *run = args[0];
    Known known = {args[8], args[9], args[10], args[11], args[12]};
    Log log = {.at = number_of(args[5]), .room_end = number_of(args[6]), .store_ms = number_of(args[7]),
               .store_host = args[3]};
    if (PyErr_Occurred())
        return NULL;
    if (log.at < 0 || log.room_end < 0) {
        PyErr_SetString(PyExc_ValueError, "no place in a log");
        return NULL;
    }
    log.room = room_for(run, Py_MAX(0, log.room_end - log.at));
    PyObject *data = log.room < 0 ? NULL : PyBytes_FromStringAndSize(NULL, log.room);
    if (data == NULL)
        return NULL;
    log.data = (uint8_t *)PyBytes_AS_STRING(data);
    int result = 1;
    for (Py_ssize_t i = 0; result > 0 && i < PyList_GET_SIZE(run); i++) {
        Usual usual;
        PyObject *host, *message = Py_NewRef(PyList_GET_ITEM(run, i)); /* whoever is told may empty the list */
        result = read_message(&usual, &host, message, args[1], args[2], i);
        if (result > 0) {
            Py_INCREF(host);
            result = append_one(&log, &known, args[4], &usual, host);
            Py_DECREF(host);
        }
        Py_DECREF(message);
    }
    if (result < 0) {
        Py_DECREF(data);
        return NULL;
    }
    if (_PyBytes_Resize(&data, log.used) < 0)
        return NULL;
    return Py_BuildValue("(NL)", data, (long long)log.at);
}

/* ------------------------------------------------------------------------------------------- answers */

#define ANSWER_PARTS 6
#define NUMBERS_BYTES_MAX (16 + 20 + 20 + 20)

static uint8_t *put_bytes(uint8_t *to, PyObject *bytes)
{
    memcpy(to, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
    return to + PyBytes_GET_SIZE(bytes);
}

static uint8_t *put_decimal(uint8_t *to, int64_t value)
{
    uint8_t digits[20];
    int count = 0;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do
        digits[count++] = (uint8_t)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0)
        *to++ = '-';
    while (count)
        *to++ = digits[--count];
    return to;
}

static uint8_t *put_hexadecimal(uint8_t *to, uint64_t value)
{
    for (int shift = 60; shift >= 0; shift -= 4)
        *to++ = (uint8_t)"0123456789ABCDEF"[value >> shift & 0xF];
    return to;
}

/* One frame: the parts of the template, and between them host and place, queue id, queue offset, unique id, opaque. */
static PyObject *answer_of(PyObject *const parts[ANSWER_PARTS], Py_ssize_t parts_size, PyObject *host,
                           PyObject *asked, PyObject *place)
{
    if (!PyTuple_Check(asked) || PyTuple_GET_SIZE(asked) != 3 || !PyBytes_Check(PyTuple_GET_ITEM(asked, 1)) ||
        !PyTuple_Check(place) || PyTuple_GET_SIZE(place) != 2) {
        PyErr_SetString(PyExc_TypeError, "not what was asked for, or no place");
        return NULL;
    }
    int64_t queue_id = number_of(PyTuple_GET_ITEM(asked, 0));
    int64_t opaque = number_of(PyTuple_GET_ITEM(asked, 2));
    int64_t physical = number_of(PyTuple_GET_ITEM(place, 0));
    int64_t queue_offset = number_of(PyTuple_GET_ITEM(place, 1));
    if (PyErr_Occurred())
        return NULL;
    PyObject *unique_id = PyTuple_GET_ITEM(asked, 1);
    Py_ssize_t size_max = 8 + parts_size + PyBytes_GET_SIZE(host) + PyBytes_GET_SIZE(unique_id) + NUMBERS_BYTES_MAX;
    PyObject *answer = PyBytes_FromStringAndSize(NULL, size_max);
    if (answer == NULL)
        return NULL;
    uint8_t *start = (uint8_t *)PyBytes_AS_STRING(answer);
    uint8_t *to = put_bytes(put_bytes(start + 8, parts[0]), host);
    to = put_bytes(put_hexadecimal(to, (uint64_t)physical), parts[1]);
    to = put_bytes(put_decimal(to, queue_id), parts[2]);
    to = put_bytes(put_decimal(to, queue_offset), parts[3]);
    to = put_bytes(put_bytes(to, unique_id), parts[4]);
    to = put_bytes(put_decimal(to, opaque), parts[5]);
    put_u32(start, (uint32_t)(to - start - 4));
    put_u32(start + 4, (uint32_t)(to - start - 8));
    _PyBytes_Resize(&answer, to - start);
    return answer;
}

/* accepting(parts, host, asked, places) -> frames: as SendRunHandler._accepting. */
static PyObject *accepting(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 4 || !PyTuple_Check(args[0]) || PyTuple_GET_SIZE(args[0]) != ANSWER_PARTS ||
        !PyBytes_Check(args[1]) || !PyList_Check(args[2]) || !PyList_Check(args[3])) {
        PyErr_SetString(PyExc_TypeError, "accepting(parts, host, asked, places)");
        return NULL;
    }
    PyObject *parts[ANSWER_PARTS];
    Py_ssize_t parts_size = 0;
    for (int i = 0; i < ANSWER_PARTS; i++) {
        parts[i] = PyTuple_GET_ITEM(args[0], i);
        if (!PyBytes_Check(parts[i])) {
            PyErr_SetString(PyExc_TypeError, "the parts are bytes");
            return NULL;
        }
        parts_size += PyBytes_GET_SIZE(parts[i]);
    }
    Py_ssize_t answers = Py_MIN(PyList_GET_SIZE(args[2]), PyList_GET_SIZE(args[3]));
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < answers; i++)
        if (append_and_drop(list, answer_of(parts, parts_size, args[1], PyList_GET_ITEM(args[2], i),
                                            PyList_GET_ITEM(args[3], i))) < 0)
            Py_CLEAR(list);
    return list;
}

PyMethodDef sends_methods[] = {
    {"look_at_sends", (PyCFunction)(void (*)(void))look_at_sends, METH_FASTCALL, "What sends ask for."},
    {"append_sends", (PyCFunction)(void (*)(void))append_sends, METH_FASTCALL, "Messages made records."},
    {"accepting", (PyCFunction)(void (*)(void))accepting, METH_FASTCALL, "What their senders are told."},
    {NULL, NULL, 0, NULL},
};
