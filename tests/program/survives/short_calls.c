/* Loaded before the C library: most calls of read, readv, pread, write, writev and pwrite on regular files do only a part of
 * what is asked, or are interrupted (EINTR). SHORT_CALLS_SEED determines the lengths. At the end, the number of calls that
 * were cut short or interrupted is written to the file that SHORT_CALLS_COUNT names. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_ulong drawn, cut;

static uint64_t draw(void) {
    static atomic_ulong seed;
    if (!atomic_load(&seed)) {
        const char *text = getenv("SHORT_CALLS_SEED");
        atomic_store(&seed, 1 + (text ? strtoul(text, NULL, 10) : 0));
    }
    uint64_t z = atomic_load(&seed) * 0xd1342543de82ef95u + atomic_fetch_add(&drawn, 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Returns how many bytes of a call to do, or -1 if it is interrupted. */
static ssize_t part(int fd, size_t length) {
    struct stat status;
    if (length < 2 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return (ssize_t)length;
    uint64_t number = draw();
    if (number % 8 == 0) return (ssize_t)length;
    atomic_fetch_add(&cut, 1);
    if (number % 8 == 1) {
        errno = EINTR;
        return -1;
    }
    /* One byte, or a part of any length. */
    return number % 8 == 2 ? 1 : (ssize_t)(1 + (number >> 8) % length);
}

#define SHORT(name, number, buffer)                                            \
    ssize_t name(int fd, buffer, size_t length) {                              \
        ssize_t some = part(fd, length);                                       \
        return some < 0 ? -1 : syscall(number, fd, bytes, (size_t)some);       \
    }
#define SHORT_AT(name, number, buffer)                                         \
    ssize_t name(int fd, buffer, size_t length, off64_t offset) {              \
        ssize_t some = part(fd, length);                                       \
        return some < 0 ? -1 : syscall(number, fd, bytes, (size_t)some, offset); \
    }

SHORT(read, SYS_read, void *bytes)
SHORT(write, SYS_write, const void *bytes)
SHORT_AT(pread64, SYS_pread64, void *bytes)
SHORT_AT(pwrite64, SYS_pwrite64, const void *bytes)
SHORT_AT(pread, SYS_pread64, void *bytes)
SHORT_AT(pwrite, SYS_pwrite64, const void *bytes)

ssize_t readv(int fd, const struct iovec *vectors, int count) {
    return count > 0 ? read(fd, vectors[0].iov_base, vectors[0].iov_len) : 0;
}

ssize_t writev(int fd, const struct iovec *vectors, int count) {
    return count > 0 ? write(fd, vectors[0].iov_base, vectors[0].iov_len) : 0;
}

__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("SHORT_CALLS_COUNT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%lu\n", atomic_load(&cut));
    fclose(file);
}
