//! A small HTTP server that can misbehave on request.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A request as it arrived; header names in lower case.
#[derive(Clone, Debug)]
pub struct Seen {
    pub path: String,
    pub headers: HashMap<String, String>,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// What to answer.
#[derive(Clone, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Close the connection after so many bytes of the body.
    pub cut: Option<usize>,
    /// Stay silent this long once the cut is reached.
    pub stall: Duration,
}

impl Reply {
    pub fn new(status: u16, body: &[u8]) -> Self {
        Self {
            status,
            body: body.to_vec(),
            ..Self::default()
        }
    }

    pub fn json(value: &serde_json::Value) -> Self {
        Self::new(200, value.to_string().as_bytes())
    }

    pub fn redirect(to: &str) -> Self {
        Self::new(302, b"").with("location", to)
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn cut(mut self, at: usize) -> Self {
        self.cut = Some(at);
        self
    }

    /// A file with an entity tag, served as a well-behaved server does.
    pub fn file(seen: &Seen, body: &[u8], etag: &str) -> Self {
        let whole = Self::new(200, body).with("etag", etag);
        let from = seen.header("range").and_then(|r| {
            r.strip_prefix("bytes=")?
                .strip_suffix('-')?
                .parse::<usize>()
                .ok()
        });
        let Some(from) = from.filter(|_| seen.header("if-range").is_none_or(|tag| tag == etag))
        else {
            return whole;
        };
        if from >= body.len() {
            return Self::new(416, b"").with("content-range", &format!("bytes */{}", body.len()));
        }
        let range = format!("bytes {from}-{}/{}", body.len() - 1, body.len());
        Self::new(206, &body[from..])
            .with("etag", etag)
            .with("content-range", &range)
    }
}

/// Serves until the test ends.
pub struct FakeWeb {
    /// `http://127.0.0.1:PORT`.
    pub base: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl FakeWeb {
    pub fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                thread::spawn(move || {
                    if let Some(request) = read(&stream) {
                        log.lock().unwrap().push(request.clone());
                        // The client may hang up first; that is its right.
                        let _ = write(&stream, &answer(&request));
                    }
                });
            }
        });
        Self { base, seen }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

/// Reads one request. As a proxy it grants every CONNECT and notes the target in the
/// header `connect` of the request that follows in the tunnel.
fn read(mut stream: &TcpStream) -> Option<Seen> {
    let mut lines = BufReader::new(stream).lines();
    let mut tunnel = None;
    loop {
        let first = lines.next()?.ok()?;
        let (method, rest) = first.split_once(' ')?;
        let target = rest.split(' ').next()?.to_owned();
        let mut headers: HashMap<String, String> = HashMap::new();
        for line in lines
            .by_ref()
            .map_while(Result::ok)
            .take_while(|line| !line.is_empty())
        {
            let (name, value) = line.split_once(':')?;
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        if method == "CONNECT" {
            stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").ok()?;
            tunnel = Some(target);
            continue;
        }
        headers.extend(tunnel.map(|target| ("connect".to_owned(), target)));
        return Some(Seen {
            path: target,
            headers,
        });
    }
}

fn write(mut stream: &TcpStream, reply: &Reply) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} Status\r\nconnection: close\r\n", reply.status);
    let own_length = reply
        .headers
        .iter()
        .any(|(name, _)| name == "content-length");
    if !own_length {
        head += &format!("content-length: {}\r\n", reply.body.len());
    }
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    let end = reply.cut.unwrap_or(reply.body.len()).min(reply.body.len());
    stream.write_all(&reply.body[..end])?;
    stream.flush()?;
    thread::sleep(reply.stall);
    stream.shutdown(std::net::Shutdown::Both)
}
