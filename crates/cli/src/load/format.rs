//! The formats of files: each yields numbered records, good or bad.

use super::{
    input::Input,
    lines::{LINE_BYTES_MAX, Line, Lines},
};
use anyhow::{anyhow, bail};
use clap::ValueEnum;
use serde_json::value::RawValue;
use std::{cell::Cell, collections::HashMap, io, io::Read, path::Path, rc::Rc};

/// The format of a file.
// The help explains the variants by itself: see `LoadArgs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Tsv,
    Csv,
    Ndjson,
}

/// A line, or several where a field of CSV has line breaks.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of its first line, from 1.
    pub line: u64,
    /// Key and value, or what is wrong with it.
    pub content: Result<(Vec<u8>, Vec<u8>), String>,
}

/// The records of a file; an error means that it cannot be read any further.
pub type Records = Box<dyn Iterator<Item = io::Result<Record>>>;

impl Format {
    /// The format that a file's ending says.
    pub fn of_file(path: &Path) -> anyhow::Result<Self> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        match ending.as_deref() {
            Some("tsv" | "tab") => Ok(Self::Tsv),
            Some("csv") => Ok(Self::Csv),
            Some("ndjson" | "jsonl") => Ok(Self::Ndjson),
            _ => bail!(
                "{} does not end in .tsv, .csv or .ndjson: give --format tsv, csv or ndjson",
                path.display()
            ),
        }
    }

    /// Reads the records of a file; its header, if it has one, at once.
    pub fn read(self, input: Input, columns: Columns) -> anyhow::Result<Records> {
        Ok(match self {
            Self::Tsv => tsv(input, columns)?,
            Self::Csv => csv(input, columns)?,
            Self::Ndjson => ndjson(input, columns),
        })
    }
}

/// Which columns hold key and value, as the user said it.
#[derive(Clone, Debug)]
pub struct Columns {
    key: Option<String>,
    value: Option<String>,
    header: bool,
}

/// The same as indices from 0.
#[derive(Clone, Copy, Debug)]
struct Places {
    key: usize,
    value: usize,
    /// How many fields a line must have, if the user named no column: others would be lost silently.
    exactly: Option<usize>,
}

impl Columns {
    /// A name means that there is a header.
    pub fn new(key: Option<String>, value: Option<String>, header: bool) -> Self {
        let names = [&key, &value].into_iter().flatten().any(|column| column.parse::<usize>().is_err());
        Self { key, value, header: header || names }
    }

    /// Finds the columns; `header` is the first line, where that is one.
    fn places(&self, header: Option<Vec<String>>) -> anyhow::Result<Places> {
        let header = header.unwrap_or_default();
        let place = |column: &Option<String>, default: usize| {
            let Some(column) = column else { return Ok(default) };
            if let Some(place) = header.iter().position(|name| name == column) {
                return Ok(place);
            }
            match column.parse::<usize>() {
                Ok(number) if number > 0 => Ok(number - 1),
                Ok(_) => Err(anyhow!("columns are numbered from 1")),
                Err(_) => Err(anyhow!("there is no column {column:?}; the header has {}", header.join(", "))),
            }
        };
        let exactly = (self.key.is_none() && self.value.is_none()).then_some(2);
        Ok(Places { key: place(&self.key, 0)?, value: place(&self.value, 1)?, exactly })
    }
}

impl Places {
    /// Picks key and value from a line's fields.
    fn pick<'a>(self, fields: impl Iterator<Item = &'a [u8]>) -> Result<(Vec<u8>, Vec<u8>), String> {
        let (mut key, mut value, mut count) = (None, None, 0);
        for (place, field) in fields.enumerate() {
            // The same column may serve as both.
            if place == self.key {
                key = Some(field);
            }
            if place == self.value {
                value = Some(field);
            }
            count += 1;
        }
        match (key, value, self.exactly) {
            (_, _, Some(exactly)) if count != exactly => Err(format!(
                "{count} field(s), where a key and a value are expected: see --key-column and --value-column"
            )),
            (Some(key), Some(value), _) => Ok((key.to_vec(), value.to_vec())),
            _ => Err(format!("{count} field(s), where {} are needed", self.key.max(self.value) + 1)),
        }
    }
}

fn texts<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    fields.map(|field| String::from_utf8_lossy(field).into_owned()).collect()
}

fn too_long() -> String {
    format!("longer than {LINE_BYTES_MAX} bytes")
}

fn tsv(input: Input, columns: Columns) -> anyhow::Result<Records> {
    fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
        line.split(|&byte| byte == b'\t')
    }
    let mut lines = Lines::new(input, LINE_BYTES_MAX);
    let header = match columns.header.then(|| lines.next()).transpose()?.flatten() {
        Some((_, Line::Whole(line))) => Some(texts(fields(line))),
        _ => None,
    };
    let places = columns.places(header)?;
    Ok(Box::new(std::iter::from_fn(move || {
        let (line, content) = match lines.next() {
            Ok(Some((number, Line::Whole(line)))) => (number, places.pick(fields(line))),
            Ok(Some((number, Line::TooLong))) => (number, Err(too_long())),
            Ok(None) => return None,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(Record { line, content }))
    })))
}

/// Reads no more than a limit between two resets: CSV with a quote that is never closed is one record to its end.
struct Bounded<R> {
    reader: R,
    left: Rc<Cell<usize>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.reader.read(into)?;
        match self.left.get().checked_sub(bytes) {
            Some(left) => self.left.set(left),
            None => {
                return Err(io::Error::other(format!("a record {}: is a quote never closed?", too_long())));
            }
        }
        Ok(bytes)
    }
}

fn csv(input: Input, columns: Columns) -> anyhow::Result<Records> {
    let left = Rc::new(Cell::new(LINE_BYTES_MAX));
    let reader = Bounded { reader: input, left: left.clone() };
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .buffer_capacity(256 << 10)
        .from_reader(reader);
    let mut record = csv::ByteRecord::new();
    let header = if columns.header && reader.read_byte_record(&mut record)? {
        Some(texts(record.iter()))
    } else {
        None
    };
    let places = columns.places(header)?;
    Ok(Box::new(std::iter::from_fn(move || {
        left.set(LINE_BYTES_MAX);
        let line = reader.position().line();
        match reader.read_byte_record(&mut record) {
            Ok(true) => {
                let line = record.position().map_or(line, csv::Position::line);
                Some(Ok(Record { line, content: places.pick(record.iter()) }))
            }
            Ok(false) => None,
            Err(error) => Some(Err(io::Error::other(format!("from line {line}: {error}")))),
        }
    })))
}

fn ndjson(input: Input, columns: Columns) -> Records {
    let key = columns.key.unwrap_or_else(|| "key".into());
    let value = columns.value.unwrap_or_else(|| "value".into());
    let mut lines = Lines::new(input, LINE_BYTES_MAX);
    Box::new(std::iter::from_fn(move || {
        let (line, content) = match lines.next() {
            Ok(Some((number, Line::Whole(line)))) => (number, object(line, &key, &value)),
            Ok(Some((number, Line::TooLong))) => (number, Err(too_long())),
            Ok(None) => return None,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(Record { line, content }))
    }))
}

/// Takes key and value from an object. The fields stay as they are written, numbers of any length included.
fn object(line: &[u8], key: &str, value: &str) -> Result<(Vec<u8>, Vec<u8>), String> {
    let fields: HashMap<String, &RawValue> =
        serde_json::from_slice(line).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => format!("not a JSON object: {error}"),
            _ => format!("not JSON: {error}"),
        })?;
    let field = |name: &str| fields.get(name).copied().ok_or_else(|| format!("no field {name:?}"));
    let of_key = field(key)?.get();
    let of_value = field(value)?.get();
    if of_key.starts_with(['{', '[']) || of_key == "null" {
        return Err(format!("the field {key:?} is not a string or a number"));
    }
    Ok((bytes(of_key)?, bytes(of_value)?))
}

/// The bytes of a string, or the JSON text of anything else.
fn bytes(json: &str) -> Result<Vec<u8>, String> {
    if !json.starts_with('"') {
        return Ok(json.as_bytes().to_vec());
    }
    serde_json::from_str::<String>(json).map(String::into_bytes).map_err(|error| format!("not JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_without_end_is_an_error_and_shorter_ones_are_not() {
        let left = Rc::new(Cell::new(10));
        let mut bounded = Bounded { reader: &b"0123456789abcdefghijk"[..], left: left.clone() };
        let mut piece = [0; 5];
        assert_eq!(bounded.read(&mut piece).unwrap(), 5);
        left.set(10);
        assert_eq!(bounded.read(&mut piece).unwrap(), 5);
        assert_eq!(bounded.read(&mut piece).unwrap(), 5);
        assert!(bounded.read(&mut piece).unwrap_err().to_string().contains("quote"));
    }

    #[test]
    fn lines_with_other_numbers_of_fields_are_bad_unless_columns_are_named() {
        let pick = |columns: &Columns, line: &'static str| {
            columns.places(None).unwrap().pick(line.split(' ').map(str::as_bytes)).is_ok()
        };
        let default = Columns::new(None, None, false);
        assert_eq!(["a", "a b", "a b c"].map(|line| pick(&default, line)), [false, true, false]);
        let third = Columns::new(None, Some("3".into()), false);
        assert_eq!(["a b", "a b c", "a b c d"].map(|line| pick(&third, line)), [false, true, true]);
    }
}
