//! Requests, with redirects followed by hand: a token must not travel to another host.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use ureq::http::{HeaderMap, Response};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

use crate::proxy::Proxies;
use crate::{Settings, StoreError, url};

const MAX_REDIRECTS: usize = 10;
/// Largest listing or manifest that is read into memory, in bytes.
const MAX_JSON: u64 = 16 << 20;

/// A secret for one origin.
#[derive(Clone)]
pub(crate) struct Token {
    pub origin: String,
    pub secret: String,
}

/// One GET request.
#[derive(Default)]
pub(crate) struct Request<'a> {
    pub url: &'a str,
    pub accept: Option<&'a str>,
    /// Only the bytes from here on.
    pub from: Option<u64>,
    /// The range is wanted only if the file still has this entity tag.
    pub if_range: Option<&'a str>,
    pub token: Option<&'a Token>,
}

/// A response with status 2xx, or 416 to a range request.
pub(crate) struct Answer {
    pub response: Response<Body>,
    /// Hash and size that the first host stated before it redirected.
    pub linked: Linked,
}

/// Hugging Face states the SHA-256 and the size of a file in these headers.
#[derive(Default, Clone)]
pub(crate) struct Linked {
    pub etag: Option<String>,
    pub size: Option<u64>,
}

pub(crate) struct Http {
    agent: Agent,
    proxies: Proxies,
}

impl Http {
    pub(crate) fn new(settings: &Settings) -> Result<Self, StoreError> {
        let mut tls = TlsConfig::builder();
        if let Some(path) = &settings.ca_file {
            tls = tls.root_certs(trusted(path)?);
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .tls_config(tls.build())
            .user_agent(concat!("ounce/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(settings.connect_timeout))
            .timeout_connect(Some(settings.connect_timeout))
            .timeout_recv_response(Some(settings.idle_timeout))
            .timeout_per_read(Some(settings.idle_timeout))
            .timeout_per_write(Some(settings.idle_timeout))
            .max_idle_age(Duration::from_secs(5))
            .build();
        Ok(Self {
            agent: config.new_agent(),
            proxies: settings.proxies.clone(),
        })
    }

    pub(crate) fn get(&self, request: &Request) -> Result<Answer, StoreError> {
        let mut at = request.url.to_owned();
        let mut linked = Linked::default();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.get_once(&at, request)?;
            let headers = response.headers();
            if linked.etag.is_none() {
                linked = Linked {
                    etag: header(headers, "x-linked-etag").map(|e| e.trim_matches('"').to_owned()),
                    size: header(headers, "x-linked-size").and_then(|size| size.parse().ok()),
                };
            }
            let status = response.status().as_u16();
            match (status, header(headers, "location")) {
                (301 | 302 | 303 | 307 | 308, Some(location)) => {
                    let next = url::join(&at, location);
                    if url::scheme(&at) == "https" && url::scheme(&next) != "https" {
                        let reason = "it redirects from https to an insecure address".to_owned();
                        return Err(StoreError::BadAnswer {
                            host: url::host(&at).into(),
                            reason,
                        });
                    }
                    at = next;
                }
                (200..=299, _) => return Ok(Answer { response, linked }),
                (416, _) if request.from.is_some() => return Ok(Answer { response, linked }),
                _ => return Err(status_error(&at, request, status, headers)),
            }
        }
        let reason = format!("more than {MAX_REDIRECTS} redirects");
        Err(StoreError::BadAnswer {
            host: url::host(request.url).into(),
            reason,
        })
    }

    /// A JSON document and the address of its next page, if it has one.
    pub(crate) fn get_json<T: DeserializeOwned>(
        &self,
        request: &Request,
    ) -> Result<(T, Option<String>), StoreError> {
        let mut answer = self.get(request)?;
        let next = header(answer.response.headers(), "link").and_then(next_page);
        let host = || url::host(request.url).to_owned();
        let body = answer
            .response
            .body_mut()
            .with_config()
            .limit(MAX_JSON)
            .read_to_vec()
            .map_err(|error| match error {
                ureq::Error::BodyExceedsLimit(limit) => {
                    let reason = format!("a listing of more than {limit} bytes");
                    StoreError::BadAnswer {
                        host: host(),
                        reason,
                    }
                }
                other => StoreError::Broken {
                    host: host(),
                    done: 0,
                    total: "?".into(),
                    reason: other.to_string(),
                },
            })?;
        let document = serde_json::from_slice(&body).map_err(|e| StoreError::BadAnswer {
            host: host(),
            reason: e.to_string(),
        })?;
        Ok((document, next))
    }

    fn get_once(&self, at: &str, request: &Request) -> Result<Response<Body>, StoreError> {
        let proxy_url = self.proxies.choose(url::scheme(at), url::host(at));
        let proxy = match proxy_url.map(with_scheme) {
            Some(text) => Some(ureq::Proxy::new(&text).map_err(|e| StoreError::BadSetting {
                variable: "HTTPS_PROXY, HTTP_PROXY or ALL_PROXY",
                value: url::host(&text).to_owned(),
                reason: e.to_string(),
            })?),
            None => None,
        };
        let mut get = self.agent.get(at).config().proxy(proxy).build();
        // A compressed body has other offsets than the file.
        get = get.header("accept-encoding", "identity");
        if let Some(accept) = request.accept {
            get = get.header("accept", accept);
        }
        if let Some(from) = request.from {
            get = get.header("range", format!("bytes={from}-"));
        }
        if let Some(etag) = request.if_range {
            get = get.header("if-range", etag);
        }
        if let Some(token) = request.token.filter(|t| t.origin == url::origin(at)) {
            get = get.header("authorization", format!("Bearer {}", token.secret));
        }
        get.call().map_err(|e| connection_error(at, proxy_url, e))
    }
}

/// Proxy variables may leave the scheme out.
fn with_scheme(proxy: &str) -> String {
    if proxy.contains("://") {
        proxy.to_owned()
    } else {
        format!("http://{proxy}")
    }
}

fn trusted(path: &Path) -> Result<RootCerts, StoreError> {
    let pem = fs::read(path).map_err(|e| StoreError::io("read", path, e))?;
    let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(StoreError::BadSetting {
            variable: "SSL_CERT_FILE",
            value: path.display().to_string(),
            reason: "the file holds no PEM certificate".into(),
        });
    }
    Ok(RootCerts::new_with_certs(&certificates))
}

pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The `rel="next"` address of a Link header.
fn next_page(link: &str) -> Option<String> {
    link.split(',').find_map(|part| {
        let (address, rest) = part.trim().strip_prefix('<')?.split_once('>')?;
        rest.contains("rel=\"next\"").then(|| address.to_owned())
    })
}

fn connection_error(at: &str, proxy: Option<&str>, error: ureq::Error) -> StoreError {
    let host = match proxy {
        Some(proxy) => {
            format!(
                "{} through proxy {}",
                url::host(at),
                url::host(&with_scheme(proxy))
            )
        }
        None => url::host(at).to_owned(),
    };
    match error {
        ureq::Error::Rustls(e) => StoreError::Tls {
            host,
            reason: e.to_string(),
        },
        ureq::Error::Tls(reason) => StoreError::Tls {
            host,
            reason: reason.to_owned(),
        },
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => StoreError::BadAnswer {
            host,
            reason: format!("not a usable address: {error}"),
        },
        // Certificate errors surface while the connection is read or written.
        ureq::Error::Io(e) if e.kind() == std::io::ErrorKind::InvalidData => StoreError::Tls {
            host,
            reason: e.to_string(),
        },
        ureq::Error::Io(e) => StoreError::Unreachable {
            host,
            reason: e.to_string(),
        },
        other => StoreError::Unreachable {
            host,
            reason: other.to_string(),
        },
    }
}

fn status_error(at: &str, request: &Request, status: u16, headers: &HeaderMap) -> StoreError {
    let host = url::host(at).to_owned();
    let what = url::path(at).to_owned();
    match status {
        401 | 403 => {
            let hint = match request.token {
                Some(_) => {
                    "the token in HF_TOKEN does not open it; accept the model's licence on its page, or check the name"
                }
                None => {
                    "it may not exist, or need a login; on Hugging Face accept the model's licence on its page and set HF_TOKEN"
                }
            };
            StoreError::Refused {
                host,
                what,
                status,
                hint: hint.into(),
            }
        }
        404 | 410 => StoreError::Unknown {
            what,
            place: host,
            hint: String::new(),
        },
        _ => {
            let hint = match status {
                429 => "it limits requests; wait a while and try again",
                407 => "the proxy wants a login; put user:password@ into the proxy variable",
                500.. => "the trouble is there; try again later",
                _ => "check the address",
            };
            let retry_after = header(headers, "retry-after").and_then(|v| v.trim().parse().ok());
            StoreError::HttpStatus {
                host,
                what,
                status,
                hint: hint.into(),
                retry_after,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_page_of_a_listing() {
        let link = "<https://h/p?cursor=a>; rel=\"next\"";
        assert_eq!(next_page(link).as_deref(), Some("https://h/p?cursor=a"));
        assert_eq!(next_page("<https://h/p>; rel=\"prev\""), None);
        assert_eq!(next_page("nonsense"), None);
    }
}
