//! Bytes as text: themselves if they are UTF-8, else `hex:` and two digits for each byte. Bytes that are UTF-8 and begin
//! with `hex:` are written in hex as well, so that every text means one thing.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;

const HEX: &str = "hex:";
/// How many bytes of a key or value are shown to people.
const SHOWN_BYTES: usize = 40;

/// The text for bytes.
pub(crate) fn encode(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with(HEX) => Cow::Borrowed(text),
        _ => {
            let mut text = String::with_capacity(HEX.len() + bytes.len() * 2);
            text.push_str(HEX);
            for byte in bytes {
                // A String takes everything.
                let _ = write!(text, "{byte:02x}");
            }
            Cow::Owned(text)
        }
    }
}

/// The bytes that a text means, or what is wrong with it.
pub(crate) fn decode(text: String) -> Result<Vec<u8>, String> {
    let Some(digits) = text.strip_prefix(HEX) else { return Ok(text.into_bytes()) };
    let wrong = || format!("after {HEX:?} there must be two hexadecimal digits for each byte");
    if digits.len() % 2 != 0 {
        return Err(wrong());
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8).ok_or_else(wrong);
    digits.as_bytes().chunks_exact(2).map(|pair| Ok(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// Bytes for people: quoted, and not all of them if they are many.
pub(crate) struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = encode(self.0);
        if text.len() <= 2 * SHOWN_BYTES {
            return write!(f, "{text:?}");
        }
        let end = (0..=SHOWN_BYTES).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        let quoted = format!("{:?}", &text[..end]);
        write!(f, "{}...\" ({} bytes)", &quoted[..quoted.len() - 1], self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes: Vec<u8>) {
            prop_assert_eq!(decode(encode(&bytes).into_owned()).unwrap(), bytes);
        }

        #[test]
        fn any_text_comes_back_also_after_the_prefix(text: String, prefix in "(hex|hex:)?") {
            let bytes = (prefix + &text).into_bytes();
            prop_assert_eq!(decode(encode(&bytes).into_owned()).unwrap(), bytes);
        }
    }

    #[test]
    fn what_is_not_hex_is_refused() {
        assert_eq!(decode("hex:00fF".into()).unwrap(), [0, 255]);
        assert!(decode("hex:".into()).unwrap().is_empty());
        for text in ["hex:0", "hex:0g", "hex:+1", "hex:é"] {
            assert!(decode(text.into()).is_err(), "{text}");
        }
    }

    #[test]
    fn long_values_are_shown_in_part() {
        let long = "é".repeat(200);
        let shown = Shown(long.as_bytes()).to_string();
        assert!(shown.ends_with("é...\" (400 bytes)") && shown.len() < 100, "{shown}");
    }
}
