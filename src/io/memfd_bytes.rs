//! A file of single bytes that several processes share (a memfd): one process writes a byte, the others read it.
//!
//! A read is one `pread(2)`, so no process maps memory that another process changes. Not here: the meaning of a byte.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;

use crate::descriptor_limit_and_dup;

/// The readable side of a file of shared bytes: a duplicate of the file's descriptor.
#[derive(Debug)]
pub struct SharedBytes(File);

impl SharedBytes {
    /// Duplicates `fd`. Fails with `EBADF` if `fd` is not open.
    pub fn duplicate(fd: RawFd) -> io::Result<Self> {
        Ok(Self(descriptor_limit_and_dup::duplicate(fd)?.into()))
    }

    /// Returns the byte at `index`. Fails with `UnexpectedEof` if the file has no such byte.
    pub fn get(&self, index: u64) -> io::Result<u8> {
        let mut byte = [0];
        self.0.read_exact_at(&mut byte, index)?;
        Ok(byte[0])
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_byte_written_elsewhere_is_read_and_none_behind_the_end() {
        let path = std::env::temp_dir().join(format!("shared-bytes-{}", std::process::id()));
        let file = File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        let bytes = SharedBytes::duplicate(file.as_raw_fd()).unwrap();
        file.write_all_at(&[1, 2], 0).unwrap();
        assert_eq!(bytes.get(1).unwrap(), 2);
        file.write_all_at(&[3], 1).unwrap();
        drop(file);
        assert_eq!(bytes.get(1).unwrap(), 3);
        assert!(bytes.get(2).is_err());
        assert!(SharedBytes::duplicate(-1).is_err());
    }
}
