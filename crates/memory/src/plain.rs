//! Buffers that no NIC knows, for READs that are copied at once.

use std::cell::RefCell;

/// Buffers of `SIZE` bytes each.
pub(crate) struct PlainBuffers<const SIZE: usize>(RefCell<Vec<Box<[u8; SIZE]>>>);

impl<const SIZE: usize> PlainBuffers<SIZE> {
    /// So many of them.
    pub(crate) fn new(count: usize) -> Self {
        Self(RefCell::new((0..count).map(|_| Box::new([0; SIZE])).collect()))
    }

    /// A buffer to be filled with so many bytes; none while all are in use.
    ///
    /// # Panics
    /// When a buffer is shorter: a bug of the caller.
    #[inline]
    pub(crate) fn take(&self, bytes: usize) -> Option<Copied<'_, SIZE>> {
        assert!(bytes <= SIZE, "{bytes} bytes in a buffer of {SIZE}");
        let buffer = self.0.borrow_mut().pop()?;
        Some(Copied { buffer: Some(buffer), bytes, home: self })
    }
}

/// A buffer in use, which goes home when this is dropped.
pub struct Copied<'a, const SIZE: usize> {
    buffer: Option<Box<[u8; SIZE]>>,
    bytes: usize,
    home: &'a PlainBuffers<SIZE>,
}

impl<const SIZE: usize> Copied<'_, SIZE> {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[..self.bytes])
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut().map_or(&mut [], |buffer| &mut buffer[..self.bytes])
    }
}

impl<const SIZE: usize> Drop for Copied<'_, SIZE> {
    #[inline]
    fn drop(&mut self) {
        self.home.0.borrow_mut().extend(self.buffer.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_go_home() {
        let buffers = PlainBuffers::<64>::new(2);
        for round in 0..5u8 {
            let (mut first, second) = (buffers.take(64).unwrap(), buffers.take(0).unwrap());
            assert!(buffers.take(1).is_none());
            first.bytes_mut().fill(round);
            assert_eq!((first.bytes(), second.bytes()), (&[round; 64][..], &[][..]));
        }
    }
}
