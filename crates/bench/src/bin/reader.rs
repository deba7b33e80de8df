//! The second process of the LMDB peer, for programs that cannot play that part themselves (test harnesses).
#![forbid(unsafe_code)]

fn main() {
    locus_bench::become_reader_if_asked();
    eprintln!("locus-bench-reader is started by benchmarks; run `locus bench --peers lmdb`");
    std::process::exit(2);
}
