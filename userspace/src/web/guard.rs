//! Who may ask: a request must name this server as its host, must not come from another site's page, and must know the
//! token that only the printed address has.
//!
//! | what is tried | why it fails |
//! |---|---|
//! | another program or user of the machine | does not know the token |
//! | a page of another site that asks this port | `Origin` or `Sec-Fetch-Site` tells, and it does not know the token |
//! | a name of another site that was pointed at 127.0.0.1 | the `Host` is not ours |
//! | a link or a frame in another page | the token; framing is forbidden by the policy of each answer |
//!
//! Pure functions.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read as _};

/// What every answer says to the browser: nothing from elsewhere is loaded, run or told.
pub(super) const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// Headers of a request that the decision rests on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asker<'a> {
    pub(super) host: Option<&'a str>,
    /// Of the request's line, where that names a whole address, as it does for a proxy.
    pub(super) authority: Option<&'a str>,
    pub(super) origin: Option<&'a str>,
    pub(super) fetch_site: Option<&'a str>,
}

/// 16 random bytes as hexadecimal digits.
pub(super) fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::with_capacity(32), |text, byte| text + &format!("{byte:02x}")))
}

/// Says why a request is refused.
pub(super) fn refuse(asker: &Asker<'_>, port: u16) -> Option<&'static str> {
    let is_ours = |name: &str| [format!("127.0.0.1:{port}"), format!("localhost:{port}")].iter().any(|own| own == name);
    if !asker.host.is_some_and(is_ours) || !asker.authority.is_none_or(is_ours) {
        return Some("the Host of the request is not this server");
    }
    if asker.origin.is_some_and(|origin| !origin.strip_prefix("http://").is_some_and(is_ours)) {
        return Some("the request comes from a page of another site");
    }
    if asker.fetch_site.is_some_and(|site| site != "same-origin" && site != "none") {
        return Some("the request comes from a page of another site");
    }
    None
}

/// What follows the token in a path: `/TOKEN/rest` gives `rest`. The time taken does not depend on how much is right.
pub(super) fn behind_token<'a>(path: &'a str, token: &str) -> Option<&'a str> {
    let given = path.strip_prefix('/')?;
    let (given, rest) = given.split_once('/')?;
    let differs = given.len() ^ token.len();
    let differs = given.bytes().zip(token.bytes()).fold(differs, |differs, (a, b)| differs | usize::from(a ^ b));
    (differs == 0).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::{Asker, behind_token, refuse, token};

    #[test]
    fn only_this_server_is_a_host_and_only_its_pages_may_ask() {
        let own = Asker { host: Some("127.0.0.1:7000"), ..Asker::default() };
        assert_eq!(refuse(&own, 7000), None);
        assert_eq!(refuse(&Asker { host: Some("localhost:7000"), fetch_site: Some("none"), ..own }, 7000), None);
        assert_eq!(refuse(&Asker { origin: Some("http://127.0.0.1:7000"), ..own }, 7000), None);
        for host in [
            None,
            Some(""),
            Some("127.0.0.1"),
            Some("evil.example:7000"),
            Some("127.0.0.1:7001"),
            Some("127.0.0.1:7000.evil"),
        ] {
            assert!(refuse(&Asker { host, ..own }, 7000).is_some(), "{host:?}");
        }
        for authority in ["evil.example:7000", "127.0.0.1:7001", "me@127.0.0.1:7000"] {
            assert!(refuse(&Asker { authority: Some(authority), ..own }, 7000).is_some(), "{authority}");
        }
        assert_eq!(refuse(&Asker { authority: Some("127.0.0.1:7000"), ..own }, 7000), None);
        for origin in ["null", "https://127.0.0.1:7000", "http://evil.example", "http://127.0.0.1:7001", ""] {
            assert!(refuse(&Asker { origin: Some(origin), ..own }, 7000).is_some(), "{origin}");
        }
        for site in ["cross-site", "same-site"] {
            assert!(refuse(&Asker { fetch_site: Some(site), ..own }, 7000).is_some(), "{site}");
        }
    }

    #[test]
    fn the_token_must_be_whole() {
        let token = token().expect("random bytes");
        assert_eq!(token.len(), 32);
        assert_eq!(behind_token(&format!("/{token}/a/b"), &token), Some("a/b"));
        assert_eq!(behind_token(&format!("/{token}/"), &token), Some(""));
        for path in [
            String::new(),
            "/".into(),
            "//".into(),
            format!("/{token}"),
            format!("/{}/", &token[1..]),
            format!("/x{token}/"),
        ] {
            assert_eq!(behind_token(&path, &token), None, "{path}");
        }
        assert_ne!(token, super::token().expect("random bytes"));
    }
}
