//! Decisions that need no kernel helper, so that they can be tested on the host.
#![forbid(unsafe_code)]

/// FNV-1a over the frames, never 0: identifies a stack that the kernel walked.
pub fn hash_frames(frames: &[u64]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for frame in frames {
        hash = (hash ^ frame).wrapping_mul(0x0000_0100_0000_01b3);
        hash ^= hash >> 29;
    }
    if hash == 0 { 1 } else { hash }
}

#[cfg(test)]
mod tests {
    use super::hash_frames;

    #[test]
    fn stacks_that_differ_in_order_or_length_differ() {
        assert_ne!(hash_frames(&[1, 2]), hash_frames(&[2, 1]));
        assert_ne!(hash_frames(&[1]), hash_frames(&[1, 1]));
        assert_ne!(hash_frames(&[]), 0);
    }
}
