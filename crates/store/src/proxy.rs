//! Which proxy a request goes through, by the usual environment variables.

/// Proxy variables, as found in the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// `http_proxy`, for `http://` addresses.
    pub http: Option<String>,
    /// `https_proxy`, for `https://` addresses.
    pub https: Option<String>,
    /// `all_proxy`, for whatever the others leave open.
    pub all: Option<String>,
    /// `no_proxy`: hosts reached directly, separated by commas; `*` for all.
    pub no_proxy: Option<String>,
}

impl Proxies {
    /// Reads the variables through `get`; the lower-case spelling wins, as in curl.
    pub(crate) fn from_vars(get: &dyn Fn(&str) -> Option<String>) -> Self {
        let read = |name: &str| {
            get(name)
                .or_else(|| get(&name.to_ascii_uppercase()))
                .filter(|v| !v.trim().is_empty())
        };
        Self {
            http: read("http_proxy"),
            https: read("https_proxy"),
            all: read("all_proxy"),
            no_proxy: read("no_proxy"),
        }
    }

    /// The proxy for `scheme://host`, if any.
    pub(crate) fn choose(&self, scheme: &str, host: &str) -> Option<&str> {
        let own = if scheme == "https" {
            &self.https
        } else {
            &self.http
        };
        let proxy = own.as_deref().or(self.all.as_deref())?;
        (!self.is_direct(host)).then_some(proxy)
    }

    /// `example.com`, `.example.com` and `*.example.com` all cover the host and what is
    /// below it.
    fn is_direct(&self, host: &str) -> bool {
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        self.no_proxy
            .iter()
            .flat_map(|list| list.split(','))
            .any(|entry| {
                let entry = entry.trim().to_ascii_lowercase();
                if entry == "*" {
                    return true;
                }
                let name = entry.trim_start_matches('*').trim_start_matches('.');
                let name = name.trim_matches(['[', ']']);
                !name.is_empty()
                    && host
                        .strip_suffix(name)
                        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_then_all_and_lower_case_wins() {
        let vars = [
            ("HTTPS_PROXY", "http://upper:1"),
            ("https_proxy", "http://lower:1"),
            ("ALL_PROXY", "socks5://all:2"),
            ("HTTP_PROXY", " "),
        ];
        let get = |name: &str| {
            vars.iter()
                .find(|(n, _)| *n == name)
                .map(|(_, value)| (*value).to_owned())
        };
        let proxies = Proxies::from_vars(&get);
        assert_eq!(proxies.choose("https", "a.b"), Some("http://lower:1"));
        assert_eq!(proxies.choose("http", "a.b"), Some("socks5://all:2"));
        assert_eq!(Proxies::default().choose("http", "a.b"), None);
    }

    #[test]
    fn no_proxy_covers_hosts_and_what_is_below_them() {
        let proxies = Proxies {
            all: Some("http://p:1".into()),
            no_proxy: Some("localhost, .Corp.example,*.wild.example,127.0.0.1".into()),
            ..Proxies::default()
        };
        for host in [
            "localhost",
            "corp.example",
            "a.corp.EXAMPLE",
            "x.wild.example",
            "127.0.0.1",
        ] {
            assert_eq!(proxies.choose("https", host), None, "{host}");
        }
        for host in ["notlocalhost", "xcorp.example", "example", "huggingface.co"] {
            assert!(proxies.choose("https", host).is_some(), "{host}");
        }
        let none = Proxies {
            no_proxy: Some("*".into()),
            ..proxies
        };
        assert_eq!(none.choose("https", "huggingface.co"), None);
    }
}
