//! Clients of stores. They use the credentials of the user.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use http::HeaderValue;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use crate::address::{Address, Scheme};
use crate::credentials::{Login, authorization, aws_profile, has_variable, is_anonymous};
use crate::requests::Connector;
use paceline_formats::error::{Error, Result};

/// Environment variables with AWS credentials: one of them is set if the environment has
/// credentials.
const AWS: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_METADATA_ENDPOINT",
];
const GOOGLE: [&str; 5] = [
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_SKIP_SIGNATURE",
];
const AZURE: [&str; 9] = [
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN",
    "AZURE_STORAGE_CLIENT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_FEDERATED_TOKEN_FILE",
    "IDENTITY_ENDPOINT",
];

/// Client of a bucket or host.
pub(crate) struct Client {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// The same bucket; `None` for servers, which have no lists.
    pub(crate) lists: Option<Arc<dyn PaginatedListStore>>,
}

impl Client {
    fn of_bucket(store: impl ObjectStore + PaginatedListStore) -> Self {
        let store = Arc::new(store);
        Client {
            objects: store.clone(),
            lists: Some(store),
        }
    }
}

/// Create the client of an address's bucket or host.
///
/// # Errors
/// [`Error::Unsupported`] if a setting is missing.
pub(crate) fn connect(address: &Address) -> Result<Client> {
    let made = match address.scheme {
        Scheme::S3 => s3(address)?.build().map(Client::of_bucket),
        Scheme::Gs => google(address).build().map(Client::of_bucket),
        Scheme::Az => azure(address).build().map(Client::of_bucket),
        Scheme::Http | Scheme::Https => http(address).build().map(|server| Client {
            objects: Arc::new(server),
            lists: None,
        }),
    };
    made.map_err(|error| {
        let advice = match address.scheme {
            Scheme::Az => "; set AZURE_STORAGE_ACCOUNT_NAME",
            _ => "",
        };
        unsupported(
            address,
            format!("the store cannot be used: {error}{advice}"),
        )
    })
}

fn unsupported(address: &Address, what: String) -> Error {
    Error::Unsupported {
        path: address.path().to_owned(),
        what,
    }
}

/// The client does not repeat requests, because [`Connector`] does.
fn once() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 0,
        ..RetryConfig::default()
    }
}

fn options() -> ClientOptions {
    ClientOptions::new().with_allow_http(true)
}

fn s3(address: &Address) -> Result<AmazonS3Builder> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&address.bucket)
        .with_client_options(options())
        .with_retry(once())
        .with_http_connector(Connector::default());
    let profile = aws_profile();
    let mut signs = has_variable(&AWS);
    if !signs && let Some(key) = profile.get("aws_access_key_id") {
        builder = builder
            .with_access_key_id(key)
            .with_secret_access_key(profile.get("aws_secret_access_key").unwrap_or(key));
        if let Some(token) = profile.get("aws_session_token") {
            builder = builder.with_token(token);
        }
        signs = true;
    }
    if !signs {
        check_profile(address, &profile)?;
        signs = is_machine_of("Amazon");
    }
    for (key, setting) in [
        (AmazonS3ConfigKey::Region, "region"),
        (AmazonS3ConfigKey::Endpoint, "endpoint_url"),
    ] {
        if let (None, Some(value)) = (builder.get_config_value(&key), profile.get(setting)) {
            builder = builder.with_config(key, value);
        }
    }
    if !signs || is_anonymous() {
        builder = builder.with_skip_signature(true);
    }
    Ok(builder)
}

/// Refuse a profile whose keys come from a login or a role.
fn check_profile(address: &Address, profile: &HashMap<String, String>) -> Result<()> {
    let others = [
        "sso_session",
        "sso_start_url",
        "role_arn",
        "credential_process",
    ];
    match others.iter().find(|key| profile.contains_key(**key)) {
        Some(key) if !is_anonymous() => Err(unsupported(
            address,
            format!(
                "the AWS profile gets its keys by {key}, which paceline does not read: export them \
                 first, with eval \"$(aws configure export-credentials --format env)\""
            ),
        )),
        _ => Ok(()),
    }
}

fn google(address: &Address) -> GoogleCloudStorageBuilder {
    let builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(&address.bucket)
        .with_client_options(options())
        .with_retry(once())
        .with_http_connector(Connector::default());
    let home = std::env::var("HOME").unwrap_or_default();
    let default = format!("{home}/.config/gcloud/application_default_credentials.json");
    let signs =
        has_variable(&GOOGLE) || fs::exists(default).unwrap_or(false) || is_machine_of("Google");
    match !signs || is_anonymous() {
        true => builder.with_skip_signature(true),
        false => builder,
    }
}

fn azure(address: &Address) -> MicrosoftAzureBuilder {
    let builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(&address.bucket)
        .with_client_options(options())
        .with_retry(once())
        .with_http_connector(Connector::default());
    match !has_variable(&AZURE) || is_anonymous() {
        true => builder.with_skip_signature(true),
        false => builder,
    }
}

fn http(address: &Address) -> HttpBuilder {
    let scheme = match address.scheme {
        Scheme::Http => "http",
        _ => "https",
    };
    let query = address.query.as_deref();
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    let login = authorization(&address.bucket);
    HttpBuilder::new()
        .with_url(format!("{scheme}://{}/{query}", address.bucket))
        .with_client_options(options())
        .with_retry(once())
        .with_http_connector(Connector {
            authorization: login.as_ref().and_then(header),
        })
}

fn header(login: &Login) -> Option<HeaderValue> {
    let text = match login {
        Login::Bearer(token) => format!("Bearer {token}"),
        Login::Basic { user, password } => {
            format!("Basic {}", base64(format!("{user}:{password}").as_bytes()))
        }
    };
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = (0..3).fold(0_u32, |number, k| {
            number << 8 | u32::from(three.get(k).copied().unwrap_or(0))
        });
        for k in 0..4 {
            let digit = DIGITS[(number >> (18 - 6 * k)) as usize & 63];
            text.push(if k <= three.len() { digit as char } else { '=' });
        }
    }
    text
}

/// Return true if this machine belongs to a cloud. The metadata of the cloud then contain
/// credentials.
fn is_machine_of(vendor: &str) -> bool {
    ["sys_vendor", "product_name"].iter().any(|name| {
        fs::read_to_string(format!("/sys/class/dmi/id/{name}"))
            .is_ok_and(|text| text.contains(vendor))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_encoded_as_rfc_4648_says() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(text.as_bytes()), encoded);
        }
    }
}
