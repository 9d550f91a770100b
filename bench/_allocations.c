/* Counts how often Python asks for memory, in every domain, while it is switched on. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

static const PyMemAllocatorDomain DOMAINS[] = {
    PYMEM_DOMAIN_RAW, PYMEM_DOMAIN_MEM, PYMEM_DOMAIN_OBJ};
static PyMemAllocatorEx before[3];
static unsigned long long asked;
static int counting;

static void *count_malloc(void *ctx, size_t size) {
    PyMemAllocatorEx *next = ctx;
    asked++;
    return next->malloc(next->ctx, size);
}

static void *count_calloc(void *ctx, size_t count, size_t size) {
    PyMemAllocatorEx *next = ctx;
    asked++;
    return next->calloc(next->ctx, count, size);
}

static void *count_realloc(void *ctx, void *memory, size_t size) {
    PyMemAllocatorEx *next = ctx;
    asked++;
    return next->realloc(next->ctx, memory, size);
}

static void pass_free(void *ctx, void *memory) {
    PyMemAllocatorEx *next = ctx;
    next->free(next->ctx, memory);
}

static PyObject *start(PyObject *self, PyObject *none) {
    if (!counting) {
        for (int i = 0; i < 3; i++) {
            PyMem_GetAllocator(DOMAINS[i], &before[i]);
            PyMemAllocatorEx counter = {
                &before[i], count_malloc, count_calloc, count_realloc, pass_free};
            PyMem_SetAllocator(DOMAINS[i], &counter);
        }
        counting = 1;
    }
    asked = 0;
    Py_RETURN_NONE;
}

static PyObject *stop(PyObject *self, PyObject *none) {
    unsigned long long total = asked;
    if (counting) {
        for (int i = 0; i < 3; i++) {
            PyMem_SetAllocator(DOMAINS[i], &before[i]);
        }
        counting = 0;
    }
    return PyLong_FromUnsignedLongLong(total);
}

static PyMethodDef METHODS[] = {
    {"start", start, METH_NOARGS, "Count from 0."},
    {"stop", stop, METH_NOARGS, "Stop counting; how often memory was asked for."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "allocations", NULL, -1, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_allocations(void) { return PyModule_Create(&MODULE); }
