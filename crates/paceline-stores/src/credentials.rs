//! Credentials from the files and variables of a user. They are read by each process, and never
//! written anywhere.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

fn home() -> Option<PathBuf> {
    env::var_os("HOME")
        .or_else(|| env::var_os("USERPROFILE"))
        .map(PathBuf::from)
}

/// Prefixes of the names of environment variables that affect a client.
const SETTINGS: [&str; 6] = ["AWS_", "AZURE_", "GOOGLE_", "HF_", "NETRC", "PACELINE_"];

/// Return a number that changes if variables that affect clients change.
pub(crate) fn settings() -> u64 {
    let mut found: Vec<_> = env::vars_os()
        .filter(|(name, _)| {
            let name = name.to_string_lossy();
            SETTINGS.iter().any(|one| name.starts_with(one))
        })
        .collect();
    found.sort();
    let mut hasher = DefaultHasher::new();
    found.hash(&mut hasher);
    hasher.finish()
}

/// Return true if any of these variables is set.
pub(crate) fn has_variable(names: &[&str]) -> bool {
    names
        .iter()
        .any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Return true if the user has requested unsigned requests.
pub(crate) fn is_anonymous() -> bool {
    env::var("PACELINE_ANONYMOUS").is_ok_and(|value| !matches!(value.as_str(), "" | "0"))
}

/// Return the settings of the AWS profile that is named in the environment, or the default one.
pub(crate) fn aws_profile() -> HashMap<String, String> {
    let name = env::var("AWS_PROFILE").unwrap_or_else(|_| "default".into());
    let file = |variable: &str, usual: &str| {
        let path = env::var_os(variable).map(PathBuf::from);
        path.or_else(|| Some(home()?.join(".aws").join(usual)))
            .and_then(|path| fs::read_to_string(path).ok())
            .unwrap_or_default()
    };
    let config = file("AWS_CONFIG_FILE", "config");
    let mut found = section(&config, &format!("profile {name}"));
    if name == "default" {
        found.extend(section(&config, "default"));
    }
    found.extend(section(
        &file("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        &name,
    ));
    found
}

/// Return the settings of one section of a file of sections.
fn section(text: &str, name: &str) -> HashMap<String, String> {
    let mut found = HashMap::new();
    let mut inside = false;
    for line in text.lines() {
        let line = line.trim();
        if let Some(title) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            inside = title.trim() == name;
        } else if inside
            && !line.starts_with(['#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            found.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    found
}

/// Return the header `Authorization` for a host: a token of Hugging Face, or an entry of .netrc.
pub(crate) fn authorization(host: &str) -> Option<Login> {
    if is_anonymous() {
        return None;
    }
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    if host == "huggingface.co" || host.ends_with(".hf.co") {
        return hugging_face_token().map(Login::Bearer);
    }
    let path = env::var_os("NETRC").map(PathBuf::from);
    let path = path.or_else(|| Some(home()?.join(".netrc")))?;
    netrc(&fs::read_to_string(path).ok()?, host)
}

fn hugging_face_token() -> Option<String> {
    if let Ok(token) = env::var("HF_TOKEN") {
        return Some(token.trim().to_owned()).filter(|token| !token.is_empty());
    }
    let folder = env::var_os("HF_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| Some(home()?.join(".cache").join("huggingface")))?;
    let token = fs::read_to_string(folder.join("token")).ok()?;
    Some(token.trim().to_owned()).filter(|token| !token.is_empty())
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
    fn profiles() {
        let text =
            "[default]\nregion = a\n# [x]\n[profile b]\nregion=b # no\nendpoint_url = http://h\n";
        assert_eq!(section(text, "default")["region"], "a");
        assert_eq!(section(text, "profile b")["endpoint_url"], "http://h");
        assert!(section(text, "x").is_empty());
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
