//! Keys and values: what record number `index` is called, and what it holds.
//!
//! A key is `user` and the record's number, zero-padded to the configured length (YCSB, Cooper et al. 2010 §5). A value
//! is derived from the record's number and a version that stands in its first 8 bytes, so that every reader can tell
//! whether it read a whole value, of the right record, that somebody once wrote.

use crate::error::BenchError;

/// The shortest key that starts with `user`; a shorter one is digits alone.
const PREFIXED_KEY_BYTES: usize = 16;
const PREFIX: &[u8] = b"user";

const DIGIT_PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut n = 0;
    while n < 100 {
        pairs[2 * n] = b'0' + (n / 10) as u8;
        pairs[2 * n + 1] = b'0' + (n % 10) as u8;
        n += 1;
    }
    pairs
};

/// The lengths of keys and values of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    key_bytes: usize,
    value_bytes: usize,
    /// How many trailing digits of a key change from record to record.
    digits: usize,
    /// How many bytes of a key may be digits.
    room: usize,
}

/// The last eight decimal digits of a number, which are computed side by side in the bytes of a word. Digits that are stored
/// one by one leave the core's store queue, and all that was stored before them, before a load of several returns:
/// that is a store's wait for lines of other cores, and would be counted as the client's time.
#[inline]
fn eight_digits(number: u32) -> [u8; 8] {
    let number = number % 100_000_000;
    // Two halves of four digits, four quarters of two, eight digits; the first of each in the lower bits.
    let halves = u64::from(number / 10_000) | u64::from(number % 10_000) << 32;
    let hundreds = ((halves * 10_486) >> 20) & 0x7f_0000_007f;
    let quarters = hundreds | (halves - 100 * hundreds) << 16;
    let tens = ((quarters * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | (quarters - 10 * tens) << 8;
    (digits | u64::from_le_bytes([b'0'; 8])).to_le_bytes()
}

impl Shape {
    /// Keys of `key_bytes` and values of `value_bytes` for records `0..highest_index + 1`; an error if the numbers do not
    /// fit the keys.
    pub fn new(key_bytes: usize, value_bytes: usize, highest_index: u64) -> Result<Self, BenchError> {
        let digits = highest_index.checked_ilog10().map_or(1, |log| log as usize + 1);
        let prefix = if key_bytes >= PREFIXED_KEY_BYTES { PREFIX.len() } else { 0 };
        if digits + prefix > key_bytes {
            return Err(BenchError::Options(format!(
                "keys of {key_bytes} bytes cannot number {} records: at least {digits} bytes are needed (--key-bytes)",
                highest_index + 1
            )));
        }
        Ok(Self { key_bytes, value_bytes, digits, room: key_bytes - prefix })
    }

    /// Length of every value, in bytes.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// A key buffer, to be filled by [`Self::write_key`].
    pub fn new_key(&self) -> Vec<u8> {
        let mut key = vec![b'0'; self.key_bytes];
        if self.key_bytes >= PREFIXED_KEY_BYTES {
            key[..PREFIX.len()].copy_from_slice(PREFIX);
        }
        key
    }

    /// Writes record `index`'s number into `key`, a buffer of [`Self::new_key`].
    #[inline]
    pub fn write_key(&self, key: &mut [u8], mut index: u64) {
        let mut end = key.len();
        let stop = end - self.digits;
        // Stored as a whole, since whoever gets the key loads words: see [`eight_digits`].
        if self.digits <= 8
            && self.room >= 8
            && let Some(last) = key.last_chunk_mut()
        {
            *last = eight_digits(index as u32);
            return;
        }
        while end >= stop + 2 {
            let pair = (index % 100) as usize * 2;
            index /= 100;
            key[end - 2..end].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
            end -= 2;
        }
        if end > stop {
            key[stop] = b'0' + (index % 10) as u8;
        }
    }

    /// Fills `value` with version `version` of record `index`. Values shorter than 16 bytes have no room for a version.
    #[inline]
    pub fn write_value(&self, value: &mut [u8], index: u64, version: u64) {
        let version = self.storable(version);
        let mut word = seed(index, version);
        let (words, rest) = value.as_chunks_mut::<8>();
        for bytes in &mut *words {
            *bytes = word.to_le_bytes();
            word = word.wrapping_add(STEP);
        }
        let rest_bytes = rest.len();
        rest.copy_from_slice(&word.to_le_bytes()[..rest_bytes]);
        if self.value_bytes >= 16 {
            words[0] = version.to_le_bytes();
        }
    }

    /// Whether `value` is some version of record `index`, whole.
    pub fn is_value_of(&self, value: &[u8], index: u64) -> bool {
        if value.len() != self.value_bytes {
            return false;
        }
        let (words, rest) = value.as_chunks::<8>();
        let version = if self.value_bytes >= 16 { u64::from_le_bytes(words[0]) } else { 0 };
        let mut word = seed(index, version);
        for (position, bytes) in words.iter().enumerate() {
            let is_version = position == 0 && self.value_bytes >= 16;
            if !is_version && *bytes != word.to_le_bytes() {
                return false;
            }
            word = word.wrapping_add(STEP);
        }
        rest == &word.to_le_bytes()[..rest.len()]
    }

    fn storable(&self, version: u64) -> u64 {
        if self.value_bytes >= 16 { version } else { 0 }
    }
}

/// Odd, so that the words of one value are all different.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads index and version over 64 bits (the finalizer of SplitMix64, Steele et al. 2014).
#[inline]
fn seed(index: u64, version: u64) -> u64 {
    let mut x = index.wrapping_mul(STEP) ^ version.rotate_left(32);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key_bytes: usize, highest: u64, index: u64) -> String {
        let shape = Shape::new(key_bytes, 0, highest).unwrap();
        let mut key = shape.new_key();
        shape.write_key(&mut key, highest);
        shape.write_key(&mut key, index);
        String::from_utf8(key).unwrap()
    }

    #[test]
    fn keys_are_user_and_a_zero_padded_number() {
        assert_eq!(key(16, 999_999, 42), "user000000000042");
        assert_eq!(key(16, 9_999_999, 1_234_567), "user000001234567");
        assert_eq!(key(24, 10, 7), "user00000000000000000007");
        assert_eq!(key(8, 99_999_999, 12_345_678), "12345678");
        assert_eq!(key(1, 9, 3), "3");
        assert_eq!(key(3, 0, 0), "000");
    }

    #[test]
    fn eight_digits_are_those_of_the_number() {
        for half in 0..10_000 {
            for number in [half, half * 10_000, half * 10_001, u32::MAX - half] {
                let digits = format!("{:08}", number % 100_000_000);
                assert_eq!(eight_digits(number), digits.as_bytes(), "{number}");
            }
        }
    }

    #[test]
    fn keys_too_short_for_their_numbers_are_refused() {
        assert!(Shape::new(6, 8, 999_999).is_ok());
        let error = Shape::new(6, 8, 1_000_000).unwrap_err().to_string();
        assert!(error.contains("1000001 records") && error.contains("at least 7"), "{error}");
    }

    #[test]
    fn a_value_is_known_by_its_record_and_every_bit_counts() {
        for value_bytes in [16, 17, 64, 100, 4096] {
            let shape = Shape::new(16, value_bytes, 1000).unwrap();
            let mut value = vec![0; value_bytes];
            shape.write_value(&mut value, 17, 5);
            assert!(shape.is_value_of(&value, 17));
            assert!(!shape.is_value_of(&value, 18));
            assert!(!shape.is_value_of(&value[1..], 17));
            for byte in 0..value_bytes {
                value[byte] ^= 1;
                assert!(!shape.is_value_of(&value, 17), "byte {byte} of {value_bytes} does not count");
                value[byte] ^= 1;
            }
        }
    }

    #[test]
    fn halves_of_two_versions_are_no_value() {
        let shape = Shape::new(16, 64, 1000).unwrap();
        let (mut old, mut new) = (vec![0; 64], vec![0; 64]);
        shape.write_value(&mut old, 17, 1);
        shape.write_value(&mut new, 17, 2);
        old[32..].copy_from_slice(&new[32..]);
        assert!(!shape.is_value_of(&old, 17));
    }

    #[test]
    fn short_values_are_verified_too() {
        for value_bytes in 0..16 {
            let shape = Shape::new(16, value_bytes, 1000).unwrap();
            let mut value = vec![0; value_bytes];
            shape.write_value(&mut value, 3, 9);
            assert!(shape.is_value_of(&value, 3), "{value_bytes}");
            if value_bytes > 0 {
                value[value_bytes - 1] ^= 0x80;
                assert!(!shape.is_value_of(&value, 3), "{value_bytes}");
            }
        }
    }
}
