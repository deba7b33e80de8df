//! CRC-64/NVME of objects, rows and directory entries, quick for small ones.
//!
//! A self-verifying object is right for any order and granularity in which a READ samples memory (Mitchell §3.3, which
//! uses CRC64). Rows are 32 bytes and most extents about a hundred, where general CRC code spends its time on tails
//! and table look-ups. Here a small object is one carry-less multiplication per word, all independent of each other,
//! and one Barrett reduction (V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel,
//! 2009). Processors without that instruction, and large objects, go to the crate `crc-fast`; the values are the same.

use crate::Pointer;

/// The polynomial without its highest term, its lowest term in the highest bit (reflected).
const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;

/// From this many bytes on `crc-fast` is quicker, which then runs four or more wide registers side by side.
#[cfg(target_arch = "x86_64")]
const LARGE_BYTES: usize = 640;

/// The CRC-64/NVME of some bytes.
#[inline]
pub fn checksum(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if !bytes.is_empty() && bytes.len() < LARGE_BYTES {
        if bytes.len().is_multiple_of(16)
            && std::arch::is_x86_feature_detected!("vpclmulqdq")
            && std::arch::is_x86_feature_detected!("avx512f")
        {
            // SAFETY: the processor has the instructions, as was just asked.
            return unsafe { folded::checksum_blocks(bytes) };
        }
        if std::arch::is_x86_feature_detected!("pclmulqdq") {
            // SAFETY: the processor has the instruction, as was just asked.
            return unsafe { folded::checksum(bytes) };
        }
    }
    general(bytes)
}

/// The checksum of a row of 32 bytes whose other three words are `words`: covers also where the row lies and the epoch
/// of its table, so that a moved copy or a row of an earlier table fails. Never zero: a zeroed row does not verify.
#[inline]
pub fn checksum_row(words: [u64; 3], location: Pointer, epoch: u64) -> u64 {
    let [a, b, c] = words;
    never_zero(four_words(a, b, c, place(location, epoch)))
}

/// The checksum of a directory entry of 64 bytes whose other seven words are `words`; like [`checksum_row`].
#[inline]
pub fn checksum_entry(words: [u64; 7], location: Pointer, epoch: u64) -> u64 {
    let [a, b, c, d, e, f, g] = words;
    never_zero(eight_words(&[a, b, c, d, e, f, g, place(location, epoch)]))
}

/// The checksum of a slot of a table that holds more than a row: over `body`, which is whole blocks of 16 bytes and 8 bytes
/// more; like [`checksum_row`].
///
/// # Panics
/// When the body has another length.
#[inline]
pub fn checksum_slot(body: &[u8], location: Pointer, epoch: u64) -> u64 {
    let (blocks, last) = body.split_last_chunk::<8>().expect("8 bytes at least");
    assert!(blocks.len().is_multiple_of(16), "a body of {} bytes", body.len());
    let (sum, last) = (checksum(blocks), u64::from_le_bytes(*last));
    never_zero(four_words(sum, last, place(location, epoch), body.len() as u64))
}

/// The CRC-64/NVME of four words, each little-endian. Apart, so that they travel in registers.
#[inline]
fn four_words(a: u64, b: u64, c: u64, d: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the processor has the instruction, as was just asked.
        return unsafe { folded::four_words(a, b, c, d) };
    }
    general([a, b, c, d].map(u64::to_le_bytes).as_flattened())
}

/// The CRC-64/NVME of eight words, each little-endian.
#[inline]
fn eight_words(words: &[u64; 8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the processor has the instruction, as was just asked.
        return unsafe { folded::eight_words(words) };
    }
    general(words.map(u64::to_le_bytes).as_flattened())
}

/// One word for a place and an epoch. For one epoch all places differ and for one place all epochs; for epochs less
/// than 2^20 apart no place of one equals any place of the other, since multiples of the golden ratio stay that far
/// apart (a pointer has 42 bits). The mixing after it (D. Stafford's variant 13) is a bijection, which keeps sums of
/// pointer and place from cancelling.
#[inline]
fn place(location: Pointer, epoch: u64) -> u64 {
    let mut word = location.bits().wrapping_add(epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[inline]
fn never_zero(checksum: u64) -> u64 {
    if checksum == 0 { POLYNOMIAL } else { checksum }
}

/// Any length, any processor.
#[inline(never)]
fn general(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}

/// The arithmetic with PCLMULQDQ. Bytes are the coefficients of a polynomial, the lowest bit of the first byte the
/// highest term. A register of 128 bits holds a 16-byte block thus: bit `i` is the term `x^(127 - i)`; the product of
/// two 64-bit halves therefore comes out multiplied by `x`, which the constants make up for.
#[cfg(target_arch = "x86_64")]
mod folded {
    use super::POLYNOMIAL;
    use std::arch::x86_64::{
        __m128i, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_loadu_si128, _mm_set_epi64x,
        _mm_setzero_si128, _mm_unpackhi_epi64, _mm_xor_si128, _mm256_castsi256_si128,
        _mm256_extracti128_si256, _mm256_xor_si256, _mm512_castsi512_si256, _mm512_clmulepi64_epi128,
        _mm512_extracti64x4_epi64, _mm512_loadu_si512, _mm512_maskz_loadu_epi64, _mm512_setzero_si512,
        _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
    };

    /// Longer input is first folded into so many blocks of 16 bytes.
    const DIRECT_BLOCKS: usize = 16;
    /// The most whole blocks that input for this module has.
    const BLOCKS_MAX: usize = super::LARGE_BYTES / 16;

    /// `x^power` modulo the polynomial, reflected.
    const fn power_of_x(power: u32) -> u64 {
        let mut value = 1 << 63;
        let mut step = 0;
        while step < power {
            value = (value >> 1) ^ if value & 1 == 1 { POLYNOMIAL } else { 0 };
            step += 1;
        }
        value
    }

    /// The constants of a block: what its first and its second word are to be multiplied with.
    #[derive(Clone, Copy)]
    #[repr(C, align(16))]
    struct Pair {
        first: u64,
        second: u64,
    }

    /// By how many blocks follow a block: what brings it to the end of the input, times the `x^64` of every CRC.
    static DISTANCE: [Pair; BLOCKS_MAX + 1] = {
        let mut table = [Pair { first: 0, second: 0 }; BLOCKS_MAX + 1];
        let mut blocks = 0;
        while blocks <= BLOCKS_MAX {
            let bits = 128 * blocks as u32;
            table[blocks] = Pair { first: power_of_x(bits + 127), second: power_of_x(bits + 63) };
            blocks += 1;
        }
        table
    };

    /// Brings a block 64 bytes further, onto the block that lies there.
    const FOUR_BLOCKS: [u64; 2] = [power_of_x(512 + 63), power_of_x(512 - 1)];

    /// The quotient of `x^128` by the polynomial without its highest term, reflected, shifted to make room for the
    /// highest term, which is the lowest bit.
    const QUOTIENT: u64 = {
        // Long division, one term of the quotient at a time, from the highest; a bit of `quotient` is the term x^i.
        let polynomial = POLYNOMIAL.reverse_bits();
        let (mut remainder, mut quotient, mut term) = (polynomial, 0u64, 64);
        while term > 0 {
            term -= 1;
            let carry = remainder >> 63;
            remainder = (remainder << 1) ^ if carry == 1 { polynomial } else { 0 };
            quotient |= carry << term;
        }
        (quotient.reverse_bits() << 1) | 1
    };

    /// Reduces 128 bits to 64 (Barrett): the low half holds the high terms. Ends with the inversion of CRC-64/NVME.
    #[inline]
    #[target_feature(enable = "sse2,pclmulqdq")]
    fn reduce(sum: __m128i) -> u64 {
        let constants = _mm_set_epi64x(((POLYNOMIAL << 1) | 1) as i64, QUOTIENT as i64);
        let quotient = _mm_clmulepi64_si128::<0x00>(sum, constants);
        let product = _mm_clmulepi64_si128::<0x10>(quotient, constants);
        // The constant lacks the polynomial's lowest term, bit 64 of its reflection: that product is added by hand.
        let sum = _mm_xor_si128(sum, product);
        !(_mm_cvtsi128_si64(_mm_unpackhi_epi64(sum, sum)) ^ _mm_cvtsi128_si64(quotient)) as u64
    }

    /// A block times its two constants.
    #[inline]
    #[target_feature(enable = "sse2,pclmulqdq")]
    fn multiply(block: __m128i, constants: __m128i) -> __m128i {
        let first = _mm_clmulepi64_si128::<0x00>(block, constants);
        let second = _mm_clmulepi64_si128::<0x11>(block, constants);
        _mm_xor_si128(first, second)
    }

    #[inline]
    #[target_feature(enable = "sse2,pclmulqdq")]
    fn distance(blocks: usize) -> __m128i {
        let Pair { first, second } = DISTANCE[blocks];
        _mm_set_epi64x(second as i64, first as i64)
    }

    #[inline]
    #[target_feature(enable = "sse2,pclmulqdq")]
    fn load(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: an unaligned load of 16 bytes that are there.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "sse2,pclmulqdq")]
    fn register(block: u128) -> __m128i {
        _mm_set_epi64x((block >> 64) as i64, block as i64)
    }

    /// One word times what brings it to the end of the input, so many words further, and times `x^64`.
    #[inline]
    #[target_feature(enable = "sse2,pclmulqdq")]
    fn multiply_word<const WORDS: usize>(word: u64) -> __m128i {
        let constant = const { power_of_x(64 * WORDS as u32 + 63) };
        _mm_clmulepi64_si128::<0x00>(_mm_cvtsi64_si128(word as i64), _mm_cvtsi64_si128(constant as i64))
    }

    /// The checksum of four words.
    #[target_feature(enable = "sse2,pclmulqdq")]
    pub(super) fn four_words(a: u64, b: u64, c: u64, d: u64) -> u64 {
        let first = _mm_xor_si128(multiply_word::<3>(!a), multiply_word::<2>(b));
        let second = _mm_xor_si128(multiply_word::<1>(c), multiply_word::<0>(d));
        reduce(_mm_xor_si128(first, second))
    }

    /// The checksum of eight words. Each is loaded on its own, as it was stored just before.
    #[target_feature(enable = "sse2,pclmulqdq")]
    pub(super) fn eight_words(words: &[u64; 8]) -> u64 {
        let [a, b, c, d, e, f, g, h] = *words;
        let first = _mm_xor_si128(multiply_word::<7>(!a), multiply_word::<6>(b));
        let second = _mm_xor_si128(multiply_word::<5>(c), multiply_word::<4>(d));
        let third = _mm_xor_si128(multiply_word::<3>(e), multiply_word::<2>(f));
        let fourth = _mm_xor_si128(multiply_word::<1>(g), multiply_word::<0>(h));
        reduce(_mm_xor_si128(_mm_xor_si128(first, second), _mm_xor_si128(third, fourth)))
    }

    /// The checksum of less than [`super::LARGE_BYTES`] bytes. The initial value, all ones, is added to the first eight
    /// of them.
    #[target_feature(enable = "sse2,pclmulqdq")]
    pub(super) fn checksum(bytes: &[u8]) -> u64 {
        match bytes.as_chunks::<16>() {
            (blocks, []) if !blocks.is_empty() => {
                add_blocks(_mm_setzero_si128(), _mm_cvtsi64_si128(!0), blocks)
            }
            _ => odd_length(bytes),
        }
    }

    /// The constants of [`DISTANCE`] in the order of blocks from the front, the last one's at the end, and then what the
    /// empty part of a register may be multiplied with.
    static FROM_THE_END: [[Pair; 4]; BLOCKS_MAX / 4 + 1] = {
        let mut table = [[Pair { first: 0, second: 0 }; 4]; BLOCKS_MAX / 4 + 1];
        let mut block = 0;
        while block < BLOCKS_MAX {
            table[block / 4][block % 4] = DISTANCE[BLOCKS_MAX - 1 - block];
            block += 1;
        }
        table
    };

    /// The checksum of one to `BLOCKS_MAX` whole blocks, four at a time: half the instructions of [`checksum`] at 112 bytes.
    #[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq")]
    pub(super) fn checksum_blocks(bytes: &[u8]) -> u64 {
        let constants = FROM_THE_END.as_flattened();
        let constants = &constants[BLOCKS_MAX - bytes.len() / 16..];
        let mut sum = _mm512_setzero_si512();
        let mut carried = _mm512_zextsi128_si512(_mm_cvtsi64_si128(!0));
        for (index, four) in bytes.chunks(64).enumerate() {
            let words = !(!0 << (four.len() / 8));
            // SAFETY: only the words that are there are loaded.
            let four = unsafe { _mm512_maskz_loadu_epi64(words as u8, four.as_ptr().cast()) };
            let four = _mm512_xor_si512(four, carried);
            // SAFETY: there are four constants more than blocks, so that four are left for the last ones too.
            let constants =
                unsafe { _mm512_loadu_si512(constants[4 * index..4 * index + 4].as_ptr().cast()) };
            let first = _mm512_clmulepi64_epi128::<0x00>(four, constants);
            let second = _mm512_clmulepi64_epi128::<0x11>(four, constants);
            sum = _mm512_ternarylogic_epi64::<0x96>(sum, first, second);
            carried = _mm512_setzero_si512();
        }
        let half = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64::<1>(sum));
        reduce(_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half)))
    }

    /// Once the initial value has been added, zeroes in front of the input change nothing: so the odd block comes first,
    /// filled up from the front.
    #[inline(never)]
    #[target_feature(enable = "sse2,pclmulqdq")]
    fn odd_length(bytes: &[u8]) -> u64 {
        let ones = u128::from(u64::MAX);
        let (odd, blocks) = bytes.split_at(bytes.len() % 16);
        let (blocks, _) = blocks.as_chunks::<16>();
        let Some(beginning) = bytes.first_chunk::<16>() else {
            let input = short(odd) ^ ones;
            if odd.len() < 8 {
                // The initial value reaches beyond the input, into the eight zero bytes that a CRC appends.
                return reduce(register(input << (64 - 8 * odd.len())));
            }
            return reduce(multiply(register(input << (128 - 8 * odd.len())), distance(0)));
        };
        let first = register((u128::from_le_bytes(*beginning) ^ ones) << (128 - 8 * odd.len()));
        let rest = register(ones >> (8 * odd.len()));
        add_blocks(multiply(first, distance(blocks.len())), rest, blocks)
    }

    /// Less than 16 bytes as a number, without a copy of variable length.
    #[inline]
    fn short(bytes: &[u8]) -> u128 {
        match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
            (Some(first), Some(last)) => {
                let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
                u128::from(first) | u128::from(last) << (8 * (bytes.len() - 8))
            }
            _ => bytes.iter().rev().fold(0, |value, byte| value << 8 | u128::from(*byte)),
        }
    }

    /// Adds the blocks, of which there is one at least, after `first` has been added to the first of them, to a sum; then
    /// reduces it.
    #[inline]
    #[target_feature(enable = "sse2,pclmulqdq")]
    fn add_blocks(sum: __m128i, first: __m128i, blocks: &[[u8; 16]]) -> u64 {
        if blocks.len() > DIRECT_BLOCKS {
            return fold_blocks(sum, first, blocks);
        }
        let (mut sum, mut carried) = (sum, first);
        for (index, block) in blocks.iter().enumerate() {
            let block = _mm_xor_si128(load(block), carried);
            sum = _mm_xor_si128(sum, multiply(block, distance(blocks.len() - 1 - index)));
            carried = _mm_setzero_si128();
        }
        reduce(sum)
    }

    /// The same for many blocks: four at a time are brought onto the following four.
    #[inline(never)]
    #[target_feature(enable = "sse2,pclmulqdq")]
    fn fold_blocks(sum: __m128i, first: __m128i, blocks: &[[u8; 16]]) -> u64 {
        let further = _mm_set_epi64x(FOUR_BLOCKS[1] as i64, FOUR_BLOCKS[0] as i64);
        let mut carried = [first, _mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()];
        let mut rest = blocks;
        while rest.len() > DIRECT_BLOCKS {
            for (block, carried) in rest.iter().zip(&mut carried) {
                *carried = multiply(_mm_xor_si128(*carried, load(block)), further);
            }
            rest = &rest[4..];
        }
        let mut sum = sum;
        for (index, block) in rest.iter().enumerate() {
            let carried = carried.get(index).copied().unwrap_or(_mm_setzero_si128());
            let block = _mm_xor_si128(load(block), carried);
            sum = _mm_xor_si128(sum, multiply(block, distance(rest.len() - 1 - index)));
        }
        reduce(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RegionId;

    fn pointer(region: usize, offset: usize) -> Pointer {
        Pointer::new(RegionId::new(region).unwrap(), offset)
    }

    /// The definition, bit by bit.
    fn by_definition(bytes: &[u8]) -> u64 {
        let mut value = u64::MAX;
        for byte in bytes {
            value ^= u64::from(*byte);
            for _ in 0..8 {
                value = (value >> 1) ^ if value & 1 == 1 { POLYNOMIAL } else { 0 };
            }
        }
        !value
    }

    fn noise(count: usize, mut seed: u64) -> Vec<u8> {
        let mut next = || {
            seed = place(Pointer::from_bits(seed), seed.wrapping_add(1));
            seed as u8
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(checksum(b"123456789"), 0xae8b_1486_0a79_9888);
        assert_eq!(general(b"123456789"), 0xae8b_1486_0a79_9888);
    }

    #[test]
    fn equals_the_definition_and_the_crate_at_every_length() {
        let noise = noise(2064, 7);
        for length in 0..=2048 {
            for start in [0, 1, 15] {
                let bytes = &noise[start..start + length];
                let expected = general(bytes);
                #[cfg(target_arch = "x86_64")]
                if length < LARGE_BYTES && std::arch::is_x86_feature_detected!("pclmulqdq") {
                    // The way of processors without the wide instruction, which `checksum` need not take here.
                    // SAFETY: the processor has the instruction, as was just asked.
                    assert_eq!(unsafe { folded::checksum(bytes) }, expected, "{length} bytes from {start}");
                }
                assert_eq!(checksum(bytes), expected, "{length} bytes from {start}");
                if start == 0 && length < 300 {
                    assert_eq!(expected, by_definition(bytes), "{length} bytes");
                }
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn equals_the_crate(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..2048)) {
            proptest::prop_assert_eq!(checksum(&bytes), general(&bytes));
        }

        #[test]
        fn words_equal_bytes(words in proptest::array::uniform8(proptest::num::u64::ANY)) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            proptest::prop_assert_eq!(eight_words(&words), general(&bytes));
            let [a, b, c, d, ..] = words;
            proptest::prop_assert_eq!(four_words(a, b, c, d), general(&bytes[..32]));
        }

        #[test]
        fn a_row_verifies_at_its_place_alone(
            words in proptest::array::uniform3(proptest::num::u64::ANY),
            here in 0u64..1 << 42, there in 0u64..1 << 42, epoch: u64, later in 1u64..1 << 20,
        ) {
            let sum = checksum_row(words, Pointer::from_bits(here), epoch);
            if here != there {
                proptest::prop_assert_ne!(sum, checksum_row(words, Pointer::from_bits(there), epoch));
            }
            for (location, epoch) in [(here, epoch.wrapping_add(later)), (there, epoch.wrapping_add(later))] {
                proptest::prop_assert_ne!(sum, checksum_row(words, Pointer::from_bits(location), epoch));
            }
        }
    }

    #[test]
    fn every_flipped_bit_of_a_slot_shows_and_so_do_its_place_and_epoch() {
        for length in [24, 56, 120, 504] {
            let mut body: Vec<u8> = (0..length as u32).map(|byte| (byte * 7) as u8).collect();
            let sum = checksum_slot(&body, pointer(1, 4096), 9);
            assert_ne!(sum, checksum_slot(&body, pointer(1, 4096 + length + 8), 9));
            assert_ne!(sum, checksum_slot(&body, pointer(1, 4096), 10));
            for bit in 0..length * 8 {
                body[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(sum, checksum_slot(&body, pointer(1, 4096), 9), "bit {bit} of {length} bytes");
                body[bit / 8] ^= 1 << (bit % 8);
            }
            body.fill(0);
            assert_ne!(checksum_slot(&body, pointer(1, 4096), 9), 0);
        }
    }

    #[test]
    fn a_zeroed_row_verifies_nowhere() {
        for epoch in 0..100 {
            for row in 0..1000 {
                assert_ne!(checksum_row([0; 3], pointer(3, row * 32), epoch), 0);
                assert_ne!(checksum_entry([0; 7], pointer(3, row * 64), epoch), 0);
            }
        }
        assert_ne!(never_zero(0), 0);
    }

    #[test]
    fn every_flipped_bit_shows() {
        let words = [0x0123_4567_89ab_cdef, 0, u64::MAX];
        let sum = checksum_row(words, pointer(1, 4096), 9);
        for bit in 0..192 {
            let mut flipped = words;
            flipped[bit / 64] ^= 1 << (bit % 64);
            assert_ne!(sum, checksum_row(flipped, pointer(1, 4096), 9), "bit {bit}");
        }
        let words = [1, 2, 3, 4, 5, 6, 7];
        let sum = checksum_entry(words, pointer(1, 4096), 9);
        for bit in 0..448 {
            let mut flipped = words;
            flipped[bit / 64] ^= 1 << (bit % 64);
            assert_ne!(sum, checksum_entry(flipped, pointer(1, 4096), 9), "bit {bit}");
        }
    }

    #[test]
    fn near_epochs_never_share_a_place() {
        // The distance between multiples of the golden ratio that `place` counts on.
        let mut near = u64::MAX;
        for epochs in 1..1u64 << 20 {
            let distance = epochs.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            near = near.min(distance.min(distance.wrapping_neg()));
        }
        assert!(near >= 1 << 42, "{near:#x}");
    }
}
