/* What the interposed calls (shim.c) ask of the part that counts, logs and decides (points.c). */
#ifndef S3T_POINTS_H
#define S3T_POINTS_H

#include <stddef.h>
#include <sys/types.h>

enum type { CREATE, WRITE, SYNC, TRUNCATE, ALLOCATE, COPY, RENAME, UNLINK, RMDIR, MKDIR, LINK, SYMLINK, CHMOD, SEND, RECEIVE };

/* What the call has to do. After PASS it does its work and tells done(). */
enum verdict { IGNORE, PASS, TORN, SHORT, FULL, EIO_ONCE, LOST };

struct point {
    enum type type;
    unsigned number; /* from 1; set by meet() */
    char path[4096];
    char other[4096]; /* the new name of a rename, a link */
};

extern int s3t_armed, s3t_logging;

/* Whether the call concerns a watched path; then p->path is filled. */
int watched_fd(struct point *p, int fd);
int watched_at(struct point *p, int folder, const char *path);
int watched_two(struct point *p, int from_folder, const char *from, int to_folder, const char *to);
int watched_socket(struct point *p, int fd);

/* Count the point and decide. Kills the process if that is the fault. IGNORE is never returned. */
enum verdict meet(struct point *p);
/* The call succeeded: where it wrote and what, or the size that the file has now. Kills if that is the fault. */
void done(struct point *p, off_t offset, const void *data, size_t length);
/* The call was made, and failed by itself. */
void failed(struct point *p);
void die(void);
size_t part_of(size_t whole); /* a random number from 0 to whole - 1 */

/* The other mode: a line for everything that is opened for writing, made or renamed, anywhere. */
void log_change(const char *what, int folder, const char *path);
void resolve(char *into, size_t size, int folder, const char *path);

#endif
