//! Files of over 100,000 records: loaded by one process, read back completely by another, and compared.

use crate::harness::Place;
use std::{collections::HashMap, io::Write, process::Command};

type Records = HashMap<Vec<u8>, Vec<u8>>;

/// Loads a TSV file and compares all of it.
fn load_and_compare(text: &[u8], design: &str) {
    let expected: Records = text
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            let tab = line.iter().position(|&byte| byte == b'\t').expect("a tab");
            // As in the store, the last of several records with a key stays.
            (line[..tab].to_vec(), line[tab + 1..].to_vec())
        })
        .collect();
    assert!(expected.len() > 100_000, "{} records", expected.len());
    let place = Place::new();
    let server = place.serve(&["--design", design, "--memory", "1GiB", "--cores", "2"]);
    server.load(&place.file("r.tsv", text), &[]).done();
    let table = server.table();
    assert_eq!(table.stats().unwrap()[0].records, expected.len() as u64);
    let (keys, values): (Vec<_>, Vec<_>) = expected.iter().unzip();
    let mut compared = 0;
    table.get_many_with(&keys, |place, value| {
        let key = || String::from_utf8_lossy(keys[place]);
        assert_eq!(
            value.unwrap_or_else(|error| panic!("{}: {error}", key())),
            Some(&values[place][..]),
            "{}",
            key()
        );
        compared += 1;
    });
    assert_eq!(compared, expected.len());
}

#[test]
fn a_generated_file_comes_back_whole() {
    // Values of 0 to 4,999 bytes, mostly short; keys of 1 to 40 bytes.
    let mut text = String::new();
    for number in 0..120_000_usize {
        let long = if number.is_multiple_of(1000) { number % 5000 } else { number % 90 };
        let key = format!("{number:x}{}", "k".repeat(number % 35));
        text.extend([&key, "\t", &"0123456789".repeat(long / 10 + 1)[..long], "\n"]);
    }
    for design in ["pilaf", "pilaf-vo"] {
        load_and_compare(text.as_bytes(), design);
    }
}

#[test]
fn a_real_file_comes_back_whole() {
    // Not through the test runner, which would swallow it.
    let say = |words: &str| drop(writeln!(std::io::stderr(), "a_real_file_comes_back_whole: {words}"));
    if let Some(text) = package_index() {
        say("with Debian's package index (apt-cache dumpavail), a record per field of a package");
        load_and_compare(&text, "pilaf");
    } else if let Some(text) = dictionary() {
        say("with the dictionary /usr/share/dict/words");
        load_and_compare(&text, "pilaf");
    } else {
        say(
            "SKIPPED THE REAL FILE: this machine has neither Debian's package index (apt-get update) nor a dictionary \
             of over 100,000 words (apt-get install wamerican); the generated file was tested",
        );
    }
}

/// Debian's package index: `package/Field` → the field's first line.
fn package_index() -> Option<Vec<u8>> {
    let output =
        Command::new("apt-cache").arg("dumpavail").output().ok().filter(|ran| ran.status.success())?;
    let (mut text, mut package, mut count) = (Vec::new(), Vec::new(), 0);
    for line in output.stdout.split(|&byte| byte == b'\n') {
        let Some(colon) = line.windows(2).position(|pair| pair == b": ") else { continue };
        let (field, value) = (&line[..colon], &line[colon + 2..]);
        if field == b"Package" {
            package = value.to_vec();
        } else if !line.starts_with(b" ") && !line.contains(&b'\t') {
            text.extend([&package[..], b"/", field, b"\t", value, b"\n"].concat());
            count += 1;
        }
    }
    (count > 100_000).then_some(text)
}

/// A dictionary: word → the number of its line.
fn dictionary() -> Option<Vec<u8>> {
    let words = std::fs::read("/usr/share/dict/words").ok()?;
    let mut text = Vec::new();
    let mut count = 0;
    for word in words.split(|&byte| byte == b'\n').filter(|word| !word.is_empty() && !word.contains(&b'\t')) {
        count += 1;
        text.extend([word, b"\t", count.to_string().as_bytes(), b"\n"].concat());
    }
    (count > 100_000).then_some(text)
}
