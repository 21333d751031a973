//! The program. All of it is in the library beside, which compiles while `issfa` does; a program has to wait for it.

fn main() -> std::process::ExitCode {
    issfa_cli::main()
}
