//! The C family: malloc, calloc, realloc, free, the sized frees and the aligned calls. One row per cell of the
//! behaviour table; "kept" is an errno that the call left alone.

use jeprobe_tests::facts::{is, one_of};
use jeprobe_tests::target::facts_of;

#[test]
fn results_sizes_and_errno() {
    let facts = facts_of("std_calls.c", &["-Wno-alloc-size-larger-than"], &[]);
    facts.check(&[
        is("malloc(0).null", "0").standard(),
        is("malloc(0).usable", "8"),
        is("malloc(0).errno", "kept"),
        is("malloc(1).usable", "8"),
        is("malloc(100).usable", "112"),
        is("malloc(100).errno", "kept").standard(),
        is("malloc(above max).null", "1").standard(),
        is("malloc(above max).errno", "ENOMEM").standard(),
        is("malloc(SIZE_MAX).null", "1").standard(),
        is("malloc(SIZE_MAX).errno", "ENOMEM").standard(),
        is("malloc(PTRDIFF_MAX).null", "1").standard(),
        is("malloc(PTRDIFF_MAX).errno", "ENOMEM").standard(),
    ]);
    facts.check(&[
        is("calloc(0,8).usable", "8"),
        is("calloc(0,8).errno", "kept"),
        is("calloc(8,0).usable", "8"),
        is("calloc(8,0).errno", "kept"),
        is("calloc(3,5).usable", "16"),
        is("calloc(overflow).null", "1").standard(),
        is("calloc(overflow).errno", "ENOMEM").standard(),
        is("calloc(SIZE_MAX,2).null", "1").standard(),
        is("calloc(SIZE_MAX,2).errno", "ENOMEM").standard(),
        is("calloc(SIZE_MAX,1).null", "1").standard(),
        is("calloc(SIZE_MAX,1).errno", "ENOMEM").standard(),
    ]);
    facts.check(&[
        is("realloc(NULL,0).usable", "8"),
        is("realloc(NULL,0).errno", "kept"),
        is("realloc(NULL,100).usable", "112"),
        is("realloc(p,0).null", "1").standard(),
        is("realloc(p,0).errno", "kept").standard(),
        is("realloc(p,above max).null", "1").standard(),
        is("realloc(p,above max).errno", "ENOMEM").since_531(),
        is("realloc(p,above max).damaged", "0").standard(),
        is("reallocarray(overflow).null", "1").standard(),
        is("reallocarray(overflow).errno", "ENOMEM").standard(),
        is("reallocarray(overflow).damaged", "0").standard(),
    ]);
    facts.check(&[
        is("malloc_usable_size(NULL)", "0").standard(),
        is("malloc_usable_size(NULL).errno", "kept").standard(),
        is("free.errno", "kept").standard(),
        is("free_sized.provided", "1").since_531(),
        is("free_aligned_sized.provided", "1").since_531(),
        is("free_sized.errno", "kept").since_531(),
    ]);
}

#[test]
fn aligned_calls() {
    let facts = facts_of("std_calls.c", &["-Wno-alloc-size-larger-than"], &[]);
    facts.check(&[
        is("posix_memalign(0,8).result", "EINVAL").standard(),
        is("posix_memalign(0,8).errno", "kept").standard(),
        is("posix_memalign(0,8).untouched", "1").standard(),
        is("posix_memalign(1,8).result", "EINVAL").standard(),
        is("posix_memalign(2,8).result", "EINVAL").standard(),
        is("posix_memalign(3,8).result", "EINVAL").standard(),
        is("posix_memalign(4,8).result", "EINVAL").standard(),
        is("posix_memalign(4,8).untouched", "1").standard(),
        is("posix_memalign(24,8).result", "EINVAL").standard(),
        is("posix_memalign(24,8).errno", "kept").standard(),
        is("posix_memalign(8,0).result", "0").standard(),
        is("posix_memalign(8,0).usable", "8"),
        is("posix_memalign(8,8).usable", "8"),
        is("posix_memalign(8,8).errno", "kept").standard(),
        is("posix_memalign(64,1).usable", "64"),
        is("posix_memalign(64,1).misaligned", "0").standard(),
        is("posix_memalign(4096,4097).usable", "8192"),
        is("posix_memalign(4096,4097).misaligned", "0").standard(),
        is("posix_memalign(2^21,1).usable", "16384"),
        is("posix_memalign(2^21,1).misaligned", "0").standard(),
        is("posix_memalign(8,SIZE_MAX).result", "ENOMEM").standard(),
        is("posix_memalign(8,SIZE_MAX).untouched", "1").standard(),
        is("posix_memalign(8,SIZE_MAX).errno", "kept"),
        is("posix_memalign(64,above max).result", "ENOMEM").standard(),
        is("posix_memalign(64,above max).untouched", "1").standard(),
    ]);
    facts.check(&[
        is("aligned_alloc(0,8).null", "1"),
        is("aligned_alloc(0,8).errno", "EINVAL"),
        is("aligned_alloc(3,8).null", "1"),
        is("aligned_alloc(3,8).errno", "EINVAL"),
        is("aligned_alloc(24,8).errno", "EINVAL"),
        is("aligned_alloc(1,8).null", "0"),
        is("aligned_alloc(1,8).errno", "kept"),
        is("aligned_alloc(2,8).null", "0"),
        is("aligned_alloc(4,8).null", "0"),
        is("aligned_alloc(64,0).usable", "64"),
        is("aligned_alloc(64,1).usable", "64"),
        is("aligned_alloc(64,65).usable", "128"),
        is("aligned_alloc(64,65).errno", "kept"),
        is("aligned_alloc(32,48).usable", "64"),
        is("aligned_alloc(128,200).usable", "256"),
        is("aligned_alloc(128,1000).usable", "1024"),
        is("aligned_alloc(256,2000).usable", "2048"),
        is("aligned_alloc(2048,2049).usable", "4096"),
        is("aligned_alloc(4096,1).usable", "4096"),
        is("aligned_alloc(4096,4097).usable", "8192"),
        is("aligned_alloc(4096,14337).usable", "16384"),
        is("aligned_alloc(8192,1).usable", "16384"),
        is("aligned_alloc(8192,100).usable", "16384"),
        is("aligned_alloc(2^20,1).usable", "16384"),
        is("aligned_alloc(64,SIZE_MAX).null", "1").standard(),
        is("aligned_alloc(64,SIZE_MAX).errno", "ENOMEM").standard(),
    ]);
    facts.check(&[
        is("memalign(0,8).null", "1"),
        is("memalign(0,8).errno", "kept"),
        is("memalign(3,8).null", "1"),
        is("memalign(3,8).errno", "kept"),
        is("memalign(64,100).usable", "128"),
        is("memalign(64,SIZE_MAX).null", "1").standard(),
        is("memalign(64,SIZE_MAX).errno", "kept"),
        is("memalign(64,0).misaligned", "0").since_531(),
        is("memalign(64,0).usable", "64").since_531(),
    ]);
    facts.check(&[
        is("valloc(0).usable", "8"),
        is("valloc(1).usable", "4096"),
        is("valloc(1).misaligned", "0").standard(),
        is("valloc(4097).usable", "8192"),
        is("valloc(20000).usable", "20480"),
        is("valloc(20000).errno", "kept").standard(),
        is("valloc(SIZE_MAX).null", "1").standard(),
        is("valloc(SIZE_MAX).errno", "kept"),
        is("pvalloc(1).usable", "4096").since_531(),
        is("pvalloc(4097).usable", "8192").since_531(),
        is("pvalloc(4097).misaligned", "0").since_531(),
        is("pvalloc(above max).null", "1").since_531(),
        one_of("pvalloc(0).usable", &["8", "4096"]).since_531(),
    ]);
}

/// These two depend on whether the host overcommits, so the result is only tied to errno.
#[test]
fn address_space_beyond_memory() {
    let facts = facts_of("std_calls.c", &["-Wno-alloc-size-larger-than"], &[]);
    for call in ["malloc(2^46)", "aligned_alloc(2^40,1)"] {
        let expected = if facts.get(&format!("{call}.null")) == "0" { "kept" } else { "ENOMEM" };
        assert_eq!(facts.get(&format!("{call}.errno")), expected, "{call}");
    }
}
