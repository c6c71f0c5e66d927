/* Holds blocks of 100,000 bytes, and may take away from itself what a sandbox does.

   input     does                                                                     prints
   N         holds N blocks more                                                      done
   sandbox   has the kernel refuse to open files, read links and make sockets         done
   strict    has the kernel end it when it opens a file                               done
   private   takes its memory from others with its rights (PR_SET_DUMPABLE)           done
   root DIR  has DIR as its root, as a daemon does                                    done */
#include "fact.h"
#include "seccomp.h"

int main(void)
{
	static const int CALLS[] = {SYS_open, SYS_openat, SYS_openat2, SYS_readlink, SYS_readlinkat, SYS_socket, SYS_execve};
	char heard[300];
	line("ready");
	while (hear(heard, sizeof heard)) {
		if (!strcmp(heard, "sandbox")) {
			refuse(CALLS, sizeof CALLS / sizeof *CALLS, SECCOMP_RET_ERRNO | EPERM);
		} else if (!strcmp(heard, "strict")) {
			refuse(CALLS, sizeof CALLS / sizeof *CALLS, SECCOMP_RET_KILL_PROCESS);
		} else if (!strcmp(heard, "private")) {
			MUST(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
		} else if (!strncmp(heard, "root ", 5)) {
			MUST(chroot(heard + 5) == 0 && chdir("/") == 0);
		} else {
			for (int i = atoi(heard); i > 0; i--)
				MUST(malloc(100000));
		}
		line("done");
	}
	return 0;
}
