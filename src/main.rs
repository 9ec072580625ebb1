//! The `isobit` program; everything is in the library.

fn main() {
    // Mesa's device-select layer writes to standard error where there is no desktop session.
    if std::env::var_os("XDG_RUNTIME_DIR").is_none()
        && std::env::var_os("NODEVICE_SELECT").is_none()
    {
        // SAFETY: a write to the environment is unsound only while another thread reads it; this is the
        // first statement of the program, and it has one thread.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
    std::process::exit(isobit::cli::main());
}
