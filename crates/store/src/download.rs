//! One file over HTTP, resumed where an earlier attempt stopped.

use std::io::Read;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use ureq::http::HeaderMap;

use crate::event::{Event, Events, Meter};
use crate::hash::is_sha256;
use crate::http::{Http, Request, Token, header};
use crate::partial::{Expect, PartialFile, Provenance, file_name};
use crate::record::FileRecord;
use crate::{Settings, StoreError, space, url};

/// One file to fetch.
pub(crate) struct Download<'a> {
    pub url: &'a str,
    pub token: Option<&'a Token>,
    /// What the hub says of itself is believed where nothing is known beforehand.
    pub trust_linked: bool,
    pub final_path: &'a Path,
    pub expect: Expect,
}

/// Fetches the file, verifies it and puts it under its final name.
pub(crate) fn download(
    http: &Http,
    settings: &Settings,
    job: &Download,
    events: Events,
) -> Result<FileRecord, StoreError> {
    let mut transfer = Transfer::begin(job)?;
    let file = file_name(job.final_path);
    events(Event::Start {
        file: file.clone(),
        total: transfer.expect.size,
    });
    if transfer.partial.len() > 0 {
        events(Event::Note(format!(
            "resuming {file} at {} bytes",
            transfer.partial.len()
        )));
    }
    loop {
        if let Err(error) = transfer.until_complete(http, settings, events) {
            if matches!(error, StoreError::WrongSize { .. }) {
                transfer.partial.discard()?;
            }
            return Err(error);
        }
        let spliced = transfer.resumed;
        match transfer
            .partial
            .finish(&transfer.expect, url::host(job.url))
        {
            Ok(record) => {
                events(Event::Finish {
                    file: record.file.clone(),
                    size: record.size,
                });
                return Ok(record);
            }
            // The beginning came from an earlier attempt and may be the part at fault.
            Err(StoreError::WrongHash { .. }) if spliced => {
                events(Event::Note(format!(
                    "the resumed {file} has the wrong hash; starting over"
                )));
                transfer = Transfer::begin(job)?;
            }
            Err(error) => return Err(error),
        }
    }
}

struct Transfer<'a> {
    job: &'a Download<'a>,
    partial: PartialFile,
    expect: Expect,
    etag: Option<String>,
    /// Whether the bytes come from more than one response.
    resumed: bool,
    /// Whether the server has answered before: a host that never did is not there.
    answered: bool,
}

/// How one attempt ended.
enum Outcome {
    Complete,
    /// The connection broke after so many new bytes.
    Broke {
        error: StoreError,
        gained: u64,
    },
}

impl<'a> Transfer<'a> {
    fn begin(job: &'a Download<'a>) -> Result<Self, StoreError> {
        let mut partial = PartialFile::resume(job.final_path)?;
        let expect = job.expect.clone();
        let before = partial.provenance().unwrap_or_default();
        let same_hash = before.sha256.is_some() && before.sha256 == expect.sha256;
        let same_file = before.url == job.url && before.etag.is_some();
        let too_long = expect.size.is_some_and(|size| partial.len() > size);
        if partial.len() > 0 && (too_long || !(same_hash || same_file)) {
            partial.restart()?;
        }
        let resumed = partial.len() > 0;
        // Another mirror has other tags; there the hash alone decides.
        let etag = before.etag.filter(|_| resumed && before.url == job.url);
        Ok(Self {
            job,
            partial,
            expect,
            etag,
            resumed,
            answered: false,
        })
    }

    fn until_complete(
        &mut self,
        http: &Http,
        settings: &Settings,
        events: Events,
    ) -> Result<(), StoreError> {
        let mut failures = 0;
        while self.expect.size != Some(self.partial.len()) {
            let error = match self.attempt(http, events) {
                Ok(Outcome::Complete) => return Ok(()),
                Ok(Outcome::Broke { error, gained }) => {
                    if gained > 0 {
                        failures = 0;
                    }
                    error
                }
                Err(error @ StoreError::Unreachable { .. }) if !self.answered => return Err(error),
                Err(error) if error.is_transient() => error,
                Err(error) => return Err(error),
            };
            failures += 1;
            if failures >= settings.attempts {
                return Err(error);
            }
            let wait = wait_before(failures, &error, settings.retry_delay);
            let what = match &error {
                StoreError::Broken { host, done, .. } => {
                    format!("the connection to {host} broke at {done} bytes")
                }
                other => other.to_string(),
            };
            events(Event::Note(format!(
                "{what}; trying again in {} s",
                wait.as_secs()
            )));
            sleep(wait);
        }
        Ok(())
    }

    fn attempt(&mut self, http: &Http, events: Events) -> Result<Outcome, StoreError> {
        let from = Some(self.partial.len()).filter(|&len| len > 0);
        let request = Request {
            url: self.job.url,
            accept: None,
            from,
            if_range: self.etag.as_deref().filter(|_| from.is_some()),
            token: self.job.token,
        };
        let mut answer = http.get(&request)?;
        self.answered = true;
        let headers = answer.response.headers();
        let continues =
            answer.response.status() == 206 && from == range_start(headers) && from.is_some();
        if from.is_some() && !continues {
            events(Event::Note(
                "the server does not resume this file; starting over".into(),
            ));
            self.partial.restart()?;
            self.resumed = false;
            if answer.response.status() == 416 || answer.response.status() == 206 {
                // The body, if any, is not the file from its start: ask again.
                self.etag = None;
                return self.attempt(http, events);
            }
        }
        self.resumed |= continues;

        if self.job.trust_linked {
            let linked = answer.linked.clone();
            self.expect.sha256 = self
                .expect
                .sha256
                .take()
                .or(linked.etag.filter(|e| is_sha256(e)));
            self.expect.size = self.expect.size.or(linked.size);
        }
        let announced = header(headers, "content-length")
            .and_then(|length| length.parse::<u64>().ok())
            .and_then(|length| length.checked_add(self.partial.len()));
        if let (Some(wanted), Some(got)) = (self.expect.size, announced)
            && wanted != got
        {
            let file = file_name(self.job.final_path);
            return Err(StoreError::WrongSize { file, wanted, got });
        }
        let total = self.expect.size.or(announced);
        let missing = total.map_or(0, |total| total.saturating_sub(self.partial.len()));
        space::require(self.partial.path(), missing)?;

        self.etag = strong_etag(headers).map(str::to_owned);
        self.partial.remember(&Provenance {
            url: self.job.url.to_owned(),
            etag: self.etag.clone(),
            sha256: self.expect.sha256.clone(),
        })?;
        self.copy(&mut answer.response.body_mut().as_reader(), total, events)
    }

    fn copy(
        &mut self,
        body: &mut dyn Read,
        total: Option<u64>,
        events: Events,
    ) -> Result<Outcome, StoreError> {
        let start = self.partial.len();
        let mut meter = Meter::start(events, start, total);
        let mut buffer = vec![0; 128 * 1024];
        let reason = loop {
            match body.read(&mut buffer) {
                Ok(0) if total.is_none_or(|total| self.partial.len() >= total) => {
                    return Ok(Outcome::Complete);
                }
                Ok(0) => break "the server closed it early".to_owned(),
                Ok(n) => {
                    self.partial.write(&buffer[..n])?;
                    let done = self.partial.len();
                    if let Some(wanted) = self.expect.size.filter(|&size| done > size) {
                        let file = file_name(self.job.final_path);
                        return Err(StoreError::WrongSize {
                            file,
                            wanted,
                            got: done,
                        });
                    }
                    meter.tick(events, done, total);
                }
                Err(error) => break error.to_string(),
            }
        };
        let done = self.partial.len();
        let error = StoreError::Broken {
            host: url::host(self.job.url).to_owned(),
            done,
            total: total.map_or_else(|| "?".to_owned(), |total| total.to_string()),
            reason,
        };
        Ok(Outcome::Broke {
            error,
            gained: done - start,
        })
    }
}

fn wait_before(failures: u32, error: &StoreError, first: Duration) -> Duration {
    const LONGEST: Duration = Duration::from_secs(30);
    let asked = match error {
        StoreError::HttpStatus {
            retry_after: Some(seconds),
            ..
        } => Duration::from_secs(*seconds),
        _ => Duration::ZERO,
    };
    let doubled = first.saturating_mul(1 << (failures - 1).min(10));
    doubled.max(asked).min(LONGEST)
}

/// First byte of a `Content-Range: bytes 5-9/10` header.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = header(headers, "content-range")?
        .trim()
        .strip_prefix("bytes ")?;
    range.split('-').next()?.trim().parse().ok()
}

/// Weak tags stand for "about the same file", which is no base to resume on.
fn strong_etag(headers: &HeaderMap) -> Option<&str> {
    header(headers, "etag").filter(|etag| etag.starts_with('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_grows_and_honours_the_server() {
        let first = Duration::from_secs(1);
        let broken = StoreError::Unreachable {
            host: "h".into(),
            reason: "r".into(),
        };
        let waits: Vec<u64> = (1..=7)
            .map(|n| wait_before(n, &broken, first).as_secs())
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        let limited = StoreError::HttpStatus {
            host: "h".into(),
            what: "/".into(),
            status: 429,
            hint: String::new(),
            retry_after: Some(7),
        };
        assert_eq!(wait_before(1, &limited, first).as_secs(), 7);
    }
}
