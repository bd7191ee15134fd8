//! Who may ask: only the page that this server gave out.
//!
//! In: a request. Out: its path after the token, or a refusal. The dangers are other users and
//! programs of this machine, which do not know the token; other sites in the same browser, whose
//! requests have their `Origin`; and sites whose name was made to resolve to this machine (DNS
//! rebinding), whose requests have that name as `Host`.

use super::http::{Request, Response};
use std::fs::File;
use std::io::{self, Read};

/// The token and the port of a server.
pub(super) struct Guard {
    token: String,
    port: u16,
}

impl Guard {
    /// A guard with a new random token of 128 bits.
    pub(super) fn new(port: u16) -> io::Result<Guard> {
        let mut bytes = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Guard { token: format!("{:032x}", u128::from_ne_bytes(bytes)), port })
    }

    /// The address of the page.
    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.token)
    }

    /// The path after the token, if the request comes from the page.
    pub(super) fn admits<'r>(&self, request: &'r Request) -> Result<&'r str, Response> {
        let hosts = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{}", self.port));
        let host = request.header("host").unwrap_or_default();
        if !hosts.iter().any(|own| own == host) {
            return Err(Response::refusal(403, "the request names another host"));
        }
        let is_own = |origin: &str| origin.strip_prefix("http://") == Some(host);
        let is_foreign = |site: &str| !matches!(site, "same-origin" | "none");
        // Browsers send the origin with each POST.
        let foreign = request.has("origin") && !request.header("origin").is_some_and(is_own)
            || request.has("sec-fetch-site") && request.header("sec-fetch-site").is_none_or(is_foreign);
        if foreign {
            return Err(Response::refusal(403, "the request comes from another page"));
        }
        let (token, path) = request.path.strip_prefix('/').unwrap_or_default().split_once('/').unwrap_or_default();
        if !same(token.as_bytes(), self.token.as_bytes()) {
            return Err(Response::refusal(403, "the address lacks the token that `attnc play` printed"));
        }
        Ok(path)
    }
}

/// Equality, in a time that does not tell where the difference is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
