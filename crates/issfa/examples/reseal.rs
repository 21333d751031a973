//! Makes the checksums of run folders anew: `reseal RUN...`, for bench/faults_stored.py.

fn main() -> issfa::Result<()> {
    std::env::args_os().skip(1).try_for_each(|folder| issfa::run::reseal::reseal(folder.as_ref()))
}
