//! A local page to write, compile and run programs (`attnc play`): editor, course, results, report.
//!
//! In: an address of this machine, the path of attnc itself, limits. Out: answers to a browser.
//!
//! ```text
//! http      a connection: one request, one answer
//! guard     who may ask: this machine's own page, which knows the token
//! answers   the paths: files of the page, and calls of attnc
//! child     attnc as a child process, in a folder of its own, with limits of time and memory
//! course    chapters, pictures and examples, embedded when attnc is built
//! ```
//!
//! The server compiles nothing: each request that needs the compiler starts attnc as a child. So a
//! program that takes all its memory, or never ends, ends only that child.

mod answers;
mod child;
mod course;
mod guard;
mod http;

pub use child::Limits;

use answers::Service;
use guard::Guard;
use serde_json::Value;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The largest number of connections at the same time.
const MAX_CONNECTIONS: usize = 64;

/// The content of the page, and the limits of its calls.
pub struct Settings {
    /// The executable of attnc.
    pub attnc: PathBuf,
    /// The file or lesson that the page opens first; null for the first chapter.
    pub start: Value,
    /// The exercises of the course.
    pub exercises: Value,
    /// The limits of each child process.
    pub limits: Limits,
}

/// A server that listens, and serves nobody yet.
pub struct Server {
    listener: TcpListener,
    guard: Guard,
    service: Arc<Service>,
}

/// Listens on a port of the loopback interface; 0 stands for any that is free.
///
/// # Errors
/// The port is not free, or the system has no random numbers.
pub fn listen(port: u16, settings: Settings) -> io::Result<Server> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let guard = Guard::new(listener.local_addr()?.port())?;
    Ok(Server { listener, guard, service: Arc::new(Service::new(settings)) })
}

/// The number or name of a chapter, as its file name without extension.
pub fn chapter(name: &str) -> Option<&'static str> {
    course::chapter(name)
}

impl Server {
    /// The address of the page, with its token.
    pub fn address(&self) -> String {
        self.guard.address()
    }

    /// Serves until the process ends.
    ///
    /// # Errors
    /// The listener fails.
    pub fn serve(self) -> io::Result<()> {
        let (guard, open) = (Arc::new(self.guard), Arc::new(AtomicUsize::new(0)));
        for stream in self.listener.incoming() {
            // A client that is gone already is not an error of the server.
            let Ok(stream) = stream else { continue };
            if open.load(Ordering::Relaxed) >= MAX_CONNECTIONS {
                continue;
            }
            open.fetch_add(1, Ordering::Relaxed);
            let (guard, service, open) = (Arc::clone(&guard), Arc::clone(&self.service), Arc::clone(&open));
            std::thread::spawn(move || {
                http::serve(&stream, |request| match guard.admits(request) {
                    Ok(path) => service.answer(request, path),
                    Err(refusal) => refusal,
                });
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
        Ok(())
    }
}
