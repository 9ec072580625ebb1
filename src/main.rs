//! The `isobit` program; everything is in the library.

fn main() {
    std::process::exit(isobit::cli::main());
}
