/* Counts the calls that change watched files, keeps a log of them, and at one of them lets the fault happen. */
#define _GNU_SOURCE
#include "points.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum kind { COUNT, KILL, KILL_AFTER, TEAR, SHORTEN, FILL, REFUSE, UNSYNC, POWER, DISCONNECT };
static const char *KINDS[] = {"count", "kill", "kill-after", "torn", "short", "full", "eio", "fsync", "power", "connection"};
static const enum verdict VERDICTS[] = {PASS, PASS, PASS, TORN, SHORT, PASS, EIO_ONCE, EIO_ONCE, PASS, LOST};

int s3t_armed, s3t_logging;

static enum kind kind;
static unsigned target, end, met;
static int port, is_full, struck, point_log = -1, change_log = -1;
static uint64_t state;
static char watched[8][4096];
static int watching;

/* ---- what Python calls ---- */

static int open_log(const char *path) {
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    /* Far up: programs close or reuse the low numbers. */
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 600);
    syscall(SYS_close, fd);
    return high;
}

/* prefixes: absolute real paths, a line each. number: of the point at which the fault comes, or at the next one that
   can fail so (how often a socket is read, the network decides); 0 counts alone.
   last: the process is killed there, if it lives on so far; 0 never. log: where the points are noted. server: the
   port of a PostgreSQL server. Returns 0, or -1 if the kind is unknown or the log cannot be opened. */
int s3t_fault_arm(
    const char *prefixes, unsigned number, const char *named, uint64_t seed, unsigned last, const char *log, int server) {
    int found = -1;
    for (int i = 0; i < (int)(sizeof KINDS / sizeof *KINDS); i++)
        if (!strcmp(KINDS[i], named)) found = i;
    if (found < 0 || (point_log = open_log(log)) < 0) return -1;
    watching = 0;
    while (*prefixes && watching < 8) {
        size_t length = strcspn(prefixes, "\n");
        snprintf(watched[watching++], sizeof *watched, "%.*s", (int)length, prefixes);
        prefixes += length + (prefixes[length] == '\n');
    }
    kind = found, target = number, met = 0, end = last, is_full = struck = 0, port = server;
    state = seed * 0x9E3779B97F4A7C15u + 1;
    s3t_armed = 1;
    return 0;
}

void s3t_fault_disarm(void) { s3t_armed = 0; }

unsigned s3t_fault_count(void) { return met; }

int s3t_log_start(const char *path) {
    change_log = open_log(path);
    s3t_logging = change_log >= 0;
    return s3t_logging ? 0 : -1;
}

void s3t_log_stop(void) { s3t_logging = 0; }

/* So that a program that knows nothing of the shim, the command line say, can be watched from its start. */
__attribute__((constructor)) static void log_from_environment(void) {
    const char *path = getenv("S3T_CHANGE_LOG");
    if (path && *path) s3t_log_start(path);
}

/* ---- paths ---- */

static void path_of_fd(char *into, size_t size, int fd) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, into, size - 1);
    into[length < 0 ? 0 : length] = 0;
}

void resolve(char *into, size_t size, int folder, const char *path) {
    char base[4096] = "";
    if (path[0] != '/') {
        if (folder == AT_FDCWD) {
            if (syscall(SYS_getcwd, base, sizeof base) < 0) base[0] = 0;
        } else {
            path_of_fd(base, sizeof base, folder);
        }
    }
    char *end = into;
    const char *sources[] = {base, path};
    *into = 0;
    for (int i = 0; i < 2; i++) {
        for (const char *at = sources[i]; *at;) {
            size_t length = strcspn(at, "/");
            if (length == 2 && at[0] == '.' && at[1] == '.') {
                while (end > into && *--end != '/') {}
                *end = 0;
            } else if (length && !(length == 1 && *at == '.') && end + length + 2 < into + size) {
                end += sprintf(end, "/%.*s", (int)length, at);
            }
            at += length + (at[length] == '/');
        }
    }
}

static int under(const char *path) {
    for (int i = 0; i < watching; i++) {
        size_t length = strlen(watched[i]);
        if (!strncmp(path, watched[i], length) && (path[length] == '/' || !path[length])) return 1;
    }
    return 0;
}

int watched_fd(struct point *p, int fd) {
    p->other[0] = 0;
    path_of_fd(p->path, sizeof p->path, fd);
    return under(p->path);
}

int watched_at(struct point *p, int folder, const char *path) {
    p->other[0] = 0;
    resolve(p->path, sizeof p->path, folder, path);
    return under(p->path);
}

int watched_two(struct point *p, int from_folder, const char *from, int to_folder, const char *to) {
    resolve(p->path, sizeof p->path, from_folder, from);
    resolve(p->other, sizeof p->other, to_folder, to);
    return under(p->path) || under(p->other);
}

int watched_socket(struct point *p, int fd) {
    union { struct sockaddr any; struct sockaddr_in four; struct sockaddr_in6 six; struct sockaddr_un local; } peer;
    socklen_t length = sizeof peer;
    memset(&peer, 0, sizeof peer);
    if (!port || getpeername(fd, &peer.any, &length)) return 0;
    snprintf(p->path, sizeof p->path, "socket");
    p->other[0] = 0;
    if (peer.any.sa_family == AF_INET) return ntohs(peer.four.sin_port) == port;
    if (peer.any.sa_family == AF_INET6) return ntohs(peer.six.sin6_port) == port;
    return peer.any.sa_family == AF_UNIX && strstr(peer.local.sun_path, ".s.PGSQL.") != NULL;
}

/* ---- the log of points: a head, two names and perhaps data; read by shim.py ---- */

static void note(char mark, struct point *p, off_t offset, const void *data, size_t length) {
    struct __attribute__((packed)) {
        char mark;
        uint8_t type;
        uint32_t number;
        int64_t offset;
        uint32_t path, other, data;
    } head = {mark, p->type, p->number, offset, strlen(p->path), strlen(p->other), length};
    struct iovec parts[] = {
        {&head, sizeof head}, {p->path, head.path}, {p->other, head.other}, {(void *)data, length}};
    if (syscall(SYS_writev, point_log, parts, 4) < 0) abort();
}

/* ---- deciding ---- */

void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

size_t part_of(size_t whole) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return whole ? state % whole : 0;
}

static int needs_space(enum type type) {
    return type == CREATE || type == WRITE || type == ALLOCATE || type == COPY || type == MKDIR || type == LINK ||
           type == SYMLINK;
}

static int can_fail(enum type type) {
    if (kind == TEAR || kind == SHORTEN || kind == REFUSE) return type == WRITE;
    if (kind == UNSYNC) return type == SYNC;
    return kind != DISCONNECT || type == SEND || type == RECEIVE;
}

enum verdict meet(struct point *p) {
    p->number = __atomic_add_fetch(&met, 1, __ATOMIC_SEQ_CST);
    note('P', p, 0, NULL, 0);
    int here = target && p->number >= target && !struck && can_fail(p->type);
    if (here) struck = p->number;
    if ((here && (kind == KILL || kind == POWER)) || (end && p->number == end)) {
        note('K', p, 0, NULL, 0);
        die();
    }
    if (here && kind == FILL) is_full = 1;
    enum verdict verdict = is_full && needs_space(p->type) ? FULL : here ? VERDICTS[kind] : PASS;
    if (verdict != PASS || (here && kind == FILL)) note('F', p, 0, NULL, 0);
    return verdict;
}

void done(struct point *p, off_t offset, const void *data, size_t length) {
    int error = errno;
    note('D', p, offset, data, length);
    failed(p);
    errno = error;
}

void failed(struct point *p) {
    if (kind == KILL_AFTER && struck == (int)p->number) {
        note('K', p, 0, NULL, 0);
        die();
    }
}

void log_change(const char *what, int folder, const char *path) {
    int error = errno;
    char line[4200], full[4096];
    resolve(full, sizeof full, folder, path);
    int length = snprintf(line, sizeof line, "%s\t%s\n", what, full);
    if (syscall(SYS_write, change_log, line, length) < 0) abort();
    errno = error;
}
