/* Messages under their keys: the loop of store/index_file.py. */

#include "kourou.h"

#define ENTRY_BYTES 20

int index_start(PyObject *Py_UNUSED(module))
{
    return 0;
}

/* The slots of an index file: an array of 32 bits each for every page, None until it is needed. */
typedef struct {
    PyObject *pages, *load;
    int64_t count, page_bits;
} Slots;

/* Puts `number` into the slot of `hash`; what stood there is `older`. */
static int put_into_slot(const Slots *slots, int64_t hash, int64_t number, int32_t *older)
{
    int64_t slot = hash % slots->count, page_number = slot >> slots->page_bits;
    size_t within = (size_t)(slot & ((INT64_C(1) << slots->page_bits) - 1));
    if (page_number >= PyList_GET_SIZE(slots->pages)) {
        PyErr_SetString(PyExc_IndexError, "there is no such page");
        return -1;
    }
    PyObject *page = Py_NewRef(PyList_GET_ITEM(slots->pages, page_number));
    if (page == Py_None)
        Py_SETREF(page, PyObject_CallFunction(slots->load, "L", (long long)page_number));
    Py_buffer view;
    if (page == NULL || PyObject_GetBuffer(page, &view, PyBUF_WRITABLE) < 0) {
        Py_XDECREF(page);
        return -1;
    }
    int is_there = view.itemsize == 4 && (within + 1) * 4 <= (size_t)view.len;
    if (is_there) {
        uint8_t *place = (uint8_t *)view.buf + within * 4; /* a view of something else may lie anywhere */
        int32_t newest = (int32_t)number;
        memcpy(older, place, 4);
        memcpy(place, &newest, 4);
    } else {
        PyErr_SetString(PyExc_IndexError, "there is no such slot");
    }
    PyBuffer_Release(&view);
    Py_DECREF(page);
    return is_there ? 0 : -1;
}

static int add_entry(const Slots *slots, PyObject *hash_object, PyObject *place_object, int64_t number, int64_t seconds,
                     uint8_t *entry, PyObject *older_list)
{
    int32_t older = 0;
    int64_t hash = number_of(hash_object), place = number_of(place_object);
    if (PyErr_Occurred())
        return -1;
    if (hash < 0 || hash > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a hash has 31 bits");
        return -1;
    }
    if (put_into_slot(slots, hash, number, &older) < 0)
        return -1;
    put_u32(entry, (uint32_t)hash);
    put_u64(entry + 4, (uint64_t)place);
    put_u32(entry + 12, (uint32_t)seconds);
    put_u32(entry + 16, (uint32_t)older);
    PyObject *object = PyLong_FromLong(older);
    int result = object == NULL ? -1 : PyList_Append(older_list, object);
    Py_XDECREF(object);
    return result;
}

/* index_entries(hashes, places, first, seconds, slots, page_bits, pages, load) -> (entries, older): the entries from
 * number `first` on, packed, and what each slot led to before. */
static PyObject *index_entries(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 8 || !PyList_Check(args[0]) || !PyList_Check(args[1]) || !PyList_Check(args[6]) ||
        PyList_GET_SIZE(args[0]) != PyList_GET_SIZE(args[1])) {
        PyErr_SetString(PyExc_TypeError,
                        "index_entries(hashes, places, first, seconds, slots, page_bits, pages, load)");
        return NULL;
    }
    int64_t first = number_of(args[2]), seconds = number_of(args[3]);
    Slots slots = {args[6], args[7], number_of(args[4]), number_of(args[5])};
    Py_ssize_t entries = PyList_GET_SIZE(args[0]);
    if (PyErr_Occurred())
        return NULL;
    if (slots.count < 1 || slots.page_bits < 0 || slots.page_bits > 30 || first < 0 || first > INT32_MAX ||
        entries > INT32_MAX - first || seconds < INT32_MIN || seconds > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "no such index file");
        return NULL;
    }
    PyObject *data = PyBytes_FromStringAndSize(NULL, entries * ENTRY_BYTES), *older = PyList_New(0);
    int result = data == NULL || older == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; result == 0 && i < entries; i++) {
        if (i >= PyList_GET_SIZE(args[0]) || i >= PyList_GET_SIZE(args[1])) { /* `load` took some away */
            PyErr_SetString(PyExc_RuntimeError, "keys were taken away while they were put in");
            result = -1;
            break;
        }
        result = add_entry(&slots, PyList_GET_ITEM(args[0], i), PyList_GET_ITEM(args[1], i), first + i, seconds,
                           (uint8_t *)PyBytes_AS_STRING(data) + i * ENTRY_BYTES, older);
    }
    if (result < 0) {
        Py_XDECREF(data);
        Py_XDECREF(older);
        return NULL;
    }
    return Py_BuildValue("(NN)", data, older);
}

PyMethodDef index_methods[] = {
    {"index_entries", (PyCFunction)(void (*)(void))index_entries, METH_FASTCALL, "Messages put under their keys."},
    {NULL, NULL, 0, NULL},
};
