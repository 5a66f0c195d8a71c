/* Every call of libc that changes files, and those by which libpq talks to its server.
   Unarmed, each is one look at a variable and the real call. What a call means is decided in points.c.
   Not seen: writing through mmap (SQLite's -shm, which nobody needs after a crash) and stdio's own writes; a file that
   is opened for those under a watched path ends the process, so that no point is missed in silence. */
#define _GNU_SOURCE
#include "points.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name, ...) \
    ({ \
        static void *real; \
        if (!real) real = next(#name); \
        ((__typeof__(&name))real)(__VA_ARGS__); \
    })

static void *next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

/* A verdict other than PASS, for calls that are done or not done but never in part. 0: go on. */
static int refused(enum verdict verdict) {
    if (verdict == FULL) errno = ENOSPC;
    else if (verdict == EIO_ONCE) errno = EIO;
    else return 0;
    return 1;
}

/* ---- opening ---- */

static int guarded_open(int folder, const char *path, int flags, mode_t mode) {
    struct point p;
    p.type = CREATE;
    int counts = 0;
    if (s3t_armed && (flags & (O_CREAT | O_TRUNC)) && watched_at(&p, folder, path)) {
        struct stat found;
        int there = !fstatat(folder, path, &found, 0);
        if (there) p.type = TRUNCATE;
        counts = there ? (flags & O_TRUNC) && found.st_size : flags & O_CREAT;
        if (counts && refused(meet(&p))) return -1;
    }
    int fd = syscall(SYS_openat, folder, path, flags, mode);
    if (counts && fd < 0) failed(&p);
    if (fd < 0) return fd;
    if (counts) done(&p, 0, NULL, 0);
    if (s3t_logging && (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))) log_change("open", folder, path);
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) { MODE(flags) return guarded_open(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE(flags) return guarded_open(folder, path, flags, mode); }
int __open_2(const char *path, int flags) { return guarded_open(AT_FDCWD, path, flags, 0); }
int __openat_2(int folder, const char *path, int flags) { return guarded_open(folder, path, flags, 0); }
int creat(const char *path, mode_t mode) { return guarded_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* libc opens these itself, past us. */
static void unseen(const char *path) {
    struct point p;
    if (s3t_armed && watched_at(&p, AT_FDCWD, path)) {
        fprintf(stderr, "%s is made by a call of libc that the shim cannot see into\n", p.path);
        abort();
    }
    if (s3t_logging) log_change("open", AT_FDCWD, path);
}

static int writes(const char *mode) { return strpbrk(mode, "wa+") != NULL; }

FILE *fopen(const char *path, const char *mode) {
    if (writes(mode)) unseen(path);
    return REAL(fopen, path, mode);
}

#define TEMPORARY(call) \
    __typeof__(call) made = call; \
    unseen(name); \
    return made;

int mkstemp(char *name) { TEMPORARY(REAL(mkstemp, name)) }
int mkostemp(char *name, int flags) { TEMPORARY(REAL(mkostemp, name, flags)) }
char *mkdtemp(char *name) { TEMPORARY(REAL(mkdtemp, name)) }

/* ---- writing ---- */

/* offset -1: where the file stands. */
static ssize_t raw_write(int fd, const void *data, size_t size, off_t offset) {
    return offset < 0 ? syscall(SYS_write, fd, data, size) : syscall(SYS_pwrite64, fd, data, size, offset);
}

static ssize_t guarded_write(struct point *p, int fd, const void *data, size_t size, off_t offset) {
    p->type = WRITE;
    enum verdict verdict = meet(p);
    if (refused(verdict)) return -1;
    if (verdict == TORN) {
        raw_write(fd, data, part_of(size), offset);
        die();
    }
    if (verdict == SHORT && size > 1) size = 1 + part_of(size - 1);
    ssize_t written = raw_write(fd, data, size, offset);
    if (written < 0) {
        failed(p);
        return -1;
    }
    off_t start = offset >= 0 ? offset : lseek(fd, 0, SEEK_CUR) - written;
    done(p, start, data, written);
    return written;
}

/* Several buffers as one, so that all ways of writing fail alike. */
static ssize_t guarded_vector(struct point *p, int fd, const struct iovec *parts, int count, off_t offset) {
    size_t size = 0;
    for (int i = 0; i < count; i++) size += parts[i].iov_len;
    char *data = malloc(size + 1), *end = data;
    if (!data) abort();
    for (int i = 0; i < count; i++) end = (char *)memcpy(end, parts[i].iov_base, parts[i].iov_len) + parts[i].iov_len;
    ssize_t written = guarded_write(p, fd, data, size, offset);
    free(data);
    return written;
}

#define WATCHED_FD(fd) struct point p; if (s3t_armed && watched_fd(&p, fd))

ssize_t write(int fd, const void *data, size_t size) {
    WATCHED_FD(fd) return guarded_write(&p, fd, data, size, -1);
    return REAL(write, fd, data, size); /* not the bare call: the real one can be cancelled */
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    WATCHED_FD(fd) return guarded_write(&p, fd, data, size, offset);
    return REAL(pwrite, fd, data, size, offset);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    WATCHED_FD(fd) return guarded_vector(&p, fd, parts, count, -1);
    return REAL(writev, fd, parts, count);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    WATCHED_FD(fd) return guarded_vector(&p, fd, parts, count, offset);
    return REAL(pwritev, fd, parts, count, offset);
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    WATCHED_FD(fd) return guarded_vector(&p, fd, parts, count, offset);
    return REAL(pwritev2, fd, parts, count, offset, flags);
}

/* What the kernel copied is read back, for the log. Copies start where the file stands, or at *at. */
static void note_copy(struct point *p, int fd, off_t start, ssize_t size) {
    char *data = malloc(size + 1), name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int again = syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC);
    if (!data || again < 0 || pread(again, data, size, start) != size) abort();
    syscall(SYS_close, again);
    done(p, start, data, size);
    free(data);
}

ssize_t sendfile(int to, int from, off_t *at, size_t size) {
    struct point p;
    p.type = COPY;
    if (!(s3t_armed && watched_fd(&p, to))) return REAL(sendfile, to, from, at, size);
    if (refused(meet(&p))) return -1;
    ssize_t copied = REAL(sendfile, to, from, at, size);
    if (copied < 0) failed(&p);
    else note_copy(&p, to, lseek(to, 0, SEEK_CUR) - copied, copied);
    return copied;
}
ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t size, unsigned flags) {
    struct point p;
    p.type = COPY;
    if (!(s3t_armed && watched_fd(&p, to))) return REAL(copy_file_range, from, from_at, to, to_at, size, flags);
    if (refused(meet(&p))) return -1;
    ssize_t copied = REAL(copy_file_range, from, from_at, to, to_at, size, flags);
    if (copied < 0) failed(&p);
    else note_copy(&p, to, (to_at ? *to_at : lseek(to, 0, SEEK_CUR)) - copied, copied);
    return copied;
}

/* ---- synchronising and sizes: offset of the log is the size that the file has then ---- */

static off_t size_now(int fd) {
    struct stat found;
    return fstat(fd, &found) ? 0 : found.st_size;
}

#define ON_FD(kind, fd, call, size, failure) \
    struct point p; \
    p.type = kind; \
    if (!(s3t_armed && watched_fd(&p, fd))) return call; \
    if (refused(meet(&p))) return failure; \
    int result = call; \
    if (result) failed(&p); \
    else done(&p, size, NULL, 0); \
    return result;

int fsync(int fd) { ON_FD(SYNC, fd, REAL(fsync, fd), 0, -1) }
int fdatasync(int fd) { ON_FD(SYNC, fd, REAL(fdatasync, fd), 0, -1) }
/* It makes nothing durable that is told to anybody, but it is a point. */
int sync_file_range(int fd, off64_t at, off64_t size, unsigned flags) {
    ON_FD(CHMOD, fd, REAL(sync_file_range, fd, at, size, flags), 0, -1)
}
int ftruncate(int fd, off_t size) {
    enum type type = s3t_armed && size > size_now(fd) ? ALLOCATE : TRUNCATE;
    ON_FD(type, fd, REAL(ftruncate, fd, size), size, -1)
}
int fallocate(int fd, int mode, off_t at, off_t size) {
    ON_FD(ALLOCATE, fd, REAL(fallocate, fd, mode, at, size), size_now(fd), -1)
}
int posix_fallocate(int fd, off_t at, off_t size) {
    ON_FD(ALLOCATE, fd, REAL(posix_fallocate, fd, at, size), size_now(fd), errno)
}
int fchmod(int fd, mode_t mode) { ON_FD(CHMOD, fd, REAL(fchmod, fd, mode), 0, -1) }

/* ---- names ---- */

#define ON_PATH(kind, folder, path, call, size, word) \
    struct point p; \
    p.type = kind; \
    int counts = s3t_armed && watched_at(&p, folder, path); \
    if (counts && refused(meet(&p))) return -1; \
    int result = call; \
    if (counts && result) failed(&p); \
    else if (counts) done(&p, size, NULL, 0); \
    if (!result && s3t_logging && *word) log_change(word, folder, path); \
    return result;

int truncate(const char *path, off_t size) {
    ON_PATH(TRUNCATE, AT_FDCWD, path, REAL(truncate, path, size), size, "open")
}
int unlink(const char *path) { ON_PATH(UNLINK, AT_FDCWD, path, REAL(unlink, path), 0, "") }
int unlinkat(int folder, const char *path, int flags) {
    enum type type = flags & AT_REMOVEDIR ? RMDIR : UNLINK;
    ON_PATH(type, folder, path, REAL(unlinkat, folder, path, flags), 0, "")
}
int remove(const char *path) {
    struct stat found;
    return !lstat(path, &found) && S_ISDIR(found.st_mode) ? rmdir(path) : unlink(path);
}
int rmdir(const char *path) { ON_PATH(RMDIR, AT_FDCWD, path, REAL(rmdir, path), 0, "") }
int mkdir(const char *path, mode_t mode) { ON_PATH(MKDIR, AT_FDCWD, path, REAL(mkdir, path, mode), 0, "mkdir") }
int mkdirat(int folder, const char *path, mode_t mode) {
    ON_PATH(MKDIR, folder, path, REAL(mkdirat, folder, path, mode), 0, "mkdir")
}
int chmod(const char *path, mode_t mode) { ON_PATH(CHMOD, AT_FDCWD, path, REAL(chmod, path, mode), 0, "") }
int fchmodat(int folder, const char *path, mode_t mode, int flags) {
    ON_PATH(CHMOD, folder, path, REAL(fchmodat, folder, path, mode, flags), 0, "")
}

#define ON_TWO(kind, from_folder, from, to_folder, to, call, word) \
    struct point p; \
    p.type = kind; \
    int counts = s3t_armed && watched_two(&p, from_folder, from, to_folder, to); \
    if (counts && refused(meet(&p))) return -1; \
    int result = call; \
    if (counts && result) failed(&p); \
    else if (counts) done(&p, 0, NULL, 0); \
    if (!result && s3t_logging) log_change(word, to_folder, to); \
    return result;

int rename(const char *from, const char *to) {
    ON_TWO(RENAME, AT_FDCWD, from, AT_FDCWD, to, REAL(rename, from, to), "rename")
}
int renameat(int a, const char *from, int b, const char *to) {
    ON_TWO(RENAME, a, from, b, to, REAL(renameat, a, from, b, to), "rename")
}
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    ON_TWO(RENAME, a, from, b, to, REAL(renameat2, a, from, b, to, flags), "rename")
}
int link(const char *from, const char *to) { ON_TWO(LINK, AT_FDCWD, from, AT_FDCWD, to, REAL(link, from, to), "link") }
int linkat(int a, const char *from, int b, const char *to, int flags) {
    ON_TWO(LINK, a, from, b, to, REAL(linkat, a, from, b, to, flags), "link")
}
int symlink(const char *from, const char *to) {
    ON_PATH(SYMLINK, AT_FDCWD, to, REAL(symlink, from, to), 0, "symlink")
}
int symlinkat(const char *from, int folder, const char *to) {
    ON_PATH(SYMLINK, folder, to, REAL(symlinkat, from, folder, to), 0, "symlink")
}

/* ---- the connection to a database server ---- */

#define ON_SOCKET(kind, fd, call) \
    struct point p; \
    p.type = kind; \
    if (!(s3t_armed && watched_socket(&p, fd))) return call; \
    if (meet(&p) == LOST) { \
        shutdown(fd, SHUT_RDWR); \
        errno = ECONNRESET; \
        return -1; \
    } \
    ssize_t result = call; \
    if (result < 0) failed(&p); \
    else done(&p, 0, NULL, 0); \
    return result;

ssize_t send(int fd, const void *data, size_t size, int flags) { ON_SOCKET(SEND, fd, REAL(send, fd, data, size, flags)) }
ssize_t recv(int fd, void *data, size_t size, int flags) { ON_SOCKET(RECEIVE, fd, REAL(recv, fd, data, size, flags)) }
ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length) {
    ON_SOCKET(SEND, fd, REAL(sendto, fd, data, size, flags, to, length))
}
ssize_t recvfrom(int fd, void *data, size_t size, int flags, struct sockaddr *from, socklen_t *length) {
    ON_SOCKET(RECEIVE, fd, REAL(recvfrom, fd, data, size, flags, from, length))
}

/* ---- the names of the same calls where sizes have 64 bits, as they have here anyway ---- */

#define SAME_AS(name, as) __typeof__(as) name __attribute__((alias(#as)));
#define WITH_64(name) SAME_AS(name##64, name)

WITH_64(open) WITH_64(openat) WITH_64(creat) WITH_64(fopen) WITH_64(mkstemp) WITH_64(mkostemp)
WITH_64(pwrite) WITH_64(pwritev) WITH_64(sendfile)
WITH_64(truncate) WITH_64(ftruncate) WITH_64(fallocate) WITH_64(posix_fallocate)
SAME_AS(__open64_2, __open_2)
SAME_AS(__openat64_2, __openat_2)
SAME_AS(pwritev64v2, pwritev2)
