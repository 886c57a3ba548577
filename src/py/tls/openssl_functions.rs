//! The OpenSSL library that CPython's `ssl` module has loaded, for calls that bypass the module.
//!
//! This file finds the library's functions, describes the layout of `_ssl`'s objects, and checks both. `record_bio`
//! carries the bytes of an object that has passed the check; `ssl_object` falls back to the module for any other.
//!
//! `_ssl` has no API for the contents of its objects, so their layout is a table with an entry for each version
//! ([`SIZES`]). The table is used only if the version of the interpreter, the sizes of the classes and the version of
//! the library agree with it. Then the BIOs of the `SSL` that was found are compared with those of the memory BIOs.
//! The object is used only if they are the same. If anything differs, the reason is kept, and every connection uses
//! CPython's own calls.

use std::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use std::mem::transmute_copy;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// OpenSSL's opaque types `SSL`, `BIO` and `BIO_METHOD`. Only their addresses are used here.
#[repr(C)]
pub struct Ssl([u8; 0]);
#[repr(C)]
pub struct Bio([u8; 0]);
#[repr(C)]
pub struct BioMethod([u8; 0]);

pub type BioRead = unsafe extern "C" fn(*mut Bio, *mut c_char, c_int) -> c_int;
pub type BioWrite = unsafe extern "C" fn(*mut Bio, *const c_char, c_int) -> c_int;
pub type BioCtrl = unsafe extern "C" fn(*mut Bio, c_int, c_long, *mut c_void) -> c_long;
pub type BioDestroy = unsafe extern "C" fn(*mut Bio) -> c_int;

macro_rules! functions {
    ($($(#[$note:meta])* $name:ident = $symbol:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library. The field names are OpenSSL's names in lower case.
        #[derive(Debug)]
        pub struct Functions {
            $($(#[$note])* pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn find(library: &Library) -> Result<Self, String> {
                Ok(Self {
                    // SAFETY: a symbol of this name in an OpenSSL library has this type, in every version since 1.1.1,
                    // and a function pointer has the size of a data pointer on every platform with `dlsym`.
                    $($name: unsafe { transmute_copy(&library.symbol($symbol)?) },)*
                })
            }
        }
    };
}

functions! {
    ssl_read_ex = c"SSL_read_ex": fn(*mut Ssl, *mut c_void, usize, *mut usize) -> c_int;
    ssl_write_ex = c"SSL_write_ex": fn(*mut Ssl, *const c_void, usize, *mut usize) -> c_int;
    ssl_get_error = c"SSL_get_error": fn(*const Ssl, c_int) -> c_int;
    ssl_get_shutdown = c"SSL_get_shutdown": fn(*const Ssl) -> c_int;
    ssl_get_rbio = c"SSL_get_rbio": fn(*const Ssl) -> *mut Bio;
    ssl_get_wbio = c"SSL_get_wbio": fn(*const Ssl) -> *mut Bio;
    /// If both arguments are the same BIO, the function takes over only one reference to it.
    ssl_set_bio = c"SSL_set_bio": fn(*mut Ssl, *mut Bio, *mut Bio);
    bio_new = c"BIO_new": fn(*const BioMethod) -> *mut Bio;
    bio_set_data = c"BIO_set_data": fn(*mut Bio, *mut c_void);
    bio_get_data = c"BIO_get_data": fn(*mut Bio) -> *mut c_void;
    bio_set_init = c"BIO_set_init": fn(*mut Bio, c_int);
    bio_set_flags = c"BIO_set_flags": fn(*mut Bio, c_int);
    bio_clear_flags = c"BIO_clear_flags": fn(*mut Bio, c_int);
    bio_get_new_index = c"BIO_get_new_index": fn() -> c_int;
    bio_meth_new = c"BIO_meth_new": fn(c_int, *const c_char) -> *mut BioMethod;
    bio_meth_set_read = c"BIO_meth_set_read": fn(*mut BioMethod, BioRead) -> c_int;
    bio_meth_set_write = c"BIO_meth_set_write": fn(*mut BioMethod, BioWrite) -> c_int;
    bio_meth_set_ctrl = c"BIO_meth_set_ctrl": fn(*mut BioMethod, BioCtrl) -> c_int;
    bio_meth_set_destroy = c"BIO_meth_set_destroy": fn(*mut BioMethod, BioDestroy) -> c_int;
    err_peek_error = c"ERR_peek_error": fn() -> c_ulong;
    err_clear_error = c"ERR_clear_error": fn();
    openssl_version = c"OpenSSL_version": fn(c_int) -> *const c_char;
}

/// The library, after all checks have passed.
#[derive(Debug)]
pub struct OpenSsl {
    pub functions: Functions,
    socket_class: Py<PyType>,
    memory_class: Py<PyType>,
}

impl OpenSsl {
    /// The library. `Err` has the reason, as text for the user, for which CPython's own calls are used instead.
    pub fn get(py: Python<'_>) -> &'static Result<Self, String> {
        static FOUND: PyOnceLock<Result<OpenSsl, String>> = PyOnceLock::new();
        static IS_ANNOUNCED: AtomicBool = AtomicBool::new(false);
        let found = FOUND.get_or_init(py, || {
            Self::find(py).unwrap_or_else(|error| Err(error.to_string()))
        });
        // The line is logged after the lock is released, because a program's log handler may open a TLS connection, or
        // wait for one of another thread.
        if let Err(reason) = found
            && !IS_ANNOUNCED.swap(true, Ordering::Relaxed)
            && let Err(error) = announce(py, reason)
        {
            error.write_unraisable(py, None);
        }
        found
    }

    fn find(py: Python<'_>) -> PyResult<Result<Self, String>> {
        if is_switched_off(py)? {
            return Ok(Err(format!("{SWITCH} is 0")));
        }
        let module = py.import("_ssl")?;
        let class = |name: &str| -> PyResult<Bound<'_, PyType>> {
            Ok(module.getattr(name)?.cast_into::<PyType>()?)
        };
        let (socket_class, memory_class) = (class("_SSLSocket")?, class("MemoryBIO")?);
        let sizes = (
            socket_class.getattr("__basicsize__")?.extract()?,
            memory_class.getattr("__basicsize__")?.extract()?,
        );
        if let Err(reason) = check_layout(py, sizes) {
            return Ok(Err(reason));
        }
        // The address of any function of `_ssl` identifies the file of the module.
        let inside = module.getattr("RAND_status")?;
        let version: String = module.getattr("OPENSSL_VERSION")?.extract()?;
        Ok(Library::behind(&inside).and_then(|library| {
            let functions = Functions::find(&library)?;
            check_version(&functions, &version)?;
            Ok(Self {
                functions,
                socket_class: socket_class.unbind(),
                memory_class: memory_class.unbind(),
            })
        }))
    }

    /// The `SSL` of a `_SSLSocket` that was made with these two memory BIOs and has not been used yet.
    pub fn ssl_of(
        &self,
        core: &Bound<'_, PyAny>,
        incoming: &Bound<'_, PyAny>,
        outgoing: &Bound<'_, PyAny>,
    ) -> Option<NonNull<Ssl>> {
        if !core.get_type().is(&self.socket_class)
            || !incoming.get_type().is(&self.memory_class)
            || !outgoing.get_type().is(&self.memory_class)
        {
            return None;
        }
        // SAFETY: the objects are alive and of the classes whose sizes `find` compared with those of the
        // versions that have these fields there, within the object.
        let (ssl, input, output) = unsafe {
            (
                field::<Ssl>(core, SSL_OFFSET),
                field::<Bio>(incoming, BIO_OFFSET),
                field::<Bio>(outgoing, BIO_OFFSET),
            )
        };
        let (ssl, input, output) = (ssl?, input?, output?);
        // SAFETY: by the layout that was compared, `ssl` is a live SSL. Both functions only return a field.
        let (reads, writes) = unsafe {
            (
                (self.functions.ssl_get_rbio)(ssl.as_ptr()),
                (self.functions.ssl_get_wbio)(ssl.as_ptr()),
            )
        };
        let is_as_made = input != output && reads == input.as_ptr() && writes == output.as_ptr();
        is_as_made.then_some(ssl)
    }
}

/// A pointer field of an object of the interpreter. `None` for a null pointer.
///
/// # Safety
///
/// The object has a pointer at this offset.
unsafe fn field<T>(object: &Bound<'_, PyAny>, offset: usize) -> Option<NonNull<T>> {
    // SAFETY: the caller guarantees the field, and fields of C structures are aligned.
    unsafe {
        object
            .as_ptr()
            .byte_add(offset)
            .cast::<Option<NonNull<T>>>()
            .read()
    }
}

fn announce(py: Python<'_>, reason: &str) -> PyResult<()> {
    let logger = py.import("asyncio.log")?.getattr("logger")?;
    let text = "TLS uses CPython's ssl module instead of direct calls, which is slower: %s";
    logger.call_method1("info", (text, reason)).map(drop)
}

fn is_switched_off(py: Python<'_>) -> PyResult<bool> {
    let environment = py.import("os")?.getattr("environ")?;
    let value: Option<String> = environment.call_method1("get", (SWITCH,))?.extract()?;
    Ok(value.as_deref() == Some("0"))
}

fn check_layout(py: Python<'_>, sizes: (usize, usize)) -> Result<(), String> {
    if cfg!(Py_GIL_DISABLED) {
        // CPython locks these objects by critical sections, which code outside of CPython's module cannot enter. So
        // another thread may be using this object.
        return Err("a free-threaded interpreter locks these objects itself".to_owned());
    }
    let version = py.version_info();
    let name = format!(
        "CPython {}.{}.{}",
        version.major, version.minor, version.patch
    );
    // CPython 3.13.6 locks each SSL object during its calls. No other version does.
    let locks = (version.major, version.minor, version.patch) == (3, 13, 6);
    let known = SIZES.iter().any(|&(minor, socket_bytes)| {
        (version.major, version.minor) == (3, minor) && sizes == (socket_bytes, MEMORY_BIO_BYTES)
    });
    match known && !locks {
        true => Ok(()),
        false => Err(format!(
            "the layout of {name}'s SSL objects ({} and {} bytes) is not known",
            sizes.0, sizes.1
        )),
    }
}

fn check_version(functions: &Functions, expected: &str) -> Result<(), String> {
    // SAFETY: the function returns a constant string for every number.
    let text = unsafe { CStr::from_ptr((functions.openssl_version)(OPENSSL_VERSION)) };
    let text = text.to_string_lossy();
    // Only OpenSSL itself is accepted: the BIOs of LibreSSL, AWS-LC and BoringSSL differ.
    if text == expected && text.starts_with("OpenSSL ") {
        Ok(())
    } else {
        Err(format!(
            "the library found is {text}, and CPython uses {expected}"
        ))
    }
}

/// A shared object that is already loaded, with the libraries that it was linked with.
struct Library(NonNull<c_void>);

impl Library {
    /// Finds the library that contains this C function of Python's.
    fn behind(function: &Bound<'_, PyAny>) -> Result<Self, String> {
        // SAFETY: the check precedes the call, which only returns a field of such an object.
        let address = unsafe {
            match ffi::PyCFunction_Check(function.as_ptr()) {
                0 => None,
                _ => ffi::PyCFunction_GetFunction(function.as_ptr()),
            }
        };
        let address = address.ok_or("_ssl.RAND_status is not a C function")?;
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: the call fills the structure, and it accepts any address.
        let status = unsafe { libc::dladdr(address as *const c_void, info.as_mut_ptr()) };
        // SAFETY: all zeros is a valid value of it, even if the call failed.
        let name = unsafe { info.assume_init() }.dli_fname;
        if status == 0 || name.is_null() {
            return Err("the file of CPython's _ssl module was not found".to_owned());
        }
        // SAFETY: `dladdr` gave a string that lives as long as the object is loaded. With this flag nothing
        // is loaded and no code runs.
        let handle = unsafe { libc::dlopen(name, libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        NonNull::new(handle)
            .map(Self)
            .ok_or_else(|| "CPython's _ssl module is linked into the executable".to_owned())
    }

    /// The address of a symbol of this object or of the libraries that it was linked with. `dlsym` searches no others.
    fn symbol(&self, name: &CStr) -> Result<NonNull<c_void>, String> {
        // SAFETY: a handle that `dlopen` returned and no code closes, and a string that ends in a null byte.
        let found = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        NonNull::new(found).ok_or_else(|| {
            let name = name.to_string_lossy();
            format!("{name} was not found in the OpenSSL that CPython uses")
        })
    }
}

/// The reason for which TLS goes through the `ssl` module in this process. None if it bypasses the module. The check
/// runs at the first call of this function or at the first TLS connection.
#[pyfunction]
pub fn tls_fallback_reason(py: Python<'_>) -> Option<&'static str> {
    OpenSsl::get(py).as_ref().err().map(String::as_str)
}

/// The environment variable that makes TLS use CPython's own calls.
const SWITCH: &str = "URINGCORE_DIRECT_TLS";
/// The layout of `PySSLSocket`: `(minor version of CPython, size in bytes)`. In all these versions it begins with the
/// object's header, a reference and the `SSL` pointer. Later fields differ: three for an exception, one since 3.12; a
/// mutex since 3.13.6; the last error, gone in 3.15.
const SIZES: &[(u8, usize)] = &[
    (10, 96),
    (11, 96),
    (12, 80),
    (13, 80),
    (13, 88),
    (14, 88),
    (15, 72),
];
const SSL_OFFSET: usize = size_of::<ffi::PyObject>() + size_of::<usize>();
/// The size of `PySSLMemoryBIO`: the object's header, the BIO pointer and a number.
const MEMORY_BIO_BYTES: usize = size_of::<ffi::PyObject>() + 2 * size_of::<usize>();
const BIO_OFFSET: usize = size_of::<ffi::PyObject>();
/// The argument with which `OpenSSL_version` returns the text of `ssl.OPENSSL_VERSION`.
const OPENSSL_VERSION: c_int = 0;
