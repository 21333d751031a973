//! A server that shows the page of a run, alive: it only reads the run, and only answers those who ask for this machine.

mod follow;

use crate::contents::Contents;
use crate::{PageOptions, assemble};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use follow::{Follower, Seen};
use issfa::run::folder::CONFIG;
use issfa::run::held::Held;
use issfa::run::settings::PageSize;
use issfa::summary::Standing;
use issfa::{Error, Fitted, Result};
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;
use tiny_http::{Header, Method, Request, Response, Server};

/// How often the folder is looked at.
const LOOK: Duration = Duration::from_millis(400);
/// After so long without news those who look on hear that nothing is new, so that lost ones are noticed.
const QUIET: Duration = Duration::from_secs(5);
/// A page may load nothing from elsewhere, nor stand in one.
const HEADERS: [(&str, &str); 5] = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data: blob:; \
         frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
    ("Referrer-Policy", "no-referrer"),
];

/// The words of the user for the library's settings and actions.
pub type Words = fn(&str) -> String;

/// A run that is watched.
pub struct Watch {
    server: Arc<Server>,
    shared: Arc<Shared>,
    address: SocketAddr,
}

/// What the threads of a watch have in common.
struct Shared {
    folder: PathBuf,
    words: Words,
    listen: IpAddr,
    /// What this machine is called, where others may ask for it.
    names: Vec<String>,
    seen: Mutex<Seen>,
    news: Condvar,
    /// The last page's data, and the version that it is of.
    made: Mutex<Option<(u64, Arc<String>)>>,
}

impl Watch {
    /// Begins to listen at an address or at a name of this machine; a port of 0 takes any that is free.
    pub fn start(folder: &Path, at: &str, port: u16, words: Words) -> Result<Watch> {
        let listen = address_of(at)?;
        if !folder.join(CONFIG).is_file() && Held::owner(folder).is_none() {
            return Err(Error::NotA { kind: "run folder", path: folder.to_path_buf(), missing: CONFIG });
        }
        let refused = |problem: &dyn std::fmt::Display| {
            Error::setting("port", port, format!("cannot listen on {listen}: {problem}; choose another"))
        };
        let server = Server::http((listen, port)).map_err(|error| refused(&error))?;
        let address = server.server_addr().to_ip().ok_or_else(|| refused(&"it has no address"))?;
        let shared = Shared {
            folder: folder.to_path_buf(),
            words,
            listen,
            names: if listen.is_loopback() { Vec::new() } else { names(at) },
            seen: Mutex::new(Seen::default()),
            news: Condvar::new(),
            made: Mutex::new(None),
        };
        Ok(Watch { server: Arc::new(server), shared: Arc::new(shared), address })
    }

    /// Where the page is.
    pub fn address(&self) -> String {
        match self.shared.names.first() {
            Some(name) if self.address.ip().is_unspecified() => format!("http://{name}:{}/", self.address.port()),
            _ => format!("http://{}/", self.address),
        }
    }

    /// Whether others than this machine can ask for it.
    pub fn is_open(&self) -> bool {
        !self.shared.listen.is_loopback()
    }

    /// Answers until the process ends; what is wrong with the run is said once.
    pub fn serve(self, warn: fn(&str)) {
        let shared = self.shared.clone();
        thread::spawn(move || shared.follow(warn));
        for request in self.server.incoming_requests() {
            let shared = self.shared.clone();
            thread::spawn(move || shared.answer(request));
        }
    }
}

impl Shared {
    fn follow(&self, warn: fn(&str)) {
        let mut follower = Follower::new(&self.folder, &self.words);
        let mut has_warned = false;
        loop {
            if follower.look(&mut self.seen()) {
                self.news.notify_all();
                let damage = self.seen().status["damage"].as_array().cloned().unwrap_or_default();
                if !damage.is_empty() && !has_warned {
                    damage.iter().filter_map(Value::as_str).for_each(warn);
                    has_warned = true;
                }
            }
            thread::sleep(LOOK);
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn answer(&self, request: Request) {
        let host =
            request.headers().iter().find(|header| header.field.equiv("Host")).map(|header| header.value.as_str());
        if !host.is_some_and(|host| is_own(host, self.listen, &self.names)) {
            return respond(
                request,
                421,
                "text/plain; charset=utf-8",
                "this is not the host that was asked for\n".into(),
            );
        }
        if *request.method() != Method::Get {
            return respond(request, 405, "text/plain; charset=utf-8", "only GET is understood\n".into());
        }
        match request.url().split('?').next().unwrap_or_default() {
            "/" => {
                let name = self.folder.file_name().map_or("run".into(), |name| name.to_string_lossy().into_owned());
                let html = assemble(&name, &json!({"live": true, "name": name}), &[]);
                respond(request, 200, "text/html; charset=utf-8", html);
            }
            "/data.json" => match self.data() {
                Ok(text) => respond(request, 200, "application/json", text.to_string()),
                Err(problem) => {
                    let problem = json!({"problem": (self.words)(&problem.to_string())});
                    respond(request, 503, "application/json", problem.to_string());
                }
            },
            "/events" => {
                // Whoever left is not waited for.
                let _ = self.send_events(request);
            }
            _ => respond(request, 404, "text/plain; charset=utf-8", "there is nothing here\n".into()),
        }
    }

    /// The data of the page as the run stands now.
    fn data(&self) -> Result<Arc<String>> {
        let version = self.seen().version;
        let mut made = self.made.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((_, text)) = made.as_ref().filter(|(of, _)| *of == version) {
            return Ok(text.clone());
        }
        let (fitted, standing) = Fitted::open_as_it_stands(&self.folder)?;
        let mut options = PageOptions::of(&fitted, &self.words);
        if standing != Standing::Results {
            options.size = PageSize::Light;
        }
        let contents = Contents::of(&fitted, standing, &options)?;
        let arrays: Map<String, Value> =
            contents.blobs.iter().map(|(name, bytes)| (name.clone(), STANDARD.encode(bytes).into())).collect();
        let text = Arc::new(json!({"data": contents.data, "arrays": arrays, "version": version}).to_string());
        *made = Some((version, text.clone()));
        Ok(text)
    }

    /// Tells what is new as it comes, from the beginning.
    fn send_events(&self, request: Request) -> io::Result<()> {
        let mut out = request.into_writer();
        let mut head = String::from("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n");
        HEADERS.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        write!(out, "{head}\r\nevent: reset\ndata: {{}}\n\n")?;
        let mut told = Told::default();
        loop {
            let text = {
                let mut seen = self.seen();
                if told.is_all(&seen) {
                    seen = self.news.wait_timeout(seen, QUIET).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
                }
                told.catch_up(&seen)
            };
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
    }
}

/// What one who looks on was told.
#[derive(Default)]
struct Told {
    epoch: u64,
    n_rows: usize,
    version: u64,
    status: Value,
}

/// The most rows in an event.
const MOST_ROWS: usize = 5000;

impl Told {
    fn is_all(&self, seen: &Seen) -> bool {
        let numbers = (self.epoch, self.n_rows, self.version) == (seen.epoch, seen.rows.len(), seen.version);
        numbers && self.status == seen.status
    }

    /// The events that are missing; a comment where there are none.
    fn catch_up(&mut self, seen: &Seen) -> String {
        let mut text = String::new();
        if self.epoch != seen.epoch {
            text += "event: reset\ndata: {}\n\n";
            (self.epoch, self.n_rows) = (seen.epoch, 0);
        }
        for rows in seen.rows[self.n_rows..].chunks(MOST_ROWS) {
            text += &format!("event: trace\ndata: {}\n\n", json!(rows));
        }
        self.n_rows = seen.rows.len();
        if self.status != seen.status {
            text += &format!("event: status\ndata: {}\n\n", seen.status);
            self.status = seen.status.clone();
        }
        if self.version != seen.version {
            text += &format!("event: version\ndata: {}\n\n", seen.version);
            self.version = seen.version;
        }
        if text.is_empty() { ": nothing new\n\n".into() } else { text }
    }
}

/// An address in numbers, or that of a name.
fn address_of(at: &str) -> Result<IpAddr> {
    let wrong = || Error::setting("listen", at, "write an address such as 0.0.0.0, or a name of this machine");
    at.parse().or_else(|_| {
        (at, 0).to_socket_addrs().ok().and_then(|mut all| all.next()).map(|one| one.ip()).ok_or_else(wrong)
    })
}

/// What this machine is called: as whoever listens calls it, by its own name, and by the first part of that.
fn names(at: &str) -> Vec<String> {
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| {
        let said = std::process::Command::new("hostname").output().ok()?;
        String::from_utf8(said.stdout).ok()
    });
    let own = own.unwrap_or_default().trim().to_string();
    let short = own.split('.').next().unwrap_or_default().to_string();
    let given = Some(at.to_string()).filter(|name| name.parse::<IpAddr>().is_err());
    let mut names: Vec<String> = given.into_iter().chain([own, short]).filter(|name| !name.is_empty()).collect();
    names.dedup();
    names
}

/// Whether the host that a browser asks for is this one: a name that somebody else may point here is not (DNS rebinding).
fn is_own(host: &str, listen: IpAddr, names: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address: Option<IpAddr> = name.parse().ok();
    let is_here = name.eq_ignore_ascii_case("localhost") || address.is_some_and(|address| address.is_loopback());
    // A number cannot be pointed elsewhere, nor can the machine's own names; but one who listens here only has no other.
    let is_named = names.iter().any(|own| own.eq_ignore_ascii_case(name));
    is_here || !listen.is_loopback() && (address.is_some() || is_named)
}

fn respond(request: Request, status: u16, kind: &str, body: String) {
    let mut response = Response::from_data(body.into_bytes()).with_status_code(status);
    for (name, value) in HEADERS.iter().copied().chain([("Content-Type", kind)]) {
        let header = Header::from_bytes(name.as_bytes(), value.as_bytes()).expect("plain letters are a header");
        response.add_header(header);
    }
    // Whoever left is not waited for.
    let _ = request.respond(response);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_names_are_answered() {
        let (here, all): (IpAddr, IpAddr) = ("127.0.0.1".parse().unwrap(), "0.0.0.0".parse().unwrap());
        let names = ["node7.example.org".to_string(), "node7".to_string()];
        let is_own = |host: &str, listen: IpAddr| super::is_own(host, listen, &names);
        for host in ["127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000", "127.0.0.2"] {
            assert!(is_own(host, here) && is_own(host, all), "{host}");
        }
        for host in ["node7:8000", "NODE7.example.org", "node7.example.org:80"] {
            assert!(!is_own(host, here) && is_own(host, all), "{host}");
        }
        for host in ["node7.evil.example", "node", "node7.example.org.evil.example:80", "example.org"] {
            assert!(!is_own(host, all), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", "", "[evil]", "1.2.3"] {
            assert!(!is_own(host, here) && !is_own(host, all), "{host}");
        }
        assert!(!is_own("10.1.2.3:80", here) && is_own("10.1.2.3:80", all));
    }

    #[test]
    fn machines_are_known_by_the_name_given_and_by_their_own() {
        assert_eq!(address_of("localhost").map(|address| address.is_loopback()).ok(), Some(true));
        assert!(address_of("0.0.0.0").is_ok_and(|address| address.is_unspecified()));
        assert!(address_of("no such name").is_err());
        assert_eq!(names("given.example")[0], "given.example");
        assert!(!names("0.0.0.0").iter().any(|name| name == "0.0.0.0" || name.contains(char::is_whitespace)));
    }
}
