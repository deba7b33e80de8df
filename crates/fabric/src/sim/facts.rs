//! What ends of a link tell each other, as bytes: fixed records, each with a secret that chance drew, so that changed or
//! invented ones lead nowhere.

use crate::Facts;

/// What a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Region = 1,
    QueuePair = 2,
}

const MAGIC: &[u8; 8] = b"locussim";

impl Record {
    /// Writes numbers down.
    pub(crate) fn encode(self, words: &[u64]) -> Facts {
        let mut bytes = MAGIC.to_vec();
        bytes.push(self as u8);
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        Facts { bytes, handles: Vec::new() }
    }

    /// Reads them again; an error says what is wrong.
    pub(crate) fn decode<const N: usize>(self, facts: &Facts) -> Result<[u64; N], &'static str> {
        let rest = facts.bytes.strip_prefix(MAGIC).ok_or("these are no facts of the simulated fabric")?;
        let (&kind, rest) = rest.split_first().ok_or("the facts are too short")?;
        if kind != self as u8 || !facts.handles.is_empty() {
            return Err("the facts are of another kind");
        }
        let (words, more) = rest.as_chunks::<8>();
        let words = <[[u8; 8]; N]>::try_from(words).map_err(|_| "the facts have another length")?;
        if more.is_empty() { Ok(words.map(u64::from_le_bytes)) } else { Err("the facts have another length") }
    }
}
