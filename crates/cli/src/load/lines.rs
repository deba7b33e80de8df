//! Lines of a file as bytes, of bounded length, with their numbers.

use std::io::{self, BufRead, BufReader, Read};

/// The longest line in bytes: room for the longest value, however it is escaped.
pub const LINE_BYTES_MAX: usize = 64 << 20;
const BUFFER_BYTES: usize = 256 << 10;
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Lines without their ends. Empty ones are passed over.
pub struct Lines<R> {
    reader: BufReader<R>,
    longest: usize,
    number: u64,
    line: Vec<u8>,
}

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// Its bytes.
    Whole(&'a [u8]),
    /// It is over the limit, and was passed over.
    TooLong,
}

impl<R: Read> Lines<R> {
    /// Reads lines of up to `longest` bytes.
    pub fn new(reader: R, longest: usize) -> Self {
        Self { reader: BufReader::with_capacity(BUFFER_BYTES, reader), longest, number: 0, line: Vec::new() }
    }

    /// The next line and its number from 1; none at the end.
    pub fn next(&mut self) -> io::Result<Option<(u64, Line<'_>)>> {
        loop {
            self.line.clear();
            // Room for the end of the line, which does not count.
            let limit = self.longest as u64 + 2;
            if self.reader.by_ref().take(limit).read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            let ended = self.line.pop_if(|byte| *byte == b'\n').is_some();
            self.line.pop_if(|byte| *byte == b'\r');
            if self.line.len() > self.longest {
                if !ended {
                    self.pass_over()?;
                }
                return Ok(Some((self.number, Line::TooLong)));
            }
            if self.number == 1 && self.line.starts_with(BYTE_ORDER_MARK) {
                self.line.drain(..BYTE_ORDER_MARK.len());
            }
            if !self.line.is_empty() {
                return Ok(Some((self.number, Line::Whole(&self.line))));
            }
        }
    }

    /// Reads to the end of the line without keeping it.
    fn pass_over(&mut self) -> io::Result<()> {
        loop {
            let buffer = match self.reader.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let (bytes, last) = match buffer.iter().position(|&byte| byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (buffer.len(), buffer.is_empty()),
            };
            self.reader.consume(bytes);
            if last {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8], longest: usize) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut lines = Lines::new(text, longest);
        let mut found = Vec::new();
        while let Some((number, line)) = lines.next().unwrap() {
            found.push((
                number,
                match line {
                    Line::Whole(bytes) => Some(bytes.to_vec()),
                    Line::TooLong => None,
                },
            ));
        }
        found
    }

    #[test]
    fn lines_have_numbers_and_no_ends() {
        let text = b"\xEF\xBB\xBFone\r\n\ntwo\n\r\n\xFF\rthree";
        let expected = [(1, &b"one"[..]), (3, b"two"), (5, b"\xFF\rthree")];
        assert_eq!(all(text, 100), expected.map(|(number, line)| (number, Some(line.to_vec()))));
        assert_eq!(all(b"", 100), []);
    }

    #[test]
    fn a_line_over_the_limit_is_passed_over() {
        let some = |line: &[u8]| Some(line.to_vec());
        for end in [&b"\n"[..], b"\r\n"] {
            let text = [&b"1234"[..], b"12345", b"1234567890", b"1234"].join(end);
            assert_eq!(all(&text, 4), [(1, some(b"1234")), (2, None), (3, None), (4, some(b"1234"))]);
        }
        assert_eq!(all(b"1234567890", 4), [(1, None)]);
    }
}
