//! Redirects of servers. They are followed to public addresses only, unless the user allows others.

use std::collections::HashSet;
use std::env;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Action, Attempt};

use crate::credentials::{is_proxy, is_set};

/// Environment variable: redirects to private networks are followed.
const PRIVATE_REDIRECTS: &str = "PACELINE_PRIVATE_REDIRECTS";
const REDIRECTS: usize = 5;
/// Beginning of the message about a redirect that is not followed.
pub(crate) const REFUSED: &str = "the redirect was refused";

/// Names of the hosts to which a client sends requests. A request to any other host follows a
/// redirect.
#[derive(Debug, Clone)]
pub(crate) struct Hosts {
    known: Arc<Mutex<Known>>,
    /// Names of proxies, which may be in a private network, but are no targets of redirects.
    proxies: Arc<HashSet<String>>,
    allows_private: bool,
    look_up: fn(&str) -> io::Result<Vec<SocketAddr>>,
}

#[derive(Debug, Default)]
struct Known {
    names: HashSet<String>,
    /// True if one of the hosts is in a private network.
    has_private: bool,
}

impl Hosts {
    pub(crate) fn new() -> Self {
        let proxies = env::vars().filter(|(name, _)| is_proxy(name));
        let host_of = |(_, value): (String, String)| {
            let has_scheme = value.contains("://");
            let address = if has_scheme {
                value
            } else {
                format!("http://{value}")
            };
            // `Url` keeps the capitals in the hosts of SOCKS proxies.
            Some(Url::parse(&address).ok()?.host_str()?.to_ascii_lowercase())
        };
        Hosts {
            known: Arc::default(),
            proxies: Arc::new(proxies.filter_map(host_of).collect()),
            allows_private: is_set(PRIVATE_REDIRECTS),
            look_up: |name| (name, 0).to_socket_addrs().map(Iterator::collect),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|lock| lock.into_inner())
    }

    /// Add the host of a request, which may be in a private network.
    pub(crate) fn add(&self, host: &str) {
        // Names of hosts that are looked up later are in lower case, as in redirects, except names
        // of proxies.
        let host = host.to_ascii_lowercase();
        let mut known = self.lock();
        if !known.names.contains(&host) {
            known.has_private |= is_private(&host);
            known.names.insert(host);
        }
    }

    /// Return true if redirects to private networks are followed.
    fn may_be_private(&self) -> bool {
        self.allows_private || self.lock().has_private
    }

    /// Return the reason for which a redirect is not followed, if there is one.
    fn reason_against(&self, first: &Url, to: &Url, n_redirects: usize) -> Option<String> {
        let host = to.host_str().unwrap_or_default();
        if n_redirects > REDIRECTS {
            Some(format!("it redirects more than {REDIRECTS} times"))
        } else if !matches!(to.scheme(), "http" | "https") {
            Some(format!("it redirects to an address of {}://", to.scheme()))
        } else if first.scheme() == "https" && to.scheme() == "http" {
            Some("it redirects from https:// to http://".to_owned())
        } else if (is_private(host) || self.proxies.contains(host)) && !self.may_be_private() {
            Some(private(host))
        } else {
            None
        }
    }

    /// Follow a redirect, unless it leads from a public server to a private network, or from an
    /// encrypted connection to an unencrypted one.
    pub(crate) fn redirect(&self, attempt: Attempt<'_>) -> Action {
        let previous = attempt.previous();
        let against = previous
            .first()
            .and_then(|first| self.reason_against(first, attempt.url(), previous.len()));
        match against {
            Some(reason) => attempt.error(format!("{REFUSED}: {reason}")),
            None => attempt.follow(),
        }
    }

    /// Look up the addresses of a host. Of the target of a redirect, only public ones are returned.
    fn addresses_of(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let name = &*name.to_ascii_lowercase();
        let mut found = (self.look_up)(name)?;
        let is_public = |one: &SocketAddr| !is_private_ip(one.ip());
        if self.lock().names.contains(name) {
            self.lock().has_private |= !found.iter().any(is_public);
        } else if !self.proxies.contains(name) && !self.may_be_private() {
            found.retain(is_public);
            if found.is_empty() {
                return Err(io::Error::other(format!("{REFUSED}: {}", private(name))));
            }
        }
        Ok(found)
    }
}

fn private(host: &str) -> String {
    format!(
        "it redirects to {host}, which is in a private network; {PRIVATE_REDIRECTS}=1 allows this"
    )
}

impl Resolve for Hosts {
    fn resolve(&self, name: Name) -> Resolving {
        let hosts = self.clone();
        let looked_up = tokio::task::spawn_blocking(move || hosts.addresses_of(name.as_str()));
        Box::pin(async move {
            let found: Addrs = Box::new(looked_up.await??.into_iter());
            Ok(found)
        })
    }
}

/// Return true for an address of a private network, and for names of this machine.
fn is_private(host: &str) -> bool {
    let name = host.trim_matches(['[', ']']).trim_end_matches('.');
    match name.parse() {
        Ok(ip) => is_private_ip(ip),
        Err(_) => name.is_empty() || name == "localhost" || name.ends_with(".localhost"),
    }
}

fn is_private_ip(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            // 100.64.0.0/10 are addresses within a provider's network.
            let is_shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
            ip.is_private()
                || ip.is_loopback()
                || ip.is_link_local()
                || is_shared
                || ip.octets()[0] == 0
                || ip.is_broadcast()
        }
        IpAddr::V6(ip) => {
            ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_unique_local()
                || ip.is_unicast_link_local()
                || ipv4_within(ip).is_some_and(|ip| is_private_ip(ip.into()))
        }
    }
}

/// Return the IPv4 address that a mapped (`::ffff:`) or translated (`64:ff9b::`) address contains.
fn ipv4_within(ip: Ipv6Addr) -> Option<std::net::Ipv4Addr> {
    let translated = match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some((u32::from(high) << 16 | u32::from(low)).into())
        }
        _ => None,
    };
    ip.to_ipv4_mapped().or(translated)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts of a name service with a public name, a private one, and one of both kinds.
    fn hosts(first: &str) -> Hosts {
        let hosts = Hosts {
            known: Arc::default(),
            proxies: Arc::new(["proxy.lan".to_owned()].into()),
            allows_private: false,
            look_up: |name| {
                let ips: &[[u8; 4]] = match name {
                    "public.org" | "other.org" => &[[8, 8, 8, 8]],
                    "both.org" => &[[10, 0, 0, 1], [8, 8, 8, 8]],
                    "private.org" | "store.lan" | "proxy.lan" => &[[10, 0, 0, 1]],
                    _ => return Err(io::Error::other("no such name")),
                };
                Ok(ips.iter().map(|&ip| SocketAddr::from((ip, 0))).collect())
            },
        };
        hosts.add(first);
        hosts
    }

    #[test]
    fn names_of_redirects_are_public() {
        let public = hosts("public.org");
        assert_eq!(public.addresses_of("public.org").unwrap().len(), 1);
        assert_eq!(public.addresses_of("other.org").unwrap().len(), 1);
        assert_eq!(public.addresses_of("both.org").unwrap().len(), 1);
        assert_eq!(public.addresses_of("proxy.lan").unwrap().len(), 1);
        let message = public.addresses_of("private.org").unwrap_err().to_string();
        assert!(
            message.contains("private.org, which is in a private"),
            "{message}"
        );
        // The user has named a private server.
        let private = hosts("store.lan");
        assert_eq!(private.addresses_of("store.lan").unwrap().len(), 1);
        assert_eq!(private.addresses_of("private.org").unwrap().len(), 1);
        let capitals = hosts("Store.LAN");
        assert_eq!(capitals.addresses_of("store.lan").unwrap().len(), 1);
        assert!(hosts("LocalHost").may_be_private());
        assert_eq!(public.addresses_of("Proxy.lan").unwrap().len(), 1);
        let literal = hosts("192.168.0.1");
        assert_eq!(literal.addresses_of("private.org").unwrap().len(), 1);
        let allowed = Hosts {
            allows_private: true,
            ..hosts("public.org")
        };
        assert_eq!(allowed.addresses_of("private.org").unwrap().len(), 1);
    }

    #[test]
    fn redirects_that_are_not_followed() {
        let public = hosts("public.org");
        let against = |first: &str, to: &str| {
            public.reason_against(&first.parse().unwrap(), &to.parse().unwrap(), 1)
        };
        for (to, why) in [
            ("file:///etc/passwd", "an address of file://"),
            ("http://other.org/md.xtc", "from https:// to http://"),
            ("https://10.0.0.1/md.xtc", "private network"),
            ("https://[::ffff:10.0.0.1]/md.xtc", "private network"),
            ("https://0x7f000001/md.xtc", "private network"),
            ("https://localhost./md.xtc", "private network"),
            ("https://proxy.lan/md.xtc", "private network"),
        ] {
            let reason = against("https://public.org/a", to).unwrap();
            assert!(reason.contains(why), "{reason}");
        }
        assert_eq!(against("http://public.org/a", "https://other.org/a"), None);
        let (one, other) = ("http://public.org".parse(), "http://other.org".parse());
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(public.reason_against(&one, &other, REDIRECTS + 1).is_some());
        let private = hosts("127.0.0.1");
        let local = "http://localhost/a".parse().unwrap();
        assert_eq!(private.reason_against(&one, &local, 1), None);
    }

    #[test]
    fn private_addresses() {
        for host in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "172.16.0.1",
            "169.254.169.254",
            "100.100.0.1",
            "localhost",
            "a.localhost.",
            "[::1]",
            "[fe80::1]",
            "[::ffff:10.0.0.1]",
            "[64:ff9b::a00:1]",
            "0.0.0.0",
            "",
        ] {
            assert!(is_private(host), "{host}");
        }
        for host in [
            "8.8.8.8",
            "example.org",
            "[2001:db8::1]",
            "172.32.0.1",
            "100.128.0.1",
            "[64:ff9b::808:808]",
        ] {
            assert!(!is_private(host), "{host}");
        }
    }
}
