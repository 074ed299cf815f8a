/* What the parts of kourou.native share. Each part replaces one loop of Python, and never differs from it:
 * what is unusual is left to the plain version, which the tests hold these against. */

#ifndef KOUROU_NATIVE_H
#define KOUROU_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

extern PyMethodDef columns_methods[];
extern PyMethodDef frames_methods[];
extern PyMethodDef index_methods[];
extern PyMethodDef pulls_methods[];
extern PyMethodDef records_methods[];
extern PyMethodDef sends_methods[];

int columns_start(PyObject *module); /* each part makes what it keeps for good; 0, or -1 and an error */
int frames_start(PyObject *module);
int index_start(PyObject *module);
int pulls_start(PyObject *module);
int records_start(PyObject *module);
int sends_start(PyObject *module);

/* CRC-32 as zlib computes it; `sum` is that of what came before, or 0. */
uint32_t crc32_of(uint32_t sum, const uint8_t *data, size_t size);

/* Everything that is written is big-endian, whatever the machine is. */
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define BIG_ENDIAN_32(value) (value)
#define BIG_ENDIAN_64(value) (value)
#else
#define BIG_ENDIAN_32(value) __builtin_bswap32(value)
#define BIG_ENDIAN_64(value) __builtin_bswap64(value)
#endif

static inline void put_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static inline void put_u32(uint8_t *at, uint32_t value)
{
    value = BIG_ENDIAN_32(value);
    memcpy(at, &value, 4);
}

static inline void put_u64(uint8_t *at, uint64_t value)
{
    value = BIG_ENDIAN_64(value);
    memcpy(at, &value, 8);
}

static inline uint16_t get_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t get_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, 4);
    return BIG_ENDIAN_32(value);
}

static inline uint64_t get_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, 8);
    return BIG_ENDIAN_64(value);
}

/* An int as a number; else -1 and an error. Asks nobody: PyLong_AsLongLong would call __index__ of whatever it is,
 * and that may do anything to what is being walked through. */
static inline int64_t number_of(PyObject *object)
{
    if (PyLong_Check(object))
        return PyLong_AsLongLong(object);
    PyErr_Format(PyExc_TypeError, "an int is needed, not %.100s", Py_TYPE(object)->tp_name);
    return -1;
}

#endif
