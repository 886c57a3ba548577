//! Passes two settings to the build of the crate: the kind of interpreter as `cfg` (`Py_GIL_DISABLED` for a
//! free-threaded one), and the order of code sections in the extension module (`startup_code_order.ld`) to the linker.
//!
//! With the order of `startup_code_order.ld`, which only LLD supports, 0.35 MiB of code are resident after import
//! instead of 1.4.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=startup_code_order.ld");
    let mut order = OsString::from("-T");
    order.push(Path::new(&variable("CARGO_MANIFEST_DIR")).join("startup_code_order.ld"));
    if let (true, Some(order)) = (links_with(&order), order.to_str()) {
        println!("cargo::rustc-link-arg-cdylib={order}");
    }
}

/// True if the linker accepts `argument` and is LLD, the default on x86-64. GNU ld would make a second section with
/// this name; gold and mold do not support such scripts. With those linkers the compiler's order stays, which only
/// costs memory.
fn links_with(argument: &OsString) -> bool {
    let folder = PathBuf::from(variable("OUT_DIR"));
    let source = folder.join("probe.rs");
    fs::write(
        &source,
        "#[unsafe(no_mangle)]\npub extern \"C\" fn probe() {}\n",
    )
    .expect("OUT_DIR");
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(["--edition=2024", "--crate-type=cdylib", "--target"]);
    rustc
        .arg(variable("TARGET"))
        .arg("-o")
        .arg(folder.join("probe.so"));
    let mut link = OsString::from("-Clink-arg=");
    link.push(argument);
    rustc.arg(link).arg(source);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("-Clinker=");
        option.push(linker);
        rustc.arg(option);
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    let done = rustc.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let linked = done.is_ok_and(|status| status.success());
    // Linkers and compilers write their names into the section .comment of an output file.
    let signature = b"Linker: LLD";
    linked
        && fs::read(folder.join("probe.so"))
            .is_ok_and(|bytes| bytes.windows(signature.len()).any(|part| part == signature))
}

fn variable(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| panic!("Cargo sets {name}"))
}
