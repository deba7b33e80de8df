//! What a server core says of itself when it accepts a channel, beside the facts of its queue pair.

/// The server's part of the handshake; travels over the link as [`Greeting::encode`]d bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Of this life of the server.
    pub incarnation: u64,
    /// Whether the server knew the session: then a repeated mutation is not executed again.
    pub resumed: bool,
    /// Whether frames that are WRITten need a checksum.
    pub checked: bool,
    /// What datagrams of this channel begin with, both ways: known to its two ends alone.
    pub token: u64,
}

impl Greeting {
    /// The length of an encoded greeting.
    pub const BYTES: usize = 18;

    /// As it travels.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.token.to_le_bytes());
        bytes[16..].copy_from_slice(&[self.resumed.into(), self.checked.into()]);
        bytes
    }

    /// Reads one; `None` if the bytes are none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (incarnation, rest) = bytes.split_first_chunk::<8>()?;
        let (token, flags) = rest.split_first_chunk::<8>()?;
        let flag = |byte| match byte {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        Some(Self {
            incarnation: u64::from_le_bytes(*incarnation),
            token: u64::from_le_bytes(*token),
            resumed: flag(flags[0])?,
            checked: flag(flags[1])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_come_back_as_they_went() {
        let greeting =
            Greeting { incarnation: 0x0123_4567_89ab_cdef, resumed: true, checked: false, token: 7 << 40 };
        assert_eq!(Greeting::parse(&greeting.encode()), Some(greeting));
        let bytes = greeting.encode();
        for flag in [16, 17] {
            let mut bytes = bytes;
            bytes[flag] = 2;
            assert_eq!(Greeting::parse(&bytes), None);
        }
        assert_eq!(Greeting::parse(&bytes[..8]), None);
    }
}
