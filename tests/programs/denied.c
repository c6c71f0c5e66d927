/* Runs a program to which the kernel refuses system calls: denied NUMBER[,NUMBER...] PROGRAM [ARGUMENT...] */
#include "fact.h"
#include "seccomp.h"

int main(int count, char **arguments)
{
	int numbers[16], length = 0;
	MUST(count >= 3);
	for (char *word = strtok(arguments[1], ","); word; word = strtok(NULL, ",")) {
		MUST(length < 16);
		numbers[length++] = atoi(word);
	}
	refuse(numbers, length, SECCOMP_RET_ERRNO | EPERM);
	execv(arguments[2], arguments + 2);
	dprintf(2, "cannot run %s (errno %d)\n", arguments[2], errno);
	return 97;
}
