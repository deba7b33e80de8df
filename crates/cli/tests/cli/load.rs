//! `locus load`: the formats, bad lines, and ways to give the file.

use crate::harness::{Place, Served};

fn assert_holds(server: &Served, records: &[(&str, &str)]) {
    let table = server.table();
    for (key, value) in records {
        let found = table.get(key).unwrap().unwrap_or_else(|| panic!("no {key:?}"));
        assert_eq!(String::from_utf8_lossy(&found), *value, "{key:?}");
    }
    assert_eq!(table.stats().unwrap()[0].records, records.len() as u64);
}

#[test]
fn tsv_is_taken_as_it_is() {
    let place = Place::new();
    let server = place.serve(&[]);
    let file = place.file("r.tsv", "\u{FEFF}a\t1\r\nb\t\"2\"\n\nc d\t\\t\na\tthe last one stays\ne\t\r\n");
    let text = server.load(&file, &[]).done().text();
    assert!(text.starts_with("5 records stored") && text.contains("no bad lines"), "{text}");
    assert_holds(&server, &[("a", "the last one stays"), ("b", "\"2\""), ("c d", "\\t"), ("e", "")]);
}

#[test]
fn csv_takes_quotes_commas_and_line_breaks() {
    let place = Place::new();
    let server = place.serve(&[]);
    let file = place.file("r.CSV", "a,1\n\"b, c\",\"two\nlines\"\nd,\"say \"\"hi\"\"\"\n");
    server.load(&file, &[]).done();
    assert_holds(&server, &[("a", "1"), ("b, c", "two\nlines"), ("d", "say \"hi\"")]);
}

#[test]
fn ndjson_keeps_strings_and_json_text() {
    let place = Place::new();
    let server = place.serve(&[]);
    let file = place.file(
        "r.ndjson",
        r#"{"key": "a", "value": "caf\u00e9\n", "more": [1, 2]}
{"value": {"b":  [1, null]}, "key": "b"}
{"key": 17, "value": 12345678901234567890123456789.10}

{"key": "\"", "value": true}
"#,
    );
    server.load(&file, &[]).done();
    let number = "12345678901234567890123456789.10";
    assert_holds(&server, &[("a", "café\n"), ("b", r#"{"b":  [1, null]}"#), ("17", number), ("\"", "true")]);
}

#[test]
fn columns_are_chosen_by_number_and_by_name() {
    let place = Place::new();
    let text = "id,name,colour\n1,one,red\n2,two,green\n";
    let choices: [(&[&str], &str, &str); 5] = [
        (&["--header", "--key-column", "2", "--value-column", "1"], "two", "2"),
        (&["--key-column", "colour", "--value-column", "id"], "green", "2"),
        (&["--header", "--value-column", "3"], "2", "green"),
        (&["--value-column", "name"], "2", "two"),
        (&["--key-column", "name", "--value-column", "name"], "one", "one"),
    ];
    for (arguments, key, value) in choices {
        let server = place.serve(&[]);
        for (name, text) in [("r.csv", text.to_owned()), ("r.tsv", text.replace(',', "\t"))] {
            server.load(&place.file(name, text), arguments).done();
            assert_eq!(server.value(key), value.as_bytes(), "{arguments:?}");
            assert_eq!(server.table().stats().unwrap()[0].records, 2, "{arguments:?}");
        }
        server.end(rustix::process::Signal::INT);
    }
    let server = place.serve(&[]);
    let file = place.file("r.csv", text);
    server.load(&file, &["--key-column", "size"]).said(3, &["no column \"size\"", "id, name, colour"]);
    server.load(&file, &["--key-column", "0"]).said(3, &["from 1"]);
    let file = place.file("r.ndjson", "{\"user\": \"u\", \"n\": 3}\n");
    server.load(&file, &["--key-field", "user", "--value-field", "n"]).done();
    assert_eq!(server.value("u"), b"3");
}

#[test]
fn bad_lines_are_named_and_skipped() {
    let cases = [
        (
            "r.tsv",
            "a\t1\nb\nc\t2\td\n\ne\t3\n\t4\n",
            vec![("line 2", "1 field"), ("line 3", "3 field"), ("line 6", "0 bytes")],
        ),
        (
            "r.csv",
            "a,\"1\n1\"\nb\nc,2,d\ne,3\n,4\n",
            vec![("line 3", "1 field"), ("line 4", "3 field"), ("line 6", "0 bytes")],
        ),
        (
            "r.ndjson",
            "{\"key\":\"a\",\"value\":1}\n{\"key\":\"b\"}\n[]\n{\"key\":\n{\"key\":[1],\"value\":1}\n{\"key\":\"e\",\"value\":3}\n",
            vec![
                ("line 2", "no field \"value\""),
                ("line 3", "not a JSON object"),
                ("line 4", "not JSON"),
                ("line 5", "not a string or a number"),
            ],
        ),
    ];
    for (name, text, bad) in cases {
        let place = Place::new();
        let server = place.serve(&[]);
        let file = place.file(name, text);
        let ran = server.load(&file, &[]).said(1, &[]);
        assert!(ran.text().contains("2 records stored"), "{name}: {}", ran.text());
        assert!(ran.text().contains(&format!("{} bad lines", bad.len())), "{name}: {}", ran.text());
        assert_eq!(ran.stderr.lines().count(), bad.len(), "{name}: {}", ran.stderr);
        // A record may be refused after later lines were read.
        for (line, reason) in &bad {
            let told = |text: &str| text.contains(&format!("{line}: ")) && text.contains(reason);
            assert!(ran.stderr.lines().any(told), "{name}: no {line}, {reason} in {}", ran.stderr);
        }
        assert_eq!(server.value("e"), b"3", "{name}");
        // Strict: the first of them ends it, and what follows is not stored.
        server.locus("del", &["e"]).done();
        let ran = server.load(&file, &["--strict"]).said(3, &[bad[0].0, bad[0].1, "--strict", "1 bad line"]);
        assert_eq!(ran.text(), "");
        assert!(!ran.stderr.contains(bad[1].0), "{}", ran.stderr);
        server.locus("get", &["e"]).said(1, &[]);
    }
}

#[test]
fn many_bad_lines_are_counted() {
    let place = Place::new();
    let server = place.serve(&[]);
    let file = place.file("r.tsv", "bad\n".repeat(5000) + "a\t1\n");
    let ran = server.load(&file, &[]).said(1, &["line 20: ", "further bad lines are counted"]);
    assert_eq!(ran.stderr.lines().count(), 21, "{}", ran.stderr);
    assert!(ran.text().contains("5000 bad lines"), "{}", ran.text());
    assert_eq!(server.value("a"), b"1");
}

#[test]
fn values_over_the_limit_are_bad_lines() {
    let place = Place::new();
    let server = place.serve(&["--value-bytes-max", "5000"]);
    let text = format!("a\t{}\nb\t{}\nc\t3\n", "x".repeat(5000), "x".repeat(5001));
    let ran = server.load(&place.file("r.tsv", text), &[]).said(1, &["line 2: ", "limit of 5000"]);
    assert!(ran.text().contains("2 records stored"), "{}", ran.text());
    assert_eq!(server.value("a").len(), 5000);
    assert_eq!(server.value("c"), b"3");
}

#[test]
fn standard_input_needs_a_format() {
    let place = Place::new();
    let server = place.serve(&[]);
    server.locus_reading("load", &["-"], b"a\t1\n").said(3, &["--format"]);
    server.locus_reading("load", &["--format", "tsv", "-"], b"a\t1\nb\t2\n").done();
    assert_holds(&server, &[("a", "1"), ("b", "2")]);
    server.load(&place.file("records", "c,3\n"), &[]).said(3, &["--format"]);
    server.load(&place.file("records", "c,3\n"), &["--format", "csv"]).done();
    assert_eq!(server.value("c"), b"3");
    server.load(&place.path("missing.tsv"), &[]).said(3, &["missing.tsv", "No such file"]);
    server.load(&place.path("."), &["--format", "tsv"]).said(3, &["directory"]);
    let text = server.load(&place.file("empty.csv", ""), &[]).done().text();
    assert!(text.starts_with("0 records stored"), "{text}");
}
