//! Credentials from the files and variables of a user. They are read by each process, and never
//! written anywhere.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::Duration;

/// Environment variable: time for which a failing request is repeated, s.
pub(crate) const RETRY_SECONDS: &str = "PACELINE_RETRY_SECONDS";

/// Settings of a profile of AWS.
pub(crate) type Profile = HashMap<String, String>;

pub(crate) fn home() -> Option<PathBuf> {
    env::var_os("HOME")
        .or_else(|| env::var_os("USERPROFILE"))
        .map(PathBuf::from)
}

/// Prefixes of the names of environment variables that affect a client.
const SETTINGS: [&str; 8] = [
    "AWS_",
    "AZURE_",
    "GOOGLE_",
    "IDENTITY_",
    "HF_",
    "NETRC",
    "PACELINE_",
    "SSL_CERT_",
];

/// Return the name of the variable that sets the proxy of requests, if there is one.
pub(crate) fn proxy_variable(scheme: &str) -> Option<String> {
    let own = format!("{scheme}_proxy");
    let names = [
        own.to_ascii_uppercase(),
        own,
        "ALL_PROXY".into(),
        "all_proxy".into(),
    ];
    names
        .into_iter()
        .find(|name| has_variable(&[name.as_str()]))
}

/// Return true for the name of a variable with the address of a proxy.
pub(crate) fn is_proxy(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    matches!(&*name, "http_proxy" | "https_proxy" | "all_proxy")
}

/// Return a number that changes if variables that affect clients change.
pub(crate) fn settings() -> u64 {
    let mut found: Vec<_> = env::vars_os()
        .filter(|(name, _)| {
            let name = name.to_string_lossy();
            SETTINGS.iter().any(|one| name.starts_with(one))
                || is_proxy(&name)
                || name.eq_ignore_ascii_case("no_proxy")
        })
        .collect();
    found.sort();
    let mut hasher = DefaultHasher::new();
    found.hash(&mut hasher);
    hasher.finish()
}

/// Return the environment variables that a client of a store uses, and the variables that all
/// clients use, if they are not empty. `is_known` returns true for the lower-case names of the
/// former.
///
/// # Errors
/// A sentence about a variable whose value cannot be used.
pub(crate) fn variables_of(
    prefixes: &[&str],
    is_known: impl Fn(&str) -> bool,
) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    for (name, value) in env::vars_os() {
        let Ok(name) = name.into_string() else {
            continue;
        };
        let is_own = prefixes.iter().any(|prefix| name.starts_with(prefix))
            && (name.starts_with("IDENTITY_") || is_known(&name.to_ascii_lowercase()));
        if value.is_empty() || !(is_own || name == RETRY_SECONDS || is_proxy(&name)) {
            continue;
        }
        match value.into_string() {
            Ok(value) => {
                check(&name, &value)?;
                found.push((name, value));
            }
            Err(_) if is_file(&name) => {}
            Err(_) => return Err(format!("the value of {name} is not UTF-8: set it again")),
        }
    }
    // The order of variables in the environment is arbitrary.
    found.sort();
    Ok(found)
}

/// Return true if a variable contains the path of a file, or the content of one.
fn is_file(name: &str) -> bool {
    name.ends_with("_FILE")
        || name.ends_with("_PATH")
        || name.starts_with("GOOGLE_SERVICE_ACCOUNT")
        || matches!(name, "GOOGLE_APPLICATION_CREDENTIALS" | "HF_HOME")
}

/// Check the value of an environment variable that is sent to a server or is an address.
pub(crate) fn check(name: &str, value: &str) -> Result<(), String> {
    if name == RETRY_SECONDS {
        return match value.parse().map(Duration::try_from_secs_f64) {
            Ok(Ok(_)) => Ok(()),
            _ => Err(format!(
                "{name}: expected a number of seconds, found {value:?}"
            )),
        };
    }
    if !is_file(name) {
        check_word(name, value)?;
    }
    let is_flag = name.contains("_USE_");
    let is_server = name.contains("ENDPOINT") || name.ends_with("_URL") || name.ends_with("_URI");
    let (server, expected) = match value.strip_prefix('/') {
        _ if is_proxy(name) && !value.contains("://") => (
            format!("http://{value}"),
            "http://host:port or socks5h://host:port",
        ),
        _ if is_proxy(name) => (value.to_owned(), "http://host:port or socks5h://host:port"),
        Some(_) if name.ends_with("RELATIVE_URI") => (format!("http://h{value}"), "/path"),
        None if name.ends_with("RELATIVE_URI") => (String::new(), "/path"),
        _ if is_server && !is_flag => (value.to_owned(), "https://host or http://host:port"),
        _ => return Ok(()),
    };
    let is_scheme = |scheme: &str| match scheme {
        "http" | "https" => true,
        "socks4" | "socks4a" | "socks5" | "socks5h" => is_proxy(name),
        _ => false,
    };
    let is_usable = server.parse::<http::Uri>().is_ok()
        && reqwest::Url::parse(&server).is_ok_and(|url| url.has_host() && is_scheme(url.scheme()));
    match is_usable {
        true => Ok(()),
        // The value may contain a password, and is not quoted.
        false if value.contains('@') => Err(format!("{name}: expected {expected}")),
        false => Err(format!("{name}: expected {expected}, found {value:?}")),
    }
}

/// Check a value that is sent to a server.
///
/// # Errors
/// A sentence without the value, which may be secret.
pub(crate) fn check_word(name: &str, value: &str) -> Result<(), String> {
    match value.chars().all(|one| matches!(one, ' '..='~')) {
        true => Ok(()),
        false => Err(format!(
            "{name} contains a line break or another character that cannot be sent to a server: set it \
             again"
        )),
    }
}

/// Return true if any of these variables is set and not empty.
pub(crate) fn has_variable(names: &[&str]) -> bool {
    names
        .iter()
        .any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Return true if a variable is set to a value other than 0, and not empty.
pub(crate) fn is_set(name: &str) -> bool {
    env::var(name).is_ok_and(|value| !matches!(value.as_str(), "" | "0"))
}

/// Return true if the user has requested unsigned requests.
pub(crate) fn is_anonymous() -> bool {
    is_set("PACELINE_ANONYMOUS")
}

/// Return the settings of the AWS profile that is named in the environment, or the default one.
///
/// # Errors
/// A sentence if there is no profile of this name.
pub(crate) fn aws_profile() -> Result<Profile, String> {
    let named = env::var("AWS_PROFILE").ok().filter(|name| !name.is_empty());
    let name = named.clone().unwrap_or_else(|| "default".into());
    let file = |variable: &str, usual: &str| {
        let path = env::var_os(variable).map(PathBuf::from);
        path.filter(|path| !path.as_os_str().is_empty())
            .or_else(|| Some(home()?.join(".aws").join(usual)))
            .and_then(|path| fs::read_to_string(path).ok())
            .unwrap_or_default()
    };
    let config = file("AWS_CONFIG_FILE", "config");
    let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
    let is_default = name == "default";
    let sections = [
        section(&config, &format!("profile {name}")),
        section(&config, &name).filter(|_| is_default),
        section(&credentials, &name),
    ];
    match named {
        Some(name) if sections.iter().all(Option::is_none) => Err(format!(
            "AWS_PROFILE: neither ~/.aws/config nor ~/.aws/credentials has a profile {name}"
        )),
        _ => Ok(sections.into_iter().flatten().flatten().collect()),
    }
}

/// Return the settings in one section of an INI file, if the file has this section.
fn section(text: &str, name: &str) -> Option<Profile> {
    let mut found = None;
    let mut inside = false;
    for line in text.lines() {
        let line = without_comment(line);
        if let Some(title) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            inside = title.trim() == name;
            if inside {
                found.get_or_insert_default();
            }
        } else if let (true, Some((key, value))) = (inside, line.split_once('=')) {
            let settings: &mut Profile = found.get_or_insert_default();
            settings.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    found
}

/// Remove a comment, which begins with `#` or `;` at the beginning of a line or after a blank.
fn without_comment(line: &str) -> &str {
    let is_begin = |(at, _): &(usize, &str)| {
        let before = &line[..*at];
        before.is_empty() || before.ends_with([' ', '\t'])
    };
    let begin = line.match_indices(['#', ';']).find(is_begin);
    line[..begin.map_or(line.len(), |(at, _)| at)].trim()
}

/// Return the login for a host: a token of Hugging Face, or an entry of .netrc.
///
/// # Errors
/// A sentence about a token or a file that cannot be used.
pub(crate) fn authorization(host: &str) -> Result<Option<Login>, String> {
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    if host == "huggingface.co" || host.ends_with(".hf.co") {
        return Ok(hugging_face_token()?.map(Login::Bearer));
    }
    let named = env::var_os("NETRC").filter(|path| !path.is_empty());
    let path = named.clone().map(PathBuf::from);
    let Some(path) = path.or_else(|| Some(home()?.join(".netrc"))) else {
        return Ok(None);
    };
    match fs::read_to_string(&path) {
        Ok(text) => Ok(netrc(&text, host)),
        Err(error) if named.is_some() => {
            let path = path.display();
            Err(format!(
                "the file of NETRC, {path}, cannot be read: {error}"
            ))
        }
        Err(_) => Ok(None),
    }
}

fn hugging_face_token() -> Result<Option<String>, String> {
    let (source, token) = match env::var("HF_TOKEN") {
        Ok(token) if !token.trim().is_empty() => ("HF_TOKEN".to_owned(), token),
        _ => {
            let folder = env::var_os("HF_HOME").map(PathBuf::from);
            let folder = folder.or_else(|| Some(home()?.join(".cache").join("huggingface")));
            let path = folder.unwrap_or_default().join("token");
            let source = format!("the token in {}", path.display());
            (source, fs::read_to_string(path).unwrap_or_default())
        }
    };
    check_word(&source, token.trim())?;
    Ok(Some(token.trim().to_owned()).filter(|token| !token.is_empty()))
}

/// Credentials for a server.
#[derive(PartialEq, Eq)]
pub(crate) enum Login {
    Bearer(String),
    Basic { user: String, password: String },
}

/// Find the entry of a host in a .netrc.
fn netrc(text: &str, host: &str) -> Option<Login> {
    let mut words = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default())
        .flat_map(str::split_whitespace);
    let (mut matches, mut user, mut password) = (false, None, None);
    while let Some(word) = words.next() {
        match word {
            "machine" | "default" => {
                if matches && password.is_some() {
                    break;
                }
                matches = word == "default" || words.next() == Some(host);
                (user, password) = (None, None);
            }
            "login" if matches => user = words.next(),
            "password" if matches => password = words.next(),
            _ => {}
        }
    }
    Some(Login::Basic {
        user: user?.to_owned(),
        password: password?.to_owned(),
    })
    .filter(|_| matches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_variables() {
        for (name, value) in [
            ("AWS_ENDPOINT_URL", "http://localhost:9000"),
            ("AWS_USE_FIPS_ENDPOINT", "true"),
            (
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                "/v2/credentials/1?id=2",
            ),
            ("AZURE_STORAGE_ACCOUNT_KEY", "a+b/c=="),
            ("GOOGLE_SERVICE_ACCOUNT_KEY", "{\n}"),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/home/ü/key.json"),
            ("PACELINE_RETRY_SECONDS", "0.5"),
            ("http_proxy", "proxy:3128"),
            ("HTTPS_PROXY", "http://me:secret@proxy:3128/"),
            ("ALL_PROXY", "socks5://localhost:1080"),
        ] {
            assert_eq!(check(name, value), Ok(()));
        }
        for (name, value) in [
            ("AWS_ENDPOINT_URL", "localhost:9000"),
            ("AWS_ENDPOINT_URL_S3", "not a url"),
            ("AWS_ENDPOINT_URL", "http://"),
            ("AWS_ENDPOINT_URL", "http://me:secret@a b"),
            ("AWS_METADATA_ENDPOINT", "file:///etc/passwd"),
            ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "a b"),
            ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/a b"),
            ("AWS_SESSION_TOKEN", "secret\n"),
            ("AZURE_STORAGE_TOKEN", "secret\u{e9}"),
            ("GOOGLE_BASE_URL", "storage"),
            ("IDENTITY_HEADER", "secret\r"),
            ("PACELINE_RETRY_SECONDS", "abc"),
            ("PACELINE_RETRY_SECONDS", "-1"),
            ("PACELINE_RETRY_SECONDS", "inf"),
            ("http_proxy", "not a url"),
            ("https_proxy", "ftp://proxy"),
            ("all_proxy", "socks6://proxy"),
            ("AWS_ENDPOINT_URL", "socks5://proxy"),
        ] {
            let message = check(name, value).unwrap_err();
            assert!(message.starts_with(name), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn profiles() {
        let text = "[default]\nregion = a\n# [x]\n[profile b] ; mine\nregion=b # no\n ; region = c\n\
                    endpoint_url = http://h/#a\nkey = a;b\t#c\n[profile empty]\n[c]\n";
        assert_eq!(section(text, "default").unwrap()["region"], "a");
        let b = section(text, "profile b").unwrap();
        assert_eq!(b["region"], "b");
        assert_eq!(b["endpoint_url"], "http://h/#a");
        assert_eq!(b["key"], "a;b");
        assert_eq!(section(text, "profile empty"), Some(Profile::new()));
        assert_eq!(section(text, "x"), None);
    }

    #[test]
    fn entries_of_netrc() {
        let text = "machine a login me password one\nmachine b\n  login you # no\n  password two\n";
        let basic = |user: &str, password: &str| {
            Some(Login::Basic {
                user: user.into(),
                password: password.into(),
            })
        };
        assert!(netrc(text, "a") == basic("me", "one"));
        assert!(netrc(text, "b") == basic("you", "two"));
        assert!(netrc(text, "c").is_none());
        let others = format!("{text}default login x password three");
        assert!(netrc(&others, "c") == basic("x", "three"));
    }
}
