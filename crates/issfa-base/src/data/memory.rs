//! How much memory there is, asked before it is needed.

use crate::error::{Error, Result};

/// Bytes that can be had without swapping and within the limit of a container or job; `None` where the system does not say.
pub fn available() -> Option<u64> {
    [free_memory(), group_limit(), room_of_process()].into_iter().flatten().min()
}

/// What is left of the memory that this process may address (`ulimit -v`).
fn room_of_process() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit: u64 = line.split_whitespace().next()?.parse().ok()?;
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    let kilobytes: u64 = size.split_whitespace().next()?.parse().ok()?;
    Some(limit.saturating_sub(1024 * kilobytes))
}

/// Room for so many numbers, all zero: an error where there is none.
pub fn zeros<T: Clone + Default>(what: &str, n: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    reserve(what, &mut values, n)?;
    values.resize(n, T::default());
    Ok(values)
}

/// Makes room for so many more.
pub fn reserve<T>(what: &str, values: &mut Vec<T>, n: usize) -> Result<()> {
    values.try_reserve_exact(n).map_err(|_| no_room(what, n.saturating_mul(size_of::<T>())))
}

/// The error of memory that the system refuses.
pub fn no_room(what: &str, n_bytes: usize) -> Error {
    Error::NoRoom { what: what.to_string(), n_bytes: n_bytes as u64 }
}

fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// The least limit of the control groups that this process is in (both versions), as schedulers and containers set it.
fn group_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    limit_files(&groups).iter().filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok()).min()
}

/// The files that may hold a limit: `0::/path` is version 2, `n:memory:/path` version 1; a limit above counts too.
fn limit_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let path = path.trim_end_matches('/');
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            list if list.split(',').any(|one| one == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]).filter(|(end, _)| *end > 0) {
            files.push(format!("{root}{}/{name}", &path[..end]));
        }
        files.push(format!("{root}/{name}"));
    }
    files
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_looked_for_in_every_group() {
        let files = limit_files("5:cpu,memory:/jobs/12\n4:cpu:/x\n0::/user/a\n");
        assert_eq!(
            files,
            [
                "/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/jobs/12/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "/sys/fs/cgroup/user/memory.max",
                "/sys/fs/cgroup/user/a/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
        assert_eq!(limit_files("0::/\n"), ["/sys/fs/cgroup/memory.max"]);
    }

    #[test]
    fn more_than_there_is_is_refused_with_both_figures() {
        if available().is_some() {
            let error = check("everything", u64::MAX).unwrap_err().to_string();
            assert!(error.contains("everything needs about") && error.contains("are available"), "{error}");
        }
        assert!(check("nothing", 0).is_ok());
    }
}
