//! The `fipd` program; everything is in the library.

fn main() -> std::process::ExitCode {
    fipd::cli::main()
}
