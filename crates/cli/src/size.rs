//! Sizes as people write them: `4GiB`, `512MiB`, `1000000`.

use bytesize::ByteSize;

/// Reads a size in bytes.
pub fn parse(text: &str) -> Result<usize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}; sizes look like 512MiB or 4GiB"))?;
    usize::try_from(size.as_u64()).map_err(|_| "more than this machine can address".to_owned())
}

/// Writes a size for people.
pub fn show(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        assert_eq!(parse("4GiB"), Ok(4 << 30));
        assert_eq!(parse("512 MiB"), Ok(512 << 20));
        assert_eq!(parse("1000"), Ok(1000));
        assert_eq!(parse("1MB"), Ok(1_000_000));
        assert!(parse("many").is_err() && parse("").is_err() && parse("-1").is_err());
        assert_eq!(show(4 << 30), "4.0 GiB");
    }
}
