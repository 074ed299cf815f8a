/* Frames out of received bytes: the loops of protocol/frame.py and remoting/connection.py. */

#include "kourou.h"

#define PREFIX_BYTES 8
#define FRAME_BYTES_MAX (16 * 1024 * 1024)
#define HEADER_BYTES_MIN 10
#define HEADER_BYTES_MAX (256 * 1024)

static PyObject *name_header, *name_body;

int frames_start(PyObject *Py_UNUSED(module))
{
    name_header = PyUnicode_InternFromString("header");
    name_body = PyUnicode_InternFromString("body");
    return name_header != NULL && name_body != NULL ? 0 : -1;
}

static PyObject *made(PyObject *type, int serialization, const uint8_t *header, Py_ssize_t header_size,
                      const uint8_t *body, Py_ssize_t body_size)
{
    PyObject *parts[3] = {
        PyLong_FromLong(serialization),
        PyBytes_FromStringAndSize((const char *)header, header_size),
        PyBytes_FromStringAndSize((const char *)body, body_size),
    };
    PyObject *frame = NULL;
    if (parts[0] != NULL && parts[1] != NULL && parts[2] != NULL)
        frame = PyObject_Vectorcall(type, parts, 3, NULL);
    for (int i = 0; i < 3; i++)
        Py_XDECREF(parts[i]);
    return frame;
}

/* split(data, Frame) -> (frames, start, wanted): the whole frames in `data`, where the rest begins, and how many
 * bytes the frame that begins there needs; 0 when its lengths are impossible. */
static PyObject *split(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "split(data: bytes, Frame)");
        return NULL;
    }
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(args[0]);
    Py_ssize_t start = 0, end = PyBytes_GET_SIZE(args[0]), wanted = PREFIX_BYTES;
    PyObject *frames = PyList_New(0);
    while (frames != NULL && end - start >= wanted) {
        int64_t length = get_u32(data + start);
        uint32_t second = get_u32(data + start + 4);
        int64_t header_size = second & 0xFFFFFF;
        if (header_size + 4 > length || length > FRAME_BYTES_MAX - 4 || header_size < HEADER_BYTES_MIN ||
            header_size > HEADER_BYTES_MAX) {
            wanted = 0;
            break;
        }
        if (start + 4 + length > end) {
            wanted = 4 + length;
            break;
        }
        const uint8_t *header = data + start + PREFIX_BYTES;
        PyObject *frame =
            made(args[1], (int)(second >> 24), header, header_size, header + header_size, length - 4 - header_size);
        if (frame == NULL || PyList_Append(frames, frame) < 0)
            Py_CLEAR(frames);
        Py_XDECREF(frame);
        start += 4 + length;
    }
    return frames == NULL ? NULL : Py_BuildValue("(Nnn)", frames, start, wanted);
}

/* run_end(frames, at, key) -> the first place after `at` where a frame's header begins otherwise. */
static PyObject *run_end(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyList_Check(args[0]) || !PyBytes_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "run_end(frames: list, at, key: bytes)");
        return NULL;
    }
    Py_ssize_t at = PyLong_AsSsize_t(args[1]), key_size = PyBytes_GET_SIZE(args[2]);
    if (at == -1 && PyErr_Occurred())
        return NULL;
    if (at < 0 || at == PY_SSIZE_T_MAX) {
        PyErr_SetString(PyExc_IndexError, "there is no frame at that place");
        return NULL;
    }
    for (at++; at < PyList_GET_SIZE(args[0]); at++) {
        PyObject *frame = Py_NewRef(PyList_GET_ITEM(args[0], at)); /* whoever is asked may empty the list */
        PyObject *header = PyObject_GetAttr(frame, name_header);
        Py_DECREF(frame);
        if (header == NULL)
            return NULL;
        int is_alike = PyBytes_Check(header) && PyBytes_GET_SIZE(header) >= key_size &&
                       memcmp(PyBytes_AS_STRING(header), PyBytes_AS_STRING(args[2]), (size_t)key_size) == 0;
        Py_DECREF(header);
        if (!is_alike)
            break;
    }
    return PyLong_FromSsize_t(at);
}

static Py_ssize_t size_of(PyObject *frame, PyObject *name)
{
    PyObject *part = PyObject_GetAttr(frame, name);
    Py_ssize_t size = part == NULL ? -1 : PyObject_Size(part);
    Py_XDECREF(part);
    return size;
}

/* total(frames) -> the bytes of all headers and bodies together. */
static PyObject *total(PyObject *Py_UNUSED(module), PyObject *frames)
{
    if (!PyList_Check(frames)) {
        PyErr_SetString(PyExc_TypeError, "total(frames: list)");
        return NULL;
    }
    Py_ssize_t sum = 0;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(frames); at++) {
        PyObject *frame = Py_NewRef(PyList_GET_ITEM(frames, at)); /* whoever is asked may empty the list */
        Py_ssize_t header_size = size_of(frame, name_header);
        Py_ssize_t body_size = header_size < 0 ? -1 : size_of(frame, name_body);
        Py_DECREF(frame);
        if (body_size < 0)
            return NULL;
        if (header_size > PY_SSIZE_T_MAX - sum || body_size > PY_SSIZE_T_MAX - sum - header_size) {
            PyErr_SetString(PyExc_OverflowError, "frames of more bytes than there are");
            return NULL;
        }
        sum += header_size + body_size;
    }
    return PyLong_FromSsize_t(sum);
}

PyMethodDef frames_methods[] = {
    {"split", (PyCFunction)(void (*)(void))split, METH_FASTCALL, "Whole frames out of received bytes."},
    {"run_end", (PyCFunction)(void (*)(void))run_end, METH_FASTCALL, "Where a run of frames that begin alike ends."},
    {"total", (PyCFunction)(void (*)(void))total, METH_O, "The bytes of frames, prefixes not counted."},
    {NULL, NULL, 0, NULL},
};
