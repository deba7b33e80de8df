//! Histories as NDJSON: one object per operation and line, in the order of invocations.
//!
//! | field | |
//! |---|---|
//! | `client` | number |
//! | `op` | `"get"`, `"put"` or `"delete"` |
//! | `key` | string |
//! | `value` | what was put; what a get found, `null` if the key was absent; `null` for a delete |
//! | `found` | whether a get or a delete found the key; puts do not have this field |
//! | `invoked_ns` | number |
//! | `returned_ns` | number, or `null` if the operation never returned |
//! | `outcome` | `"ok"`, or `"unknown"` |
//!
//! Keys and values are bytes. Those that are UTF-8 are written as they are; all others, and those that begin with `hex:`,
//! as `hex:` and two hexadecimal digits for each byte. So a string that begins with `hex:` always means the bytes after it.
//!
//! The result of a get or a delete with an unknown outcome means nothing.

use crate::{Action, History, HistoryError, OPERATIONS_MAX, Operation, Outcome, text};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read, Write};

/// The longest line in bytes: room for the longest value, however it is written.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// Writes a history. The writer should be buffered; it is flushed at the end.
pub fn write(history: &History, mut to: impl Write) -> Result<(), HistoryError> {
    for operation in history.operations() {
        serde_json::to_writer(&mut to, &Line::of(operation))
            .map_err(|error| HistoryError::Write(error.into()))?;
        to.write_all(b"\n").map_err(HistoryError::Write)?;
    }
    to.flush().map_err(HistoryError::Write)
}

/// Reads a history, in any order. Empty lines are passed over.
pub fn read(from: impl Read) -> Result<History, HistoryError> {
    let mut from = BufReader::with_capacity(256 << 10, from);
    let (mut operations, mut text) = (Vec::new(), Vec::new());
    for line in 1.. {
        text.clear();
        // Room for the end of the line, which does not count.
        let read = from.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut text);
        if read.map_err(|source| HistoryError::Read { line, source })? == 0 {
            break;
        }
        text.pop_if(|byte| *byte == b'\n');
        if text.len() > LINE_BYTES_MAX {
            let reason = format!("longer than {LINE_BYTES_MAX} bytes, the most that a line takes");
            return Err(HistoryError::Line { line, reason });
        }
        if !text.trim_ascii().is_empty() {
            operations.push(operation(line, &text)?);
        }
        if operations.len() > OPERATIONS_MAX {
            return Err(HistoryError::Operations { limit: OPERATIONS_MAX });
        }
    }
    History::new(operations)
}

#[derive(Serialize)]
struct Line<'a> {
    client: u32,
    op: Op,
    key: Cow<'a, str>,
    value: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<bool>,
    invoked_ns: u64,
    returned_ns: Option<u64>,
    outcome: OutcomeWord,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Op {
    Get,
    Put,
    Delete,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OutcomeWord {
    Ok,
    Unknown,
}

impl<'a> Line<'a> {
    fn of(operation: &'a Operation) -> Self {
        let (op, value, found) = match &operation.action {
            Action::Get(value) => (Op::Get, value.as_ref(), Some(value.is_some())),
            Action::Put(value) => (Op::Put, Some(value), None),
            Action::Delete { found } => (Op::Delete, None, Some(*found)),
        };
        Self {
            client: operation.client,
            op,
            key: text::encode(&operation.key),
            value: value.map(|value| text::encode(value)),
            found,
            invoked_ns: operation.invoked_ns,
            returned_ns: operation.returned_ns,
            outcome: match operation.outcome {
                Outcome::Ok => OutcomeWord::Ok,
                Outcome::Unknown => OutcomeWord::Unknown,
            },
        }
    }
}

/// A line's fields as they are written: each is then read by itself, so that an error can name it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(borrow, default, deserialize_with = "written")]
    client: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "written")]
    op: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "written")]
    key: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "written")]
    value: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "written")]
    found: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "written")]
    invoked_ns: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "written")]
    returned_ns: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "written")]
    outcome: Option<&'a RawValue>,
}

/// A field that is `null` is there all the same.
fn written<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

/// Reads fields of a line.
#[derive(Clone, Copy)]
struct Reader {
    line: u64,
}

impl Reader {
    fn wrong(self, field: &'static str, reason: impl Into<String>) -> HistoryError {
        HistoryError::Field { line: self.line, field, reason: reason.into() }
    }

    /// A field's value; `kind` says what it should be.
    fn read<T: DeserializeOwned>(
        self,
        field: &'static str,
        kind: &str,
        written: Option<&RawValue>,
    ) -> Result<T, HistoryError> {
        let written = written.ok_or_else(|| self.wrong(field, "is missing"))?;
        serde_json::from_str(written.get()).map_err(|_| {
            let is: String = written.get().chars().take(40).collect();
            self.wrong(field, format!("is {is}, and not {kind}"))
        })
    }

    fn bytes(self, field: &'static str, text: String) -> Result<Vec<u8>, HistoryError> {
        text::decode(text).map_err(|reason| self.wrong(field, reason))
    }
}

fn operation(line: u64, text: &[u8]) -> Result<Operation, HistoryError> {
    let not_one = |reason: String| HistoryError::Line { line, reason: format!("not an operation: {reason}") };
    // An array would be taken for the fields in their order.
    if !text.trim_ascii_start().starts_with(b"{") {
        return Err(not_one("it is no object".into()));
    }
    let fields: Fields<'_> = serde_json::from_slice(text).map_err(|error| not_one(error.to_string()))?;
    let reader = Reader { line };
    let key: String = reader.read("key", "a string", fields.key)?;
    let value: Option<String> = reader.read("value", "a string or null", fields.value)?;
    let value = value.map(|value| reader.bytes("value", value)).transpose()?;
    let found = |found| reader.read::<bool>("found", "true or false", found);
    let action = match reader.read("op", "\"get\", \"put\" or \"delete\"", fields.op)? {
        Op::Get if found(fields.found)? == value.is_some() => Action::Get(value),
        Op::Get => return Err(reader.wrong("found", "does not agree with the field \"value\"")),
        Op::Put if fields.found.is_some() => return Err(reader.wrong("found", "is not a field of a put")),
        Op::Put => Action::Put(value.ok_or_else(|| reader.wrong("value", "is null in a put"))?),
        Op::Delete if value.is_some() => return Err(reader.wrong("value", "is not null in a delete")),
        Op::Delete => Action::Delete { found: found(fields.found)? },
    };
    let invoked_ns = reader.read("invoked_ns", "a number of nanoseconds", fields.invoked_ns)?;
    let returned_ns: Option<u64> =
        reader.read("returned_ns", "a number of nanoseconds or null", fields.returned_ns)?;
    if returned_ns.is_some_and(|returned_ns| returned_ns < invoked_ns) {
        return Err(reader.wrong("returned_ns", "is before the field \"invoked_ns\""));
    }
    Ok(Operation {
        client: reader.read("client", "a number below 2^32", fields.client)?,
        key: reader.bytes("key", key)?,
        action,
        invoked_ns,
        returned_ns,
        outcome: match reader.read("outcome", "\"ok\" or \"unknown\"", fields.outcome)? {
            OutcomeWord::Ok => Outcome::Ok,
            OutcomeWord::Unknown => Outcome::Unknown,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GET: &str = r#"{"client":1,"op":"get","key":"k","value":null,"found":false,"invoked_ns":3,"returned_ns":null,"outcome":"unknown"}"#;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            any::<Vec<u8>>(),
            any::<String>().prop_map(String::into_bytes),
            "hex:.*".prop_map(String::into_bytes)
        ]
    }

    fn any_operation() -> impl Strategy<Value = Operation> {
        let action = prop_oneof![
            proptest::option::of(bytes()).prop_map(Action::Get),
            bytes().prop_map(Action::Put),
            any::<bool>().prop_map(|found| Action::Delete { found }),
        ];
        let end = proptest::option::of(any::<u32>());
        (any::<u32>(), bytes(), action, any::<u32>(), end, any::<bool>()).prop_map(
            |(client, key, action, invoked_ns, length, ok)| {
                // Also beyond what a double can tell apart.
                let invoked_ns = u64::MAX - 2 * u64::from(u32::MAX) + u64::from(invoked_ns);
                let returned_ns = length.map(|length| invoked_ns + u64::from(length));
                let outcome = if ok { Outcome::Ok } else { Outcome::Unknown };
                Operation { client, key, action, invoked_ns, returned_ns, outcome }
            },
        )
    }

    proptest! {
        #[test]
        fn a_written_history_reads_as_it_was(
            operations in proptest::collection::vec(any_operation(), 0..20),
        ) {
            let history = History::new(operations).unwrap();
            let mut text = Vec::new();
            write(&history, &mut text).unwrap();
            prop_assert_eq!(text.iter().filter(|&&byte| byte == b'\n').count(), history.operations().len());
            prop_assert_eq!(read(&text[..]).unwrap(), history);
        }
    }

    #[test]
    fn lines_have_the_fields_and_no_others() {
        let operation = |action, returned_ns, outcome| Operation {
            client: 1,
            key: b"k".to_vec(),
            action,
            invoked_ns: 3,
            returned_ns,
            outcome,
        };
        let history = History::new(vec![
            operation(Action::Get(None), None, Outcome::Unknown),
            operation(Action::Get(Some(b"\xFF".to_vec())), Some(4), Outcome::Ok),
            operation(Action::Put(b"hex:".to_vec()), Some(4), Outcome::Ok),
            operation(Action::Delete { found: true }, Some(4), Outcome::Ok),
        ]);
        let mut text = Vec::new();
        write(&history.unwrap(), &mut text).unwrap();
        let rest = r#""invoked_ns":3,"returned_ns":4,"outcome":"ok"}"#;
        let expected = [
            GET.to_string(),
            format!(r#"{{"client":1,"op":"get","key":"k","value":"hex:ff","found":true,{rest}"#),
            format!(r#"{{"client":1,"op":"put","key":"k","value":"hex:6865783a",{rest}"#),
            format!(r#"{{"client":1,"op":"delete","key":"k","value":null,"found":true,{rest}"#),
        ];
        assert_eq!(String::from_utf8(text).unwrap().lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn errors_name_line_and_field() {
        let wrong = [
            (r#""client":1"#, r#""client":-1"#, "client"),
            (r#""client":1"#, r#""client":4294967296"#, "client"),
            (r#""client":1,"#, "", "client"),
            (r#""op":"get""#, r#""op":"cas""#, "op"),
            (r#""key":"k""#, r#""key":7"#, "key"),
            (r#""key":"k""#, r#""key":"hex:0""#, "key"),
            (r#""value":null"#, r#""value":"hex:xx""#, "value"),
            (r#""value":null,"#, "", "value"),
            (r#""value":null"#, r#""value":"v""#, "found"),
            (r#""found":false"#, r#""found":null"#, "found"),
            (r#""found":false,"#, "", "found"),
            (r#""op":"get""#, r#""op":"put""#, "found"),
            (
                r#""op":"get","key":"k","value":null,"found":false"#,
                r#""op":"put","key":"k","value":null"#,
                "value",
            ),
            (r#""op":"get","key":"k","value":null"#, r#""op":"delete","key":"k","value":"v""#, "value"),
            (r#""invoked_ns":3"#, r#""invoked_ns":3.5"#, "invoked_ns"),
            (r#""returned_ns":null"#, r#""returned_ns":2"#, "returned_ns"),
            (r#""returned_ns":null,"#, "", "returned_ns"),
            (r#""outcome":"unknown""#, r#""outcome":"failed""#, "outcome"),
        ];
        for (from, to, name) in wrong {
            assert!(GET.contains(from));
            let text = format!("{GET}\n\n{}\n", GET.replace(from, to));
            match read(text.as_bytes()) {
                Err(HistoryError::Field { line: 3, field, .. }) if field == name => {}
                other => panic!("{to}: {other:?}"),
            }
        }
        let array = r#"[1,"get","k",null,false,3,null,"unknown"]"#;
        for line in
            ["nonsense", "[]", array, r#"{"client":1,"client":1}"#, r#"{"server":1}"#, "{\"key\":\"\u{1}\"}"]
        {
            match read(line.as_bytes()) {
                Err(HistoryError::Line { line: 1, .. }) => {}
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_line_over_the_limit_is_an_error() {
        let endless = std::io::repeat(b'x');
        assert!(matches!(read(endless), Err(HistoryError::Line { line: 1, .. })));
    }
}
