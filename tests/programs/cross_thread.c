/* Blocks made by some threads and freed by others, with content checks at the far end.

   queue N    producers and consumers: every free is remote
   stress     eight threads swap blocks through a shared table; objects outlive the threads that made them */
#include "fact.h"
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

#define CAPACITY 1024
#define TABLE 4096

struct item {
	size_t bytes;
	unsigned seed;
	unsigned char data[];
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct item *items[CAPACITY];
	size_t head, tail;
	int producers;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int per_producer;
static atomic_ulong wrong, consumed;

static unsigned long next(unsigned long *state)
{
	*state = *state * 6364136223846793005UL + 1442695040888963407UL;
	return *state >> 16;
}

static struct item *make(unsigned long *state)
{
	size_t bytes = 1 + (next(state) & ((1u << (3 + next(state) % 14)) - 1));
	struct item *item;
	if (next(state) % 16 == 0)
		MUST(posix_memalign((void **)&item, 64, sizeof *item + bytes) == 0);
	else
		item = malloc(sizeof *item + bytes);
	MUST(item);
	item->bytes = bytes;
	item->seed = (unsigned)next(state);
	fill(item->data, bytes, item->seed);
	return item;
}

static void check_and_free(struct item *item)
{
	if (damaged(item->data, item->bytes, item->seed))
		atomic_fetch_add(&wrong, 1);
	free(item);
}

static void *producer(void *argument)
{
	unsigned long state = (uintptr_t)argument;
	for (int i = 0; i < per_producer; i++) {
		struct item *item = make(&state);
		pthread_mutex_lock(&queue.lock);
		while (queue.head - queue.tail == CAPACITY)
			pthread_cond_wait(&queue.changed, &queue.lock);
		queue.items[queue.head++ % CAPACITY] = item;
		pthread_cond_broadcast(&queue.changed);
		pthread_mutex_unlock(&queue.lock);
	}
	pthread_mutex_lock(&queue.lock);
	queue.producers--;
	pthread_cond_broadcast(&queue.changed);
	pthread_mutex_unlock(&queue.lock);
	return NULL;
}

static void *consumer(void *argument)
{
	(void)argument;
	for (;;) {
		struct item *batch[CAPACITY];
		size_t count = 0;
		pthread_mutex_lock(&queue.lock);
		while (queue.head == queue.tail && queue.producers)
			pthread_cond_wait(&queue.changed, &queue.lock);
		while (queue.head != queue.tail && count < 64)
			batch[count++] = queue.items[queue.tail++ % CAPACITY];
		pthread_cond_broadcast(&queue.changed);
		pthread_mutex_unlock(&queue.lock);
		if (count == 0)
			return NULL;
		for (size_t i = 0; i < count; i++)
			check_and_free(batch[i]);
		atomic_fetch_add(&consumed, count);
	}
}

static _Atomic(struct item *) table[TABLE];

static void *swapper(void *argument)
{
	unsigned long state = (uintptr_t)argument;
	for (int i = 0; i < 6000; i++) {
		struct item *mine = make(&state);
		struct item *other = atomic_exchange(&table[next(&state) % TABLE], mine);
		if (other && next(&state) % 4 == 0) {
			size_t bytes = other->bytes, more = bytes + 1 + next(&state) % 5000;
			struct item *grown = realloc(other, sizeof *other + more);
			MUST(grown);
			if (damaged(grown->data, bytes, grown->seed))
				atomic_fetch_add(&wrong, 1);
			other = grown;
		}
		if (other)
			check_and_free(other);
	}
	return NULL;
}

int main(int count, char **arguments)
{
	MUST(count >= 2);
	pthread_t threads[16];
	if (!strcmp(arguments[1], "queue")) {
		per_producer = count > 2 ? atoi(arguments[2]) : 100000;
		queue.producers = 4;
		for (uintptr_t i = 0; i < 4; i++) {
			MUST(pthread_create(&threads[i], NULL, producer, (void *)(i + 1)) == 0);
			MUST(pthread_create(&threads[i + 4], NULL, consumer, NULL) == 0);
		}
		for (int i = 0; i < 8; i++)
			pthread_join(threads[i], NULL);
		line("consumed = %lu", atomic_load(&consumed));
	} else {
		for (uintptr_t generation = 0; generation < 4; generation++) {
			for (uintptr_t i = 0; i < 8; i++)
				MUST(pthread_create(&threads[i], NULL, swapper, (void *)(generation * 100 + i + 1)) == 0);
			for (int i = 0; i < 8; i++)
				pthread_join(threads[i], NULL);
		}
		for (int i = 0; i < TABLE; i++)
			if (table[i])
				check_and_free(table[i]);
		line("generations = 4");
	}
	line("wrong = %lu", atomic_load(&wrong));
	return 0;
}
