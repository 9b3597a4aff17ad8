/* Preloaded: notes a program's writes to HDF5 files, in their order, in the file NOTES. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void note(const char *call, int descriptor, long offset, long size)
{
    static FILE *notes;
    char link[64], name[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    if (readlink(link, name, sizeof name - 1) < 0 || strstr(name, ".h") == NULL)
        return;
    if (notes == NULL && (notes = fopen(getenv("NOTES"), "a")) == NULL)
        abort();
    fprintf(notes, "%s %ld %ld\n", call, offset, size);
    fflush(notes);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t size, off64_t offset)
{
    ssize_t (*call)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    note("write", descriptor, offset, (long)size);
    return call(descriptor, bytes, size, offset);
}

int ftruncate64(int descriptor, off64_t size)
{
    int (*call)(int, off64_t) = dlsym(RTLD_NEXT, "ftruncate64");
    note("cut", descriptor, size, 0);
    return call(descriptor, size);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t offset)
{
    return pwrite64(descriptor, bytes, size, offset);
}

int ftruncate(int descriptor, off_t size)
{
    return ftruncate64(descriptor, size);
}
