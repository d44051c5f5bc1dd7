/* Loaded before the C library: direct reads and writes (O_DIRECT) fail with the error number in DIRECT_ERROR. If that is EINTR,
 * every other call fails. Without DIRECT_ERROR, the calls do 512 bytes at a time. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_ulong calls;

/* Returns how many bytes of a request to do, or -1 if it fails. */
static ssize_t part(int fd, size_t length) {
    if (!(fcntl(fd, F_GETFL) & O_DIRECT)) return (ssize_t)length;
    const char *text = getenv("DIRECT_ERROR");
    int error = text ? atoi(text) : 0;
    if (error == 0) return 512;
    if (error == EINTR && atomic_fetch_add(&calls, 1) % 2 == 1) return (ssize_t)length;
    errno = error;
    return -1;
}

ssize_t pread64(int fd, void *bytes, size_t length, off64_t offset) {
    ssize_t some = part(fd, length);
    return some < 0 ? -1 : syscall(SYS_pread64, fd, bytes, (size_t)some, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    ssize_t some = part(fd, length);
    return some < 0 ? -1 : syscall(SYS_pwrite64, fd, bytes, (size_t)some, offset);
}
