/*
 * jemalloc's public interface as provided by jeprobe.
 *
 * Source compatible with the header of jemalloc 5.3.1: same names, same macro values, same calling conventions. Only
 * what the library really provides is declared, so that a missing function is an error of the compiler and not of the
 * program at run time; allocator/capi/README.md lists what is there.
 */
#ifndef JEMALLOC_H_
#define JEMALLOC_H_

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <strings.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ---------------------------------------------------------------------------------------------------- */

/* The string that mallctl("version") gives. The numbers say which interface is followed, the rest who provides it. */
#define JEMALLOC_VERSION "5.3.1-jeprobe-0.1.0"
#define JEMALLOC_VERSION_MAJOR 5
#define JEMALLOC_VERSION_MINOR 3
#define JEMALLOC_VERSION_BUGFIX 1
#define JEMALLOC_VERSION_NREV 0
/* No commit of jemalloc is inside: the id that its own builds carry is zero here. */
#define JEMALLOC_VERSION_GID "0000000000000000000000000000000000000000"
#define JEMALLOC_VERSION_GID_IDENT 0000000000000000000000000000000000000000

/* Only this library defines it. */
#define JEPROBE_VERSION "0.1.0"

/* ---- How the library was built ---------------------------------------------------------------------------------- */

#define LG_SIZEOF_PTR 3
#define JEMALLOC_OVERRIDE_MEMALIGN
#define JEMALLOC_OVERRIDE_VALLOC
#define JEMALLOC_OVERRIDE_PVALLOC
#define JEMALLOC_USABLE_SIZE_CONST
#define JEMALLOC_USE_CXX_THROW
#define JEMALLOC_CONFIG_ENV
#define JEMALLOC_CONFIG_FILE

/* ---- Attributes ------------------------------------------------------------------------------------------------- */

#if defined(__GNUC__)
#define JEMALLOC_HAVE_ATTR
#define JEMALLOC_HAVE_ATTR_ALLOC_SIZE
#define JEMALLOC_ATTR(s) __attribute__((s))
#define JEMALLOC_ALLOC_SIZE(s) JEMALLOC_ATTR(alloc_size(s))
#define JEMALLOC_ALLOC_SIZE2(s1, s2) JEMALLOC_ATTR(alloc_size(s1, s2))
#define JEMALLOC_EXPORT JEMALLOC_ATTR(visibility("default"))
#else
#define JEMALLOC_ATTR(s)
#define JEMALLOC_ALLOC_SIZE(s)
#define JEMALLOC_ALLOC_SIZE2(s1, s2)
#define JEMALLOC_EXPORT
#endif
#define JEMALLOC_ALIGNED(s) JEMALLOC_ATTR(aligned(s))
#define JEMALLOC_SECTION(s) JEMALLOC_ATTR(section(s))
#define JEMALLOC_NOINLINE JEMALLOC_ATTR(noinline)
#define JEMALLOC_COLD
#define JEMALLOC_RESTRICT_RETURN
#define JEMALLOC_ALLOCATOR
#define JEMALLOC_WARN_ON_USAGE(message)

#if defined(__cplusplus)
#if __cplusplus >= 201103L
#define JEMALLOC_NOTHROW noexcept
#define JEMALLOC_CXX_THROW noexcept
#else
#define JEMALLOC_NOTHROW throw()
#define JEMALLOC_CXX_THROW throw()
#endif
#else
#define JEMALLOC_NOTHROW JEMALLOC_ATTR(nothrow)
#define JEMALLOC_CXX_THROW
#endif

/* ---- Flags of the *allocx functions ------------------------------------------------------------------------------ */
/*
 *  bit  0..5   log2 of the alignment, 0 = none asked for
 *  bit  6      fill with zeros
 *  bit  8..19  thread cache + 2; 0 = the thread's own, 1 = none
 *  bit 20..31  arena + 1; 0 = the thread's own
 */

#define MALLOCX_LG_ALIGN(la) ((int)(la))
#define MALLOCX_ALIGN(a)                                                                                               \
    ((int)(((size_t)(a) < (size_t)INT_MAX) ? (ffs((int)(a)) - 1) : (ffs((int)(((size_t)(a)) >> 32)) + 31)))
#define MALLOCX_ZERO ((int)0x40)
#define MALLOCX_TCACHE(tc) ((int)(((tc) + 2) << 8))
#define MALLOCX_TCACHE_NONE MALLOCX_TCACHE(-1)
#define MALLOCX_ARENA(a) ((((int)(a)) + 1) << 20)

/* Index for mallctl("arena.<i>...."): every arena, merged; the destroyed ones, merged. */
#define MALLCTL_ARENAS_ALL 4096
#define MALLCTL_ARENAS_DESTROYED 4097

/* ---- Names ------------------------------------------------------------------------------------------------------ */
/*
 * The library has the plain names. Programs written for a prefixed build may use the je_ names: without
 * JEMALLOC_NO_RENAME they are macros for the plain ones. JEMALLOC_MANGLE is the opposite for programs that want to say
 * malloc and link against a prefixed build; as there is no prefix here, nothing has to be done for it, and
 * JEMALLOC_NO_DEMANGLE likewise has nothing to keep.
 */
#ifndef JEMALLOC_NO_RENAME
#define je_malloc_conf malloc_conf
#define je_malloc_conf_2_conf_harder malloc_conf_2_conf_harder
#define je_malloc_message malloc_message
#define je_malloc malloc
#define je_calloc calloc
#define je_realloc realloc
#define je_free free
#define je_free_sized free_sized
#define je_free_aligned_sized free_aligned_sized
#define je_posix_memalign posix_memalign
#define je_aligned_alloc aligned_alloc
#define je_memalign memalign
#define je_valloc valloc
#define je_pvalloc pvalloc
#define je_malloc_usable_size malloc_usable_size
#define je_mallocx mallocx
#define je_rallocx rallocx
#define je_xallocx xallocx
#define je_sallocx sallocx
#define je_dallocx dallocx
#define je_sdallocx sdallocx
#define je_nallocx nallocx
#define je_mallctl mallctl
#define je_mallctlnametomib mallctlnametomib
#define je_mallctlbymib mallctlbymib
#endif

/* ---- Variables -------------------------------------------------------------------------------------------------- */

/* Option strings; the program may define its own. Read once, at the first allocation. */
extern JEMALLOC_EXPORT const char *malloc_conf;
extern JEMALLOC_EXPORT const char *malloc_conf_2_conf_harder;

/* Gets the library's messages in place of standard error, when not NULL. cbopaque is NULL for them. */
extern JEMALLOC_EXPORT void (*malloc_message)(void *cbopaque, const char *s);

/* ---- Functions of the C library --------------------------------------------------------------------------------- */

JEMALLOC_EXPORT JEMALLOC_NOINLINE void *malloc(size_t size) JEMALLOC_CXX_THROW JEMALLOC_ATTR(malloc)
    JEMALLOC_ALLOC_SIZE(1);
JEMALLOC_EXPORT void *calloc(size_t num, size_t size) JEMALLOC_CXX_THROW JEMALLOC_ATTR(malloc)
    JEMALLOC_ALLOC_SIZE2(1, 2);
JEMALLOC_EXPORT void *realloc(void *ptr, size_t size) JEMALLOC_CXX_THROW JEMALLOC_ALLOC_SIZE(2);
JEMALLOC_EXPORT void free(void *ptr) JEMALLOC_CXX_THROW;
JEMALLOC_EXPORT int posix_memalign(void **memptr, size_t alignment, size_t size) JEMALLOC_CXX_THROW;
JEMALLOC_EXPORT void *aligned_alloc(size_t alignment, size_t size) JEMALLOC_CXX_THROW JEMALLOC_ATTR(malloc)
    JEMALLOC_ALLOC_SIZE(2);
JEMALLOC_EXPORT void *memalign(size_t alignment, size_t size) JEMALLOC_CXX_THROW JEMALLOC_ATTR(malloc);
JEMALLOC_EXPORT void *valloc(size_t size) JEMALLOC_CXX_THROW JEMALLOC_ATTR(malloc);
JEMALLOC_EXPORT void *pvalloc(size_t size) JEMALLOC_CXX_THROW JEMALLOC_ATTR(malloc);
JEMALLOC_EXPORT size_t malloc_usable_size(JEMALLOC_USABLE_SIZE_CONST void *ptr) JEMALLOC_CXX_THROW;
/* C23: as free, for a block whose size (and alignment) the caller still knows. */
JEMALLOC_EXPORT void free_sized(void *ptr, size_t size) JEMALLOC_CXX_THROW;
JEMALLOC_EXPORT void free_aligned_sized(void *ptr, size_t alignment, size_t size) JEMALLOC_CXX_THROW;

/* ---- jemalloc's own functions ----------------------------------------------------------------------------------- */

/* size must not be 0; NULL on failure, errno is not set. */
JEMALLOC_EXPORT void *mallocx(size_t size, int flags) JEMALLOC_NOTHROW JEMALLOC_ATTR(malloc) JEMALLOC_ALLOC_SIZE(1);
JEMALLOC_EXPORT void *rallocx(void *ptr, size_t size, int flags) JEMALLOC_NOTHROW JEMALLOC_ALLOC_SIZE(2);
/* Resizes in place to at least size, at most size + extra, where possible; the usable size afterwards. */
JEMALLOC_EXPORT size_t xallocx(void *ptr, size_t size, size_t extra, int flags) JEMALLOC_NOTHROW;
JEMALLOC_EXPORT size_t sallocx(const void *ptr, int flags) JEMALLOC_NOTHROW JEMALLOC_ATTR(pure);
JEMALLOC_EXPORT void dallocx(void *ptr, int flags) JEMALLOC_NOTHROW;
JEMALLOC_EXPORT void sdallocx(void *ptr, size_t size, int flags) JEMALLOC_NOTHROW;
/* Usable size that mallocx would give, 0 when it would fail. */
JEMALLOC_EXPORT size_t nallocx(size_t size, int flags) JEMALLOC_NOTHROW JEMALLOC_ATTR(pure);

/* These three return 0 or an errno value. */
JEMALLOC_EXPORT int mallctl(const char *name, void *oldp, size_t *oldlenp, void *newp, size_t newlen) JEMALLOC_NOTHROW;
JEMALLOC_EXPORT int mallctlnametomib(const char *name, size_t *mibp, size_t *miblenp) JEMALLOC_NOTHROW;
JEMALLOC_EXPORT int mallctlbymib(const size_t *mib, size_t miblen, void *oldp, size_t *oldlenp, void *newp,
                                 size_t newlen) JEMALLOC_NOTHROW;

#ifdef __cplusplus
}
#endif

#endif /* JEMALLOC_H_ */
