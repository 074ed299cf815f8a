/* kourou.native._native: the innermost loops of the broker, in C. */

#include "kourou.h"

#ifndef KOUROU_SOURCES
#define KOUROU_SOURCES "" /* hatch_build.py puts here what these sources are known by */
#endif

static PyObject *crc32_method(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Py_buffer data;
    unsigned long sum = 0;
    if (count < 1 || count > 2) {
        PyErr_SetString(PyExc_TypeError, "crc32(data, sum=0)");
        return NULL;
    }
    if (count == 2) {
        sum = PyLong_AsUnsignedLongMask(args[1]);
        if (PyErr_Occurred())
            return NULL;
    }
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t result = crc32_of((uint32_t)sum, data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(result);
}

static PyMethodDef module_methods[] = {
    {"crc32", (PyCFunction)(void (*)(void))crc32_method, METH_FASTCALL, "CRC-32 as zlib computes it."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef *const parts[] = {
    module_methods, columns_methods, frames_methods, index_methods, pulls_methods, records_methods, sends_methods,
};
static int (*const starts[])(PyObject *) = {
    columns_start, frames_start, index_start, pulls_start, records_start, sends_start,
};

static int start_all(PyObject *module)
{
    for (size_t i = 0; i < Py_ARRAY_LENGTH(parts); i++)
        if (PyModule_AddFunctions(module, parts[i]) < 0)
            return -1;
    for (size_t i = 0; i < Py_ARRAY_LENGTH(starts); i++)
        if (starts[i](module) < 0)
            return -1;
    return PyModule_AddStringConstant(module, "SOURCES", KOUROU_SOURCES);
}

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "kourou.native._native",
    .m_doc = "The innermost loops of the broker, in C; see kourou.native.",
    .m_size = -1, /* one interpreter: what the parts keep is theirs alone */
};

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && start_all(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
