//! [`RecordBio`]: our own BIO for an `SSL` object. OpenSSL reads the peer's bytes from it and writes its records to
//! it.
//!
//! OpenSSL's memory BIO fills new memory with zeros, and CPython's `MemoryBIO` makes one more copy in each direction.
//! Here the peer's bytes are copied once, into OpenSSL, and records are copied once, out of it. `ssl_object` decides
//! which `SSL` gets such a BIO; `decryption` and `encryption` process the bytes.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use uringcore_engine::ByteQueue;

use super::openssl_functions::{Bio, BioMethod, Functions, OpenSsl, Ssl};

/// The bytes of one connection in both directions.
///
/// **Invariant.** The lock is held briefly, never while OpenSSL or Python code runs. It is necessary because CPython
/// releases the interpreter lock around its own calls (handshake, shutdown, any use of the `ssl.SSLObject` by a
/// program), so a BIO may be in use on one thread while another one reads the number of waiting bytes.
#[derive(Default)]
pub struct RecordBio(Mutex<Buffers>);

#[derive(Default)]
struct Buffers {
    incoming: ByteQueue,
    /// Bytes in borrowed memory that follow those of `incoming`.
    lent: Option<Lent>,
    outgoing: Vec<u8>,
}

/// The bytes of a loan that OpenSSL has not read yet.
struct Lent {
    start: *const u8,
    len: usize,
}

// SAFETY: the memory is valid, and no code writes it, while the [`Loan`] exists. The drop of the loan removes this
// value. Any thread may read the memory until then.
unsafe impl Send for Lent {}

/// Lends bytes of the peer to OpenSSL, which reads them where they are. When this object is dropped, the bytes that are
/// still unread are copied.
pub struct Loan<'a> {
    record_bio: &'a RecordBio,
    _bytes: &'a [u8],
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut buffers = self.record_bio.buffers();
        buffers.keep_lent();
        buffers.lent = None;
    }
}

impl RecordBio {
    /// Replaces the BIOs of `ssl` by a new one. If there is no memory, returns `None` and changes nothing.
    ///
    /// # Safety
    ///
    /// The `SSL` is alive, and no other thread uses it.
    pub unsafe fn under(openssl: &'static OpenSsl, ssl: NonNull<Ssl>) -> Option<Arc<Self>> {
        let methods = Methods::of(openssl)?;
        let functions = &openssl.functions;
        let record_bio = Arc::new(Self::default());
        // SAFETY: the table of methods lives for ever. From here on the BIO owns a reference to `record_bio`, which
        // `destroy` drops. The call takes over the one reference to the BIO, and drops those to the old ones.
        unsafe {
            let bio = NonNull::new((functions.bio_new)(methods.table.as_ptr()))?.as_ptr();
            (functions.bio_set_data)(
                bio,
                Arc::into_raw(Arc::clone(&record_bio)).cast_mut().cast(),
            );
            (functions.bio_set_init)(bio, 1);
            (functions.ssl_set_bio)(ssl.as_ptr(), bio, bio);
        }
        Some(record_bio)
    }

    /// Adds a copy of bytes of the peer, for OpenSSL to read.
    pub fn feed(&self, data: &[u8]) {
        let mut buffers = self.buffers();
        // The new bytes come after the lent ones, so the lent ones are copied into `incoming` first.
        buffers.keep_lent();
        buffers.incoming.push(data);
    }

    /// Lends bytes of the peer to OpenSSL until the returned loan is dropped. Panics if there is a loan already.
    pub fn lend<'a>(&'a self, data: &'a [u8]) -> Loan<'a> {
        let mut buffers = self.buffers();
        assert!(buffers.lent.is_none(), "a second loan");
        buffers.lent = Some(Lent {
            start: data.as_ptr(),
            len: data.len(),
        });
        drop(buffers);
        Loan {
            record_bio: self,
            _bytes: data,
        }
    }

    /// The number of the peer's bytes that OpenSSL has not read yet.
    pub fn incoming_bytes(&self) -> usize {
        let buffers = self.buffers();
        let lent = buffers.lent.as_ref().map_or(0, |lent| lent.len);
        buffers.incoming.len() + lent
    }

    pub fn outgoing_bytes(&self) -> usize {
        self.buffers().outgoing.len()
    }

    /// Reserves memory for the records of a write of `bytes` bytes.
    pub fn expect_write(&self, bytes: usize) {
        let records = bytes / RECORD_BYTES_MAX + 1;
        self.buffers()
            .outgoing
            .reserve(bytes + records * RECORD_OVERHEAD_BYTES);
    }

    /// Takes the records for the peer.
    pub fn take_outgoing(&self) -> Vec<u8> {
        std::mem::take(&mut self.buffers().outgoing)
    }

    /// Takes back memory that `take_outgoing` has returned, for the next records.
    pub fn reuse(&self, mut spent: Vec<u8>) {
        spent.clear();
        let mut buffers = self.buffers();
        if buffers.outgoing.capacity() == 0 && spent.capacity() <= KEPT_BYTES_MAX {
            buffers.outgoing = spent;
        }
    }

    fn buffers(&self) -> MutexGuard<'_, Buffers> {
        // A poisoned lock is harmless: no code here panics while it holds the lock, except after a failed allocation.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffers {
    /// Copies the unread bytes of a loan, so that the buffers no longer refer to its memory.
    fn keep_lent(&mut self) {
        if let Some(lent) = &mut self.lent {
            let (start, len) = (lent.start, std::mem::take(&mut lent.len));
            // SAFETY: the bytes are borrowed until the loan ends, which removes `lent`.
            let rest = unsafe { std::slice::from_raw_parts(start, len) };
            self.incoming.push(rest);
        }
    }

    /// Moves up to `size` bytes of the peer to `target`.
    ///
    /// # Safety
    ///
    /// `target` has room for `size` bytes, and no other code uses that memory.
    unsafe fn read(&mut self, target: *mut u8, size: usize) -> usize {
        let rest = self.incoming.bytes();
        if rest.is_empty()
            && let Some(lent) = &mut self.lent
        {
            let count = lent.len.min(size);
            // SAFETY: the caller guarantees the memory of `target`. The loan's memory is valid, and `count` stays
            // within it.
            unsafe {
                std::ptr::copy_nonoverlapping(lent.start, target, count);
                lent.start = lent.start.add(count);
            }
            lent.len -= count;
            return count;
        }
        let count = rest.len().min(size);
        // SAFETY: the caller guarantees the memory of `target`. `incoming` belongs to this object alone.
        unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), target, count) };
        self.incoming.advance(count);
        count
    }
}

/// The table of the functions of a [`RecordBio`] that OpenSSL calls, and the OpenSSL functions that these need.
struct Methods {
    table: NonNull<BioMethod>,
    functions: &'static Functions,
}

// SAFETY: OpenSSL only reads the table once it is filled, on any thread.
unsafe impl Send for Methods {}
// SAFETY: OpenSSL only reads the table once it is filled, on any thread.
unsafe impl Sync for Methods {}

static METHODS: OnceLock<Option<Methods>> = OnceLock::new();

impl Methods {
    fn of(openssl: &'static OpenSsl) -> Option<&'static Self> {
        METHODS
            .get_or_init(|| Self::new(&openssl.functions))
            .as_ref()
    }

    fn new(functions: &'static Functions) -> Option<Self> {
        // SAFETY: the name is a constant, the table is new, and the four functions have the types that OpenSSL
        // documents (BIO_meth_new(3)).
        unsafe {
            let kind = (functions.bio_get_new_index)() | BIO_TYPE_SOURCE_SINK;
            let table = NonNull::new((functions.bio_meth_new)(kind, c"uringcore".as_ptr()))?;
            let raw = table.as_ptr();
            let is_set = (functions.bio_meth_set_read)(raw, read) == 1
                && (functions.bio_meth_set_write)(raw, write) == 1
                && (functions.bio_meth_set_ctrl)(raw, ctrl) == 1
                && (functions.bio_meth_set_destroy)(raw, destroy) == 1;
            // If a function could not be set, for want of memory, the table is leaked. This happens at most once.
            is_set.then_some(Self { table, functions })
        }
    }
}

/// OpenSSL's functions, and the [`RecordBio`] of `bio`. `None` if the BIO has none.
///
/// # Safety
///
/// OpenSSL has called with this BIO, which is one of ours, and the `RecordBio` is not used after that call.
unsafe fn parts<'a>(bio: *mut Bio) -> Option<(&'static Functions, &'a RecordBio)> {
    let functions = METHODS.get()?.as_ref()?.functions;
    // SAFETY: the data of a BIO of ours is NULL or a reference to a `RecordBio` that the BIO owns.
    unsafe {
        let record_bio = (functions.bio_get_data)(bio).cast::<RecordBio>();
        Some((functions, record_bio.as_ref()?))
    }
}

/// BIO_read. Sets the retry flag if there are no bytes, as a memory BIO does.
unsafe extern "C" fn read(bio: *mut Bio, target: *mut c_char, size: c_int) -> c_int {
    // SAFETY: OpenSSL calls this with the BIO, and with memory of this size to fill.
    unsafe {
        let Some((functions, record_bio)) = parts(bio) else {
            return -1;
        };
        (functions.bio_clear_flags)(bio, BIO_FLAGS_RETRIES);
        let size = usize::try_from(size).unwrap_or(0);
        if target.is_null() || size == 0 {
            return 0;
        }
        let count = record_bio.buffers().read(target.cast(), size);
        if count == 0 {
            (functions.bio_set_flags)(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
            return -1;
        }
        // The count is at most `size`.
        count as c_int
    }
}

/// BIO_write. Always accepts all bytes.
unsafe extern "C" fn write(bio: *mut Bio, data: *const c_char, size: c_int) -> c_int {
    // SAFETY: OpenSSL calls this with the BIO, and with `size` bytes.
    unsafe {
        let Some((functions, record_bio)) = parts(bio) else {
            return -1;
        };
        (functions.bio_clear_flags)(bio, BIO_FLAGS_RETRIES);
        let length = usize::try_from(size).unwrap_or(0);
        if data.is_null() || length == 0 {
            return 0;
        }
        let data = std::slice::from_raw_parts(data.cast(), length);
        record_bio.buffers().outgoing.extend_from_slice(data);
        size
    }
}

/// BIO_ctrl. Answers the requests of an SSL as a memory BIO does.
unsafe extern "C" fn ctrl(bio: *mut Bio, command: c_int, _: c_long, _: *mut c_void) -> c_long {
    // SAFETY: OpenSSL calls this with the BIO.
    let Some((_, record_bio)) = (unsafe { parts(bio) }) else {
        return 0;
    };
    match command {
        BIO_CTRL_FLUSH | BIO_CTRL_DUP => 1,
        BIO_CTRL_EOF => c_long::from(record_bio.incoming_bytes() == 0),
        BIO_CTRL_PENDING => c_long::try_from(record_bio.incoming_bytes()).unwrap_or(c_long::MAX),
        _ => 0,
    }
}

/// Frees the [`RecordBio`] when the last reference to the BIO is dropped.
unsafe extern "C" fn destroy(bio: *mut Bio) -> c_int {
    let Some(Some(methods)) = METHODS.get() else {
        return 0;
    };
    // SAFETY: OpenSSL calls this once for a BIO of ours. Its data, if any, is the reference that `under` gave it.
    unsafe {
        let record_bio = (methods.functions.bio_get_data)(bio).cast::<RecordBio>();
        if !record_bio.is_null() {
            (methods.functions.bio_set_data)(bio, std::ptr::null_mut());
            drop(Arc::from_raw(record_bio));
        }
    }
    1
}

/// The longest plaintext of a record in bytes (RFC 8446 section 5.1).
const RECORD_BYTES_MAX: usize = 1 << 14;
/// An upper bound, in bytes, of what a TLS cipher adds to a record: header, explicit nonce, MAC, padding, content
/// type.
const RECORD_OVERHEAD_BYTES: usize = 128;
/// The largest memory in bytes that a connection keeps for its next records.
const KEPT_BYTES_MAX: usize = 32 * 1024;

// From openssl/bio.h. These values are the same in all versions since 1.1.1.
const BIO_TYPE_SOURCE_SINK: c_int = 0x0400;
const BIO_FLAGS_READ: c_int = 0x01;
const BIO_FLAGS_SHOULD_RETRY: c_int = 0x08;
/// The flags for read, write, special, and retry.
const BIO_FLAGS_RETRIES: c_int = 0x0F;
const BIO_CTRL_EOF: c_int = 2;
const BIO_CTRL_PENDING: c_int = 10;
const BIO_CTRL_FLUSH: c_int = 11;
const BIO_CTRL_DUP: c_int = 12;
