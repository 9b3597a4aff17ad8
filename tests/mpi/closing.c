/* Preloaded: closing a file fails whose name has in it what CLOSING_FAILS says, as over NFS. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int close(int descriptor)
{
    char link[64], path[PATH_MAX];
    const char *fails = getenv("CLOSING_FAILS");
    int error = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = fails ? readlink(link, path, sizeof path - 1) : -1;
    path[length > 0 ? length : 0] = 0;
    errno = error;
    if (syscall(SYS_close, descriptor) != 0)
        return -1;
    if (fails == NULL || strstr(path, fails) == NULL)
        return 0;
    errno = EDQUOT;
    return -1;
}
