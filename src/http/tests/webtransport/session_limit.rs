//! The number of sessions that a client requests on one connection.

use super::*;

#[test]
fn a_client_requests_no_more_sessions_than_the_server_allows() {
    for (draft, credit, max) in [
        (Draft::Seven, 0, 2),
        (Draft::Fourteen, 10, 2),
        // Without flow control of sessions the limit is one, whatever the other settings are.
        (Draft::Fifteen, 0, 1),
    ] {
        let limits = Limits {
            sessions: 2,
            drafts: vec![draft],
            window: credit,
            streams_bidi: credit,
            streams_uni: credit,
            ..Limits::default()
        };
        let mut site = Site::with(Limits::default(), limits);
        let sessions: Vec<u64> = (0..max).map(|_| site.connect(request()).unwrap()).collect();
        assert_eq!(site.connect(request()), Err(Error::TooMany { max }));
        site.run();
        for session in &sessions {
            site.accept(*session, &[], None).unwrap();
        }
        site.run();
        assert_eq!(site.connect(request()), Err(Error::TooMany { max }));
        // After a session has ended another one may be requested.
        site.close(Ours, sessions[0], 0, "");
        site.run();
        let next = site.connect(request()).unwrap();
        site.run();
        site.accept(next, &[], None).unwrap();
    }
}

#[test]
fn the_clients_own_limit_does_not_bound_its_requests() {
    let few = Limits {
        sessions: 1,
        ..Limits::default()
    };
    let mut site = Site::with(few, Limits::default());
    let sessions = [0; 5].map(|_| site.connect(request()).unwrap());
    site.run();
    for session in sessions {
        site.accept(session, &[], None).unwrap();
    }
    site.run();
    assert_eq!(site.on(Ours, |handle, _, _| handle.sessions()), 5);
}

#[test]
fn a_rejected_session_is_reported() {
    let limits = Limits {
        sessions: 1,
        drafts: vec![Draft::Fifteen],
        ..Limits::default()
    };
    let mut site = Site::with(Limits::default(), limits);
    let first = site.open();
    // Draft-02 cannot announce a limit of sessions.
    site.connect(request()).unwrap();
    site.run();
    let reported = site.take(Ours);
    let (_, reason, is_clean) = ended(&reported).unwrap();
    assert!(reason.contains("accepts no further session"), "{reason}");
    assert!(!is_clean);
    all_but_the_end(&mut site, first);
}
