//! The drafts of WebTransport over HTTP/3: how each is announced, and the choice of a common one.
//!
//! Both sides announce drafts in HTTP/3's SETTINGS (draft-ietf-webtrans-http3-02 section 6 and later). Each draft has
//! a setting of its own, so several can be announced, and the newest common draft is used. Browsers still use draft-02
//! by default.

use uringcore_h3::PeerSettings;
use uringcore_h3::settings::id as setting;

use super::Limits;

/// A group of versions of draft-ietf-webtrans-http3 that are compatible with each other. Newer ones compare as
/// greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Draft {
    /// Drafts 02 to 06.
    Two,
    /// Drafts 07 to 12.
    Seven,
    /// Drafts 13 and 14.
    Fourteen,
    /// Drafts 15 and 16.
    Fifteen,
}

impl Draft {
    pub const ALL: [Self; 4] = [Self::Two, Self::Seven, Self::Fourteen, Self::Fifteen];

    /// The number of the draft, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Two => "02",
            Self::Seven => "07",
            Self::Fourteen => "14",
            Self::Fifteen => "15",
        }
    }

    /// The identifier of the setting that announces the draft.
    fn setting(self) -> u64 {
        match self {
            Self::Two => setting::ENABLE_WEBTRANSPORT,
            Self::Seven => WEBTRANSPORT_MAX_SESSIONS,
            Self::Fourteen => WT_MAX_SESSIONS,
            Self::Fifteen => WT_ENABLED,
        }
    }

    /// True if the value of that setting is the limit of sessions at a time.
    fn counts_sessions(self) -> bool {
        matches!(self, Self::Seven | Self::Fourteen)
    }

    /// The value of `:protocol` in a session request.
    pub(super) fn token(self) -> &'static str {
        match self {
            Self::Fifteen => TOKEN_H3,
            _ => TOKEN,
        }
    }

    /// True if the draft has flow control of sessions.
    pub(super) fn has_flow_control(self) -> bool {
        self >= Self::Fourteen
    }

    /// Returns the newest draft of `ours` that the peer has announced too. `None` if there is no common draft.
    pub(super) fn common(ours: &[Self], peer: &PeerSettings) -> Option<Self> {
        let announced = |draft: &&Self| peer.get(draft.setting()).is_some_and(|value| value > 0);
        ours.iter().filter(announced).max().copied()
    }

    /// The peer's limit of sessions at a time, if this draft is used.
    pub(super) fn sessions_max(self, peer: &PeerSettings) -> u64 {
        match self.counts_sessions() {
            true => peer.get(self.setting()).unwrap_or(0),
            false => u64::MAX,
        }
    }
}

/// True if a server's WT_ENABLED is neither 0 nor 1. A client of draft-16 must treat that as an error.
pub(super) fn is_malformed(peer: &PeerSettings) -> bool {
    peer.get(WT_ENABLED).is_some_and(|value| value > 1)
}

/// True if this value of `:protocol` requests a session.
pub fn is_token(protocol: &[u8]) -> bool {
    protocol == TOKEN.as_bytes() || protocol == TOKEN_H3.as_bytes()
}

/// True if `protocol` is the value of `:protocol` in newer drafts. WebTransport over HTTP/2 uses another value.
pub(crate) fn names_h3(protocol: &[u8]) -> bool {
    protocol == TOKEN_H3.as_bytes()
}

/// The settings that announce the drafts in `limits`.
pub(super) fn offers(limits: &Limits) -> Vec<(u64, u64)> {
    let mut settings = Vec::new();
    for draft in &limits.drafts {
        let value = match draft.counts_sessions() {
            true => limits.sessions as u64,
            false => 1,
        };
        settings.push((draft.setting(), value));
    }
    if limits.drafts.contains(&Draft::Two) {
        settings.push((H3_DATAGRAM_DRAFT_04, 1));
    }
    if limits.drafts.iter().any(|draft| draft.has_flow_control()) {
        settings.extend([
            (INITIAL_MAX_DATA, limits.window),
            (INITIAL_MAX_STREAMS_UNI, limits.streams_uni),
            (INITIAL_MAX_STREAMS_BIDI, limits.streams_bidi),
        ]);
    }
    settings
}

/// True if the peer supports HTTP datagrams. It may announce them with the older setting of
/// draft-ietf-masque-h3-datagram-04.
pub(super) fn takes_datagrams(peer: &PeerSettings) -> bool {
    peer.is_enabled(setting::H3_DATAGRAM) || peer.is_enabled(H3_DATAGRAM_DRAFT_04)
}

/// The credit of each new session, from the peer's SETTINGS: the numbers of bidirectional and unidirectional streams,
/// and of bytes. `None` if the peer did not request flow control (draft section 5.1).
pub(super) fn initial_credit(draft: Draft, peer: &PeerSettings) -> Option<([u64; 2], u64)> {
    let initial = |id| peer.get(id).unwrap_or(0);
    let streams = [
        initial(INITIAL_MAX_STREAMS_BIDI),
        initial(INITIAL_MAX_STREAMS_UNI),
    ];
    let data = initial(INITIAL_MAX_DATA);
    // draft-14 section 5.1: a peer that accepts more than one session also requests flow control.
    let is_pooling = draft == Draft::Fourteen && draft.sessions_max(peer) > 1;
    let is_asked = is_pooling || data > 0 || streams != [0, 0];
    (draft.has_flow_control() && is_asked).then_some((streams, data))
}

const TOKEN: &str = "webtransport";
const TOKEN_H3: &str = "webtransport-h3";

/// The field with which a client announces draft-02 in its request (draft-02 section 6).
pub(super) const DRAFT_02_REQUEST: &[u8] = b"sec-webtransport-http3-draft02";
/// The field with which a server confirms draft-02 in its response, and its value (draft-02 section 6).
pub(super) const DRAFT_02_RESPONSE: &[u8] = b"sec-webtransport-http3-draft";
pub(super) const DRAFT_02_VALUE: &[u8] = b"draft02";

const WEBTRANSPORT_MAX_SESSIONS: u64 = 0xc671_706a;
const WT_MAX_SESSIONS: u64 = 0x14e9_cd29;
const WT_ENABLED: u64 = 0x2c7c_f000;
const INITIAL_MAX_DATA: u64 = 0x2b61;
const INITIAL_MAX_STREAMS_UNI: u64 = 0x2b64;
const INITIAL_MAX_STREAMS_BIDI: u64 = 0x2b65;
const H3_DATAGRAM_DRAFT_04: u64 = 0xff_d277;
