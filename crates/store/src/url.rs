//! The little of URLs that is needed: the origin, the host, and where a redirect leads.

/// `scheme://host:port` of an address, or the address itself if it has no scheme.
pub(crate) fn origin(url: &str) -> &str {
    let Some(start) = url.find("://").map(|at| at + 3) else {
        return url;
    };
    let end = url[start..]
        .find(['/', '?', '#'])
        .map_or(url.len(), |at| start + at);
    &url[..end]
}

pub(crate) fn scheme(url: &str) -> &str {
    url.split_once("://").map_or("", |(scheme, _)| scheme)
}

/// Host without user, password and port.
pub(crate) fn host(url: &str) -> &str {
    let authority = origin(url).split_once("://").map_or("", |(_, rest)| rest);
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    match host.rsplit_once(':') {
        // The colons of a bare IPv6 address are inside its brackets.
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Path without query, for messages: queries of content hosts hold signatures.
pub(crate) fn path(url: &str) -> &str {
    let rest = &url[origin(url).len()..];
    rest.split(['?', '#']).next().unwrap_or("")
}

/// Last segment of the path.
pub(crate) fn file_name(url: &str) -> &str {
    path(url).rsplit('/').next().unwrap_or("")
}

/// The address that `location` means on a page at `base`.
pub(crate) fn join(base: &str, location: &str) -> String {
    if location.contains("://") {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{}:{location}", scheme(base))
    } else if location.starts_with('/') {
        format!("{}{location}", origin(base))
    } else {
        let folder = path(base).rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{}{folder}/{location}", origin(base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_address() {
        let url = "https://user:pw@Host.example:8443/a/b.gguf?sig=1#x";
        assert_eq!(origin(url), "https://user:pw@Host.example:8443");
        assert_eq!(host(url), "Host.example");
        assert_eq!(scheme(url), "https");
        assert_eq!(path(url), "/a/b.gguf");
        assert_eq!(file_name(url), "b.gguf");
        assert_eq!(host("http://[::1]:80/x"), "[::1]");
        assert_eq!(host("http://plain"), "plain");
        assert_eq!(origin("http://h?q"), "http://h");
    }

    #[test]
    fn redirects() {
        let base = "https://h:1/a/b?q";
        assert_eq!(join(base, "http://o/x"), "http://o/x");
        assert_eq!(join(base, "//o/x"), "https://o/x");
        assert_eq!(join(base, "/x"), "https://h:1/x");
        assert_eq!(join(base, "x"), "https://h:1/a/x");
    }
}
