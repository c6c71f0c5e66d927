//! Decisions that need no kernel helper, so that they can be tested on the host.
#![forbid(unsafe_code)]

/// Start of [`hash_step`]: FNV-1a's offset basis.
pub const HASH_SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// Mixes one frame into the hash of a stack: FNV-1a's prime, with a shift because frames differ in few high bits.
#[inline]
pub const fn hash_step(hash: u64, frame: u64) -> u64 {
    let hash = (hash ^ frame).wrapping_mul(0x0000_0100_0000_01b3);
    hash ^ (hash >> 29)
}

/// The finished hash, never 0, since 0 names no stack.
#[inline]
pub const fn hash_end(hash: u64) -> u64 {
    if hash == 0 { 1 } else { hash }
}

/// Identifies a stack that the kernel walked.
pub fn hash_frames(frames: &[u64]) -> u64 {
    hash_end(frames.iter().fold(HASH_SEED, |hash, frame| hash_step(hash, *frame)))
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
