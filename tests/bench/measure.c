/* Runs one command and says what it cost:
 *
 *   measure OUTPUT COMMAND ARG...
 *   measure -g FIFO -r READY OUTPUT COMMAND ARG...    time starts when the file READY exists and FIFO was written
 *
 * The preloaded library is taken from BENCH_PRELOAD, so that this program itself runs without it. Writes to OUTPUT
 * `wall_ns user_us system_us peak_kib minor_faults status`; the costs are those of the command and of all its children that it
 * waited for, the peak that of the largest of them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "measure: %s: %s\n", what, strerror(errno));
    exit(125);
}

int main(int argc, char **argv)
{
    const char *gate = NULL, *ready = NULL;
    int at = 1;
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
        if (strcmp(argv[at], "-g") == 0)
            gate = argv[at + 1];
        else if (strcmp(argv[at], "-r") == 0)
            ready = argv[at + 1];
        else
            break;
    }
    if (argc - at < 2) {
        fprintf(stderr, "usage: measure [-g FIFO -r READY] OUTPUT COMMAND ARG...\n");
        return 125;
    }
    const char *output = argv[at];
    long long start = now();
    pid_t child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0) {
        const char *library = getenv("BENCH_PRELOAD");
        if (library != NULL && library[0] != 0)
            setenv("LD_PRELOAD", library, 1);
        unsetenv("BENCH_PRELOAD");
        if (gate != NULL)
            setenv("BENCH_GATE", gate, 1);
        execvp(argv[at + 1], argv + at + 1);
        fail(argv[at + 1]);
    }
    if (gate != NULL) {
        /* Ours to say when: the child's pid goes to the one who attaches, and its word that it did comes back. */
        char path[4096];
        snprintf(path, sizeof path, "%s.pid", ready);
        FILE *pid = fopen(path, "w");
        if (pid == NULL)
            fail(path);
        fprintf(pid, "%d\n", (int)child);
        fclose(pid);
        while (access(ready, F_OK) != 0) {
            if (waitpid(child, NULL, WNOHANG) != 0)
                fail("the command ended at the gate");
            usleep(1000);
        }
        int fd = open(gate, O_WRONLY);
        start = now();
        if (fd < 0 || write(fd, "g", 1) != 1)
            fail(gate);
        close(fd);
    }
    int status;
    struct rusage usage;
    if (wait4(child, &status, 0, &usage) != child)
        fail("wait4");
    long long wall = now() - start;
    FILE *file = fopen(output, "w");
    if (file == NULL)
        fail(output);
    fprintf(file, "%lld %lld %lld %ld %ld %d\n", wall, usage.ru_utime.tv_sec * 1000000LL + usage.ru_utime.tv_usec,
            usage.ru_stime.tv_sec * 1000000LL + usage.ru_stime.tv_usec, usage.ru_maxrss, usage.ru_minflt,
            WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    fclose(file);
    return 0;
}
