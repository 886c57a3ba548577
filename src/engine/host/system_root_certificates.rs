//! The root certificates that the operating system trusts. The protocol crates read no files; a host passes the
//! certificates to them.

use std::{ffi::OsString, sync::Mutex};

use uringcore_quic::tls::TrustStore;

/// Reads the operating system's certificate store, or the files that `SSL_CERT_FILE` and `SSL_CERT_DIR` name. The
/// error is a sentence.
///
/// Reading and parsing the store takes milliseconds, and hosts need it for each connection, so the result is cached
/// for each value of the two variables. No caller waits for the cache's lock: if a process was forked while another
/// thread held the lock, the child would wait forever. If the lock is taken, the store is read again.
pub fn system_roots() -> Result<TrustStore, String> {
    type Source = [Option<OsString>; 2];
    static CACHE: Mutex<Option<(Source, TrustStore)>> = Mutex::new(None);
    let source: Source = ["SSL_CERT_FILE", "SSL_CERT_DIR"].map(std::env::var_os);
    if let Ok(cache) = CACHE.try_lock()
        && let Some((_, store)) = cache.as_ref().filter(|(cached, _)| *cached == source)
    {
        return Ok(store.clone());
    }
    let loaded = rustls_native_certs::load_native_certs();
    let store = TrustStore::of(loaded.certs);
    if store.is_empty() {
        let errors: Vec<_> = loaded.errors.iter().map(ToString::to_string).collect();
        return Err(format!(
            "the system's certificate store is empty: {}",
            errors.join(", ")
        ));
    }
    if let Ok(mut cache) = CACHE.try_lock() {
        *cache = Some((source, store.clone()));
    }
    Ok(store)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn system_roots_honour_the_environment() {
        let name = format!("uringcore-roots-{}.pem", std::process::id());
        let path = std::env::temp_dir().join(name);
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        std::fs::write(&path, pem).unwrap();
        let child = || {
            let test = "host::system_root_certificates::tests::child_of_system_roots";
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", test, "--ignored", "--nocapture"])
                .env("SSL_CERT_FILE", &path)
                .env("SSL_CERT_DIR", "/nonexistent")
                .output()
                .unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let with_file = child();
        std::fs::remove_file(&path).unwrap();
        let without_file = child();
        assert!(with_file.contains("a store was read"), "{with_file}");
        let error = "the system's certificate store is empty";
        assert!(without_file.contains(error), "{without_file}");
    }

    #[test]
    #[ignore = "run by `system_roots_honour_the_environment`, which sets the environment"]
    fn child_of_system_roots() {
        match system_roots() {
            Ok(_) => println!("a store was read"),
            Err(error) => println!("{error}"),
        }
    }
}
