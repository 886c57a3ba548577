//! The capabilities of the peer: its SETTINGS, and its support for DATAGRAM frames of QUIC.

use super::error::{Code, ConnectionError};
use super::settings::{PeerSettings, id as setting};

#[derive(Debug, Default)]
pub(super) struct PeerCapabilities {
    settings: Option<PeerSettings>,
    /// True if the peer's transport parameters allow DATAGRAM frames; `None` while the host has not set it.
    quic_datagrams: Option<bool>,
}

impl PeerCapabilities {
    pub fn set_quic_datagrams(&mut self, enabled: bool) {
        self.quic_datagrams = Some(enabled);
    }

    /// The SETTINGS of the peer. `None` until they have arrived.
    pub fn settings(&self) -> Option<&PeerSettings> {
        self.settings.as_ref()
    }

    pub fn set_settings(&mut self, settings: PeerSettings) {
        self.settings = Some(settings);
    }

    /// The value of a setting; `None` if the peer has not sent it.
    pub fn setting(&self, identifier: u64) -> Option<u64> {
        self.settings.as_ref()?.get(identifier)
    }

    pub fn is_enabled(&self, identifier: u64) -> bool {
        let settings = self.settings.as_ref();
        settings.is_some_and(|settings| settings.is_enabled(identifier))
    }

    /// Checks the values of received SETTINGS.
    pub fn check_settings(&self, settings: &PeerSettings) -> Result<(), ConnectionError> {
        settings.validate_values()?;
        if settings.is_enabled(setting::H3_DATAGRAM) && self.quic_datagrams == Some(false) {
            // RFC 9297 section 2.1.1: H3_DATAGRAM requires QUIC DATAGRAM frames.
            return Err(ConnectionError::new(
                Code::H3_SETTINGS_ERROR,
                "H3_DATAGRAM requires the max_datagram_frame_size transport parameter",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_setting_is_enabled_before_settings_arrive() {
        let mut peer = PeerCapabilities::default();
        assert_eq!(peer.setting(setting::H3_DATAGRAM), None);
        assert!(!peer.is_enabled(setting::H3_DATAGRAM));
        peer.set_settings(PeerSettings::from_pairs(vec![(setting::H3_DATAGRAM, 1)]));
        assert_eq!(peer.setting(setting::H3_DATAGRAM), Some(1));
        assert!(peer.is_enabled(setting::H3_DATAGRAM));
        assert_eq!(
            peer.settings().unwrap().pairs(),
            [(setting::H3_DATAGRAM, 1)]
        );
    }

    #[test]
    fn http_datagrams_require_quic_datagrams() {
        let settings = PeerSettings::from_pairs(vec![(setting::H3_DATAGRAM, 1)]);
        let mut peer = PeerCapabilities::default();
        peer.check_settings(&settings).unwrap();
        peer.set_quic_datagrams(true);
        peer.check_settings(&settings).unwrap();
        peer.set_quic_datagrams(false);
        let error = peer.check_settings(&settings).unwrap_err();
        assert_eq!(error.code, Code::H3_SETTINGS_ERROR);
    }
}
