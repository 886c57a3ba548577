//! NewSessionTicket messages (RFC 8446 section 4.6.1), with the early_data extension as QUIC defines it.

use std::time::Duration;

use super::{NEW_SESSION_TICKET, counted, extension, take};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSessionTicket {
    pub lifetime: Duration,
    pub age_add: u32,
    pub nonce: Vec<u8>,
    pub ticket: Vec<u8>,
    /// True if the server accepts 0-RTT data with this ticket (RFC 9001 section 4.6.1).
    pub early_data: bool,
}

impl NewSessionTicket {
    /// Parses the content of the message, without its handshake header.
    pub fn read(content: &[u8]) -> Option<Self> {
        let mut rest = content;
        let lifetime = u32::from_be_bytes(take(&mut rest, 4)?.try_into().ok()?);
        let age_add = u32::from_be_bytes(take(&mut rest, 4)?.try_into().ok()?);
        let nonce = counted::<1>(&mut rest)?.to_vec();
        let ticket = counted::<2>(&mut rest)?.to_vec();
        let mut extensions = counted::<2>(&mut rest)?;
        let mut early_data = false;
        while extensions.len() >= 2 {
            let (kind, content) = extension(&mut extensions)?;
            early_data |= kind == EARLY_DATA && content == EARLY_DATA_MAX;
        }
        Some(Self {
            lifetime: Duration::from_secs(lifetime.into()).min(LIFETIME_MAX),
            age_add,
            nonce,
            ticket,
            early_data,
        })
    }

    /// Encodes the message's content. `None` if a field is too long for its length field.
    pub fn write(&self) -> Option<Vec<u8>> {
        let seconds = self.lifetime.min(LIFETIME_MAX).as_secs();
        let mut extensions = Vec::new();
        if self.early_data {
            extensions.extend(EARLY_DATA.to_be_bytes());
            put_counted(&mut extensions, &EARLY_DATA_MAX)?;
        }
        let mut content = Vec::new();
        content.extend(u32::try_from(seconds).ok()?.to_be_bytes());
        content.extend(self.age_add.to_be_bytes());
        content.push(u8::try_from(self.nonce.len()).ok()?);
        content.extend_from_slice(&self.nonce);
        put_counted(&mut content, &self.ticket)?;
        put_counted(&mut content, &extensions)?;
        let mut message = u32::try_from(content.len()).ok()?.to_be_bytes().to_vec();
        message[0] = NEW_SESSION_TICKET;
        message.append(&mut content);
        Some(message)
    }
}

fn put_counted(target: &mut Vec<u8>, content: &[u8]) -> Option<()> {
    target.extend(u16::try_from(content.len()).ok()?.to_be_bytes());
    target.extend_from_slice(content);
    Some(())
}

/// The type of the early_data extension (RFC 8446 section 4.2).
const EARLY_DATA: u16 = 42;
/// max_early_data_size, for which QUIC allows no other value (RFC 9001 section 4.6.1).
const EARLY_DATA_MAX: [u8; 4] = [0xff; 4];
/// The maximum of ticket_lifetime: seven days (RFC 8446 section 4.6.1).
const LIFETIME_MAX: Duration = Duration::from_secs(7 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::message;

    #[test]
    fn a_written_ticket_is_read_back() {
        for early_data in [false, true] {
            let ticket = NewSessionTicket {
                lifetime: Duration::from_secs(7_200),
                age_add: 0x0102_0304,
                nonce: vec![1, 2],
                ticket: b"ticket".to_vec(),
                early_data,
            };
            let bytes = ticket.write().unwrap();
            let (kind, content, rest) = message(&bytes).unwrap();
            assert_eq!((kind, rest), (NEW_SESSION_TICKET, &[][..]));
            assert_eq!(NewSessionTicket::read(content), Some(ticket));
            for cut in 0..bytes.len() {
                assert_eq!(message(&bytes[..cut]), None);
            }
            for cut in 0..content.len() {
                assert_eq!(NewSessionTicket::read(&content[..cut]), None);
            }
        }
    }
}
