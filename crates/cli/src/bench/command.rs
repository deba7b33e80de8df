//! The command line as a report shows it: without the files and the addresses of this machine.

/// Options whose values name files, and those whose values may name a machine.
const FILES: [&str; 3] = ["--json", "--html", "--history"];
const PLACES: [&str; 1] = ["--fabric"];

/// The arguments, the program's name first, on one line.
pub(super) fn of(arguments: impl IntoIterator<Item = String>) -> String {
    let mut words = vec!["locus".to_owned()];
    let mut of_last = None;
    for argument in arguments.into_iter().skip(1) {
        let (option, value) = match argument.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (Some(option), Some(value)),
            _ => (argument.starts_with("--").then_some(argument.as_str()), None),
        };
        match (of_last.take(), option.and_then(stand_in), value) {
            (Some(stand_in), _, _) => words.push(shown(stand_in, &argument).to_owned()),
            (None, Some(stand_in), Some(value)) => {
                words.push(format!("{}={}", option.unwrap_or_default(), shown(stand_in, value)));
            }
            (None, stand_in, _) => {
                of_last = stand_in;
                words.push(quoted(&argument));
            }
        }
    }
    words.join(" ")
}

/// What stands for the value of an option.
fn stand_in(option: &str) -> Option<&'static str> {
    let is = |options: &[&str]| options.contains(&option);
    if is(&FILES) {
        Some("FILE")
    } else if is(&PLACES) {
        Some("ADDR")
    } else {
        None
    }
}

/// `shm` alone names no place.
fn shown<'a>(stand_in: &'a str, value: &'a str) -> &'a str {
    if value == "shm" && stand_in == "ADDR" { value } else { stand_in }
}

fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=,.:/".contains(letter);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{word}'") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown_of(line: &str) -> String {
        of(line.split(' ').map(String::from))
    }

    #[test]
    fn files_and_addresses_are_left_out_and_the_rest_is_as_it_was_given() {
        let line = "/home/me/locus bench --design all --fabric rdma://10.0.0.1:7471 --html /home/me/r.html --json=x.json";
        assert_eq!(shown_of(line), "locus bench --design all --fabric ADDR --html FILE --json=FILE");
        assert_eq!(
            shown_of("./locus bench --fabric shm --window 1,16"),
            "locus bench --fabric shm --window 1,16"
        );
        assert_eq!(
            shown_of("locus bench --fabric=shm:/tmp/s --runs=3"),
            "locus bench --fabric=ADDR --runs=3"
        );
    }
}
