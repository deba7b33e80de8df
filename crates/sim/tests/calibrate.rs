//! Presets are read and refused as they should be, and held to the raw verbs that were measured of their clusters.

use locus_sim::{
    Preset,
    calibrate::{Use, compare},
};

/// Compares a preset with what was measured.
fn is_met(name: &str) {
    let preset = Preset::find(name).expect("it comes along");
    let comparisons = compare(&preset, &|_| {}).expect("its worlds end");
    assert!(!comparisons.is_empty());
    for comparison in comparisons {
        let what = &comparison.measurement.what;
        assert!(comparison.holds(), "{name}, {what}: {:+.1}%", comparison.error * 100.0);
    }
}

#[test]
fn apt_is_met() {
    is_met("apt");
}

#[test]
fn beaker_is_met() {
    is_met("beaker");
}

#[test]
fn nome_is_met() {
    is_met("nome");
}

#[test]
fn susitna_is_met() {
    is_met("susitna");
}

#[test]
fn calibrated_presets_have_fewer_numbers_than_measurements() {
    for name in Preset::names() {
        let preset = Preset::find(name).expect("it comes along");
        let measured = preset.measurements.iter().filter(|one| one.used == Use::Fitted).count();
        assert_eq!(preset.name, name);
        assert_eq!(preset.calibrated, measured > 0, "{name}");
        assert!(!preset.calibrated || preset.fitted.len() < measured, "{name}");
    }
}

/// A preset with a line of its text replaced.
fn altered(from: &str, to: &str) -> String {
    let text = include_str!("../presets/apt.toml");
    assert!(text.contains(from), "{from:?} is there");
    let error = Preset::parse("altered", &text.replacen(from, to, 1)).expect_err("it makes no sense");
    error.to_string()
}

#[test]
fn a_preset_that_makes_no_sense_is_refused_by_the_name_of_the_field() {
    for (from, to, words) in [
        ("match_ns = 7.0", "", ["missing field", "match_ns"]),
        ("match_ns = 7.0", "match_ns = -7.0", ["match_ns", "negative"]),
        ("match_ns = 7.0", "match_ns = \"seven\"", ["match_ns", "invalid type"]),
        ("match_ns = 7.0", "match_ns = 7.0\nmatches_ns = 8.0", ["unknown field", "matches_ns"]),
        ("cores = 16", "cores = 0", ["processor.cores", "between 1 and"]),
        ("factor = 1.5", "factor = -1.5", ["processor.factor", "between"]),
        ("gigabytes_per_second = 6.79", "gigabytes_per_second = 0.0", ["gigabytes_per_second", "between"]),
        ("\"nic.match_ns\"", "\"nic.matchns\"", ["fitted", "nic.matchns"]),
        ("measured = 35.0", "measured = -35.0", ["measured", "positive"]),
    ] {
        let error = altered(from, to);
        assert!(words.iter().all(|word| error.contains(word)), "{to}: {error}");
    }
}

#[test]
fn a_preset_with_as_many_fitted_numbers_as_measurements_is_refused() {
    let text = include_str!("../presets/apt.toml").replace("use = \"fitted\"", "use = \"checked\"");
    let error = Preset::parse("overfitted", &text).expect_err("nothing is fitted").to_string();
    assert!(error.contains("7 numbers are fitted to 0 measurements"), "{error}");
}

#[test]
fn an_unknown_preset_is_refused_with_those_there_are() {
    let error = Preset::find("nowhere").expect_err("there is none").to_string();
    assert!(error.contains("nowhere") && error.contains("apt") && error.contains("susitna"), "{error}");
}
