//! `get`, `put`, `del`, and the commands that show something.

use crate::harness::{Place, locus};

/// Bytes without a pattern that a text could have.
fn binary(bytes: usize) -> Vec<u8> {
    let mut state = bytes as u64 + 1;
    (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        })
        .collect()
}

#[test]
fn a_record_is_put_got_replaced_and_removed() {
    for design in ["pilaf", "pilaf-vo"] {
        let place = Place::new();
        let server = place.serve(&["--design", design, "--cores", "2"]);
        assert!(
            server.banner.contains(design) && server.banner.contains(&server.address),
            "{}",
            server.banner
        );
        server.locus("get", &["greeting"]).said(1, &["no key \"greeting\""]);
        assert_eq!(server.locus("put", &["greeting", "hello, world"]).done().stdout, b"");
        assert_eq!(server.value("greeting"), b"hello, world");
        server.locus("put", &["greeting", ""]).done();
        assert_eq!(server.value("greeting"), b"");
        server.locus("put", &["--", "-k", "-v"]).done();
        assert_eq!(server.locus("get", &["--", "-k"]).done().stdout, b"-v");
        server.locus("put", &["Schlüssel", "größer"]).done();
        assert_eq!(server.value("Schlüssel"), "größer".as_bytes());
        assert_eq!(server.locus("del", &["greeting"]).done().stdout, b"");
        server.locus("del", &["greeting"]).said(1, &["no key \"greeting\""]);
        server.locus("get", &["greeting"]).said(1, &["no key"]);
    }
}

#[test]
fn binary_values_of_all_sizes_come_back_as_they_were() {
    for design in ["pilaf", "pilaf-vo"] {
        let place = Place::new();
        let server = place.serve(&["--design", design]);
        for bytes in [0, 1, 63, 64, 4095, 4096, 4097, 100_000, 1 << 20] {
            let value = binary(bytes);
            server.locus_reading("put", &["key", "-"], &value).done();
            assert!(server.value("key") == value, "{bytes} bytes by {design}");
        }
        let over = binary((1 << 20) + 1);
        server
            .locus_reading("put", &["key", "-"], &over)
            .said(3, &["1048577 bytes", "1048576", "--value-bytes-max"]);
        assert!(server.value("key") == binary(1 << 20), "the old value stays");
    }
}

#[test]
fn limits_on_keys_and_values_are_named() {
    let place = Place::new();
    let server = place.serve(&["--value-bytes-max", "10"]);
    server.locus("put", &["key", "0123456789"]).done();
    server.locus("put", &["key", "01234567890"]).said(3, &["11 bytes", "limit of 10"]);
    let longest = "k".repeat(1024);
    server.locus("put", &[&longest, "v"]).done();
    assert_eq!(server.value(&longest), b"v");
    let over = "k".repeat(1025);
    for (name, arguments) in [("put", &[&over, "v"][..]), ("get", &[&over]), ("del", &[&over])] {
        server.locus(name, arguments).said(3, &["1025 bytes", "1 to 1024"]);
    }
    server.locus("put", &["", "v"]).said(3, &["0 bytes", "1 to 1024"]);
}

#[test]
fn statistics_count_what_was_done() {
    let place = Place::new();
    let server = place.serve(&[]);
    for key in ["a", "b", "c"] {
        server.locus("put", &[key, "value"]).done();
    }
    server.locus("del", &["a"]).done();
    let text = server.locus("stats", &[]).done().text();
    assert!(text.contains("pilaf") && text.contains(&server.address), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&server.locus("stats", &["--json"]).done().text()).unwrap();
    assert_eq!(json[0]["records"], 2, "{json}");
    assert_eq!(json[0]["counters"]["mutations"], 4, "{json}");
    assert_eq!(json[0]["process"], server.child.id(), "{json}");
}

#[test]
fn several_servers_are_one_store() {
    let (place, other) = (Place::new(), Place::new());
    let (first, second) = (place.serve(&[]), other.serve(&[]));
    let file = place.file("r.tsv", (0..1000).map(|n| format!("key {n}\tvalue {n}\n")).collect::<String>());
    let both = ["--connect", &second.address, file.to_str().unwrap()];
    first.locus("load", &both).done();
    assert_eq!(first.locus("get", &["--connect", &second.address, "key 7"]).done().stdout, b"value 7");
    let records = |server: &crate::harness::Served| server.table().stats().unwrap()[0].records;
    assert_eq!(records(&first) + records(&second), 1000);
    assert!(records(&first) > 300 && records(&second) > 300);
}

#[test]
fn what_needs_no_server_shows() {
    let designs = locus(&["designs"]).done().text();
    for words in ["pilaf", "pilaf-vo", "RC SEND → RC SEND", "cuckoo", "Mitchell"] {
        assert!(designs.contains(words), "{designs}");
    }
    let info = locus(&["info"]).done().text();
    for words in
        ["shm", "works: put and got", "huge pages", "membarrier", "cores", "/dev/shm", "locked", "checksums"]
    {
        assert!(info.contains(words), "no {words:?} in {info}");
    }
    let help = locus(&["--help"]).done().text();
    for name in
        ["serve", "get", "put", "del", "load", "scan", "stats", "designs", "info", "bench", "history", "sim"]
    {
        assert!(help.contains(&format!("\n  {name} ")), "{help}");
        assert!(locus(&[name, "--help"]).done().text().contains("Usage: locus"), "{name}");
    }
    assert!(locus(&["--version"]).done().text().starts_with("locus "));
}

#[test]
fn wrong_usage_is_told_from_failure() {
    locus(&["frobnicate"]).said(2, &["frobnicate"]);
    locus(&["get"]).said(2, &["<KEY>"]);
    locus(&["serve", "--design", "cell"]).said(2, &["pilaf-vo"]);
    locus(&["serve", "--memory", "lots"]).said(2, &["4GiB"]);
    locus(&["scan", "--connect", "shm:/tmp/x", "a", "b"]).said(3, &["order", "locus get"]);
}
