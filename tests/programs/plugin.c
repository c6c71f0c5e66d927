/* A plugin that allocates, and frees what its host made. */
#include <stdlib.h>
#include <string.h>

char *plugin_make(size_t size);
void plugin_free(void *block);
char *plugin_copy(const char *text);

char *plugin_make(size_t size)
{
	char *block = malloc(size);
	if (block)
		memset(block, 'p', size);
	return block;
}

void plugin_free(void *block)
{
	free(block);
}

char *plugin_copy(const char *text)
{
	return strdup(text);
}
