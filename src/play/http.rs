//! One request and one answer on a connection, in HTTP/1.1; `httparse` reads the head.
//!
//! In: a connection. Out: a [`Request`] for the answerer, its [`Response`] to the client. Malformed
//! and too large requests are answered here. It knows no paths.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// The longest head, in bytes.
const MAX_HEAD: usize = 16 << 10;
/// The most headers.
const MAX_HEADERS: usize = 64;
/// The longest body, in bytes.
pub(super) const MAX_BODY: usize = 1 << 20;
/// How long a client may take to send.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) method: String,
    /// The path, without the query.
    pub(super) path: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// The value of a header that occurs once.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(own, _)| own == name);
        let (_, value) = found.next()?;
        found.next().is_none().then_some(value.as_str())
    }

    /// Is there a header of this name?
    pub(super) fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(own, _)| own == name)
    }
}

/// An answer.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) media: &'static str,
    pub(super) body: Vec<u8>,
    /// The content security policy.
    pub(super) policy: &'static str,
}

/// Nothing may be loaded.
const CLOSED: &str = "default-src 'none'; frame-ancestors 'none'";

impl Response {
    /// An answer that is not a page.
    pub(super) fn new(media: &'static str, body: impl Into<Vec<u8>>) -> Response {
        Response { status: 200, media, body: body.into(), policy: CLOSED }
    }

    /// A refusal, with its reason.
    pub(super) fn refusal(status: u16, why: &str) -> Response {
        Response { status, ..Response::new("text/plain; charset=utf-8", format!("{why}\n")) }
    }
}

/// Reads a request and sends the answer. A client that goes away is nobody's error.
pub(super) fn serve(stream: &TcpStream, answer: impl FnOnce(&Request) -> Response) {
    let timeouts = stream.set_read_timeout(Some(PATIENCE)).and(stream.set_write_timeout(Some(PATIENCE)));
    if timeouts.is_err() {
        return;
    }
    let (response, is_whole) = match read(stream) {
        Ok(request) => (answer(&request), true),
        Err(Some(refusal)) => (refusal, false),
        Err(None) => return,
    };
    let sent = send(stream, &response).and_then(|()| stream.shutdown(Shutdown::Write));
    if sent.is_ok() && !is_whole {
        // A connection that is closed with unread bytes may lose the answer.
        let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
        let _ = io::copy(&mut stream.take(8 << 20), &mut io::sink());
    }
}

/// Reads a request; the error is an answer, or nothing if the client is gone.
fn read(mut stream: impl Read) -> Result<Request, Option<Response>> {
    let refuse = |status, why: &str| Some(Response::refusal(status, why));
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    let (mut request, start) = loop {
        let count = stream.read(&mut part).map_err(|_| None)?;
        if count == 0 {
            return Err(None);
        }
        bytes.extend_from_slice(part.get(..count).unwrap_or_default());
        match head(&bytes).map_err(|why| refuse(400, &why))? {
            Some(found) => break found,
            None if bytes.len() > MAX_HEAD => return Err(refuse(431, "the request's head is too long")),
            None => {}
        }
    };
    if request.has("transfer-encoding") {
        return Err(refuse(411, "the request needs a Content-Length"));
    }
    let length = match request.header("content-length") {
        Some(text) => text.parse::<u64>().map_err(|_| refuse(400, "the Content-Length is not a number"))?,
        None if request.has("content-length") => return Err(refuse(400, "there are several Content-Lengths")),
        None => 0,
    };
    let length = usize::try_from(length).ok().filter(|length| *length <= MAX_BODY);
    let length = length.ok_or_else(|| refuse(413, "the request is longer than 1 MiB"))?;
    request.body = bytes.split_off(start.min(bytes.len()));
    request.body.truncate(length);
    let rest = length - request.body.len();
    let read = stream.take(rest as u64).read_to_end(&mut request.body).map_err(|_| None)?;
    if read < rest { Err(None) } else { Ok(request) }
}

/// The request's head and where its body starts; `None` if it is not complete.
fn head(bytes: &[u8]) -> Result<Option<(Request, usize)>, String> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(start) = parsed.parse(bytes).map_err(|error| format!("not HTTP: {error}"))? else {
        return Ok(None);
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    let path = parsed.path.unwrap_or_default().split('?').next().unwrap_or_default().to_string();
    let headers = parsed.headers.iter().map(|h| (h.name.to_ascii_lowercase(), text(h.value))).collect();
    let method = parsed.method.unwrap_or_default().to_string();
    Ok(Some((Request { method, path, headers, body: Vec::new() }, start)))
}

/// Sends an answer.
fn send(mut stream: impl Write, response: &Response) -> io::Result<()> {
    let reason = match response.status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        _ => "Internal Server Error",
    };
    // The address has the token: no other page may learn it.
    let head = format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
         Content-Security-Policy: {}\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\n\
         Cache-Control: no-store\r\n\r\n",
        response.status,
        response.media,
        response.body.len(),
        response.policy,
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&response.body)?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Request, Option<u16>> {
        read(text.as_bytes()).map_err(|refusal| refusal.map(|r| r.status))
    }

    #[test]
    fn requests_are_read() {
        let request = parsed("POST /a/b?c HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi there").unwrap();
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/a/b"));
        assert_eq!((request.header("host"), request.body.as_slice()), (Some("x"), &b"hi"[..]));
        // A header that occurs twice has no value.
        assert_eq!(parsed("GET / HTTP/1.1\r\nHost: x\r\nhost: y\r\n\r\n").unwrap().header("host"), None);
    }

    #[test]
    fn malformed_requests_are_refused() {
        for (text, status) in [
            ("hello\r\n\r\n", Some(400)),
            ("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", Some(400)),
            ("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", Some(400)),
            ("GET / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n", Some(413)),
            ("GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", Some(400)),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Some(411)),
            (&format!("GET /{} HTTP/1.1\r\n", "a".repeat(MAX_HEAD + 4096)), Some(431)),
            (&format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(MAX_HEADERS + 1)), Some(400)),
            ("GET / HTTP/1.1\r\n", None),
            ("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nshort", None),
        ] {
            assert_eq!(parsed(text).unwrap_err(), status, "{text:.80}");
        }
    }
}
