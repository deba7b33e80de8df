//! The processor: cores, and the instructions that checksums use.

use super::Finding;

/// Looks at the processor.
pub(super) fn look() -> Vec<Finding> {
    vec![cores(), checksums()]
}

fn cores() -> Finding {
    let name = "cores";
    match std::thread::available_parallelism() {
        Ok(cores) if cores.get() == 1 => {
            let what = "server and clients take turns on it, so that every request waits for a switch";
            Finding::bad(
                name,
                "1",
                what,
                "give this machine or container a second core; or use gets of pilaf alone",
            )
        }
        Ok(cores) => Finding::good(name, format!("{cores} (one per server core, one per busy client)")),
        Err(error) => Finding::good(name, format!("unknown: {error}")),
    }
}

#[cfg(target_arch = "x86_64")]
fn checksums() -> Finding {
    let name = "checksums";
    let has = [
        ("pclmulqdq", std::arch::is_x86_feature_detected!("pclmulqdq")),
        ("vpclmulqdq", std::arch::is_x86_feature_detected!("vpclmulqdq")),
        ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
    ];
    let list = |wanted| {
        has.iter().filter(|(_, there)| *there == wanted).map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    };
    let state = match list(false).as_str() {
        "" => format!("carry-less multiplication ({})", list(true)),
        missing => format!("carry-less multiplication: has {}; has not {missing}", list(true)),
    };
    if has[0].1 {
        return Finding::good(name, state);
    }
    let what = "checksums are computed by table, which is much slower";
    Finding::bad(
        name,
        "without carry-less multiplication (pclmulqdq)",
        what,
        "let the virtual machine see the host's processor",
    )
}

#[cfg(not(target_arch = "x86_64"))]
fn checksums() -> Finding {
    Finding::good("checksums", "chosen at run time for this architecture")
}
