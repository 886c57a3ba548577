//! Transport parameters as a sequence of identifiers and values (RFC 9000 section 18). Not here: the meaning of each
//! parameter.

use super::varint;

/// Iterates over (identifier, value) pairs. A malformed parameter ends the iteration.
pub struct Parameters<'a>(&'a [u8]);

impl<'a> Parameters<'a> {
    #[inline]
    pub fn of(encoded: &'a [u8]) -> Self {
        Self(encoded)
    }

    /// True if the input ends inside a parameter, so that bytes are left after the iteration.
    #[inline]
    pub fn is_cut_short(&self) -> bool {
        !self.0.is_empty()
    }
}

impl<'a> Iterator for Parameters<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let mut rest = self.0;
        let id = varint::take(&mut rest)?;
        let length = usize::try_from(varint::take(&mut rest)?).ok()?;
        let value;
        (value, self.0) = rest.split_at_checked(length)?;
        Some((id, value))
    }
}
