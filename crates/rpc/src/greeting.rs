//! What a server core says of itself when it accepts a channel, beside the facts of its queue pair.

/// The server's part of the handshake; travels over the link as [`Greeting::encode`]d bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Of this life of the server.
    pub incarnation: u64,
    /// Whether the server knew the session: then a repeated mutation is not executed again.
    pub resumed: bool,
}

impl Greeting {
    /// The length of an encoded greeting.
    pub const BYTES: usize = 9;

    /// As it travels.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[8] = self.resumed.into();
        bytes
    }

    /// Reads one; `None` if the bytes are none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (incarnation, resumed) = bytes.split_first_chunk::<8>()?;
        let resumed = match resumed {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        Some(Self { incarnation: u64::from_le_bytes(*incarnation), resumed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_come_back_as_they_went() {
        let greeting = Greeting { incarnation: 0x0123_4567_89ab_cdef, resumed: true };
        assert_eq!(Greeting::parse(&greeting.encode()), Some(greeting));
        let mut bytes = greeting.encode();
        bytes[8] = 2;
        assert_eq!(Greeting::parse(&bytes), None);
        assert_eq!(Greeting::parse(&bytes[..8]), None);
    }
}
