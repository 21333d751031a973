//! How much memory there is, asked before it is needed.

use crate::error::{Error, Result};

/// Bytes that can be had without swapping; `None` where the system does not say.
pub fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Refuses what cannot fit, naming both figures.
pub fn check(what: &str, needed: u64) -> Result<()> {
    match available() {
        Some(available) if needed > available => {
            Err(Error::TooLittleMemory { what: what.to_string(), needed, available })
        }
        _ => Ok(()),
    }
}
