/* Records taken apart column by column, for Spark: the loops of spark/decoding. */

#include "kourou.h"

int columns_start(PyObject *Py_UNUSED(module))
{
    return 0;
}

PyMethodDef columns_methods[] = {
    {NULL, NULL, 0, NULL},
};
