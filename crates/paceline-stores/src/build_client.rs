//! Clients of stores. They use the credentials of the user.

use std::env;
use std::fs;
use std::str::FromStr;
use std::sync::Arc;

use http::HeaderValue;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use crate::address::{Address, Scheme};
use crate::credentials::{
    Login, Profile, authorization, aws_profile, check, check_word, has_variable, home,
    is_anonymous, variables_of,
};
use crate::http_requests::{Connector, Container};
use paceline_formats::error::{Error, Result};

/// Environment variables of AWS. If the environment has credentials, at least one of them is set.
const AWS: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    RELATIVE_URI,
    FULL_URI,
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

/// Variables of AWS for the credentials of a container.
const FULL_URI: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
const RELATIVE_URI: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
const TOKEN_FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
const TOKEN: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN";

/// Command that turns the credentials of a profile or of a container into variables.
const EXPORT: &str = "eval \"$(aws configure export-credentials --format env)\"";

/// File of `gcloud auth application-default login`, in the folder of the user.
const GOOGLE_LOGIN: &str = ".config/gcloud/application_default_credentials.json";

/// Client of a bucket or host.
pub(crate) struct Client {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// Interface that lists the objects of the bucket; `None` for servers, which have no lists.
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

/// Name and value of an environment variable.
type Variable = (String, String);

/// Create the client of an address's bucket or host.
///
/// # Errors
/// [`Error::Unsupported`] if a setting is missing or wrong.
pub(crate) fn connect(address: &Address) -> Result<Client> {
    let refused = |what| Error::Unsupported {
        path: address.path().to_owned(),
        what,
    };
    let set = match address.scheme {
        Scheme::S3 => variables_of(&["AWS_"], is_key::<AmazonS3ConfigKey>),
        Scheme::Gs => variables_of(&["GOOGLE_"], is_key::<GoogleConfigKey>),
        Scheme::Az => variables_of(&["AZURE_", "IDENTITY_"], is_key::<AzureConfigKey>),
        Scheme::Http | Scheme::Https => variables_of(&[], |_| false),
    };
    let set = set.map_err(refused)?;
    let error = match build(address, &set).map_err(refused)? {
        Ok(client) => return Ok(client),
        Err(error) => error.to_string(),
    };
    // A variable is wrong if there is no error without it.
    let is_wrong = |k: &usize| {
        let others = [&set[..*k], &set[k + 1..]].concat();
        matches!(build(address, &others), Ok(Ok(_)))
    };
    let reason = error.split_once("error: ").map_or(&*error, |(_, it)| it);
    // The rest of this message may quote the file, which contains a key.
    let decode = "Unable to decode service account file";
    let reason = match reason.contains(decode) {
        true => decode,
        false => reason,
    };
    Err(refused(match (0..set.len()).find(is_wrong) {
        Some(k) => format!("{} cannot be used: {reason}", set[k].0),
        None if reason.contains("Account must be") => "set AZURE_STORAGE_ACCOUNT_NAME".into(),
        None => format!("the store cannot be used: {reason}"),
    }))
}

fn is_key<K: FromStr>(name: &str) -> bool {
    name.parse::<K>().is_ok()
}

/// Create a client with the values of environment variables. The outer error is a message about a
/// wrong setting; the inner one is that of `object_store`.
fn build(
    address: &Address,
    set: &[Variable],
) -> std::result::Result<object_store::Result<Client>, String> {
    Ok(match address.scheme {
        Scheme::S3 => s3(address, set)?.build().map(Client::of_bucket),
        Scheme::Gs => google(address, set).build().map(Client::of_bucket),
        Scheme::Az => azure(address, set).build().map(Client::of_bucket),
        Scheme::Http | Scheme::Https => http(address)?.build().map(|server| Client {
            objects: Arc::new(server),
            lists: None,
        }),
    })
}

/// Pass environment variables to the builder of a client, if the builder accepts their names.
fn with_variables<B, K: FromStr>(
    builder: B,
    set: &[Variable],
    with: impl Fn(B, K, String) -> B,
) -> B {
    set.iter().fold(builder, |builder, (name, value)| {
        match name.to_ascii_lowercase().parse() {
            Ok(key) => with(builder, key, value.clone()),
            Err(_) => builder,
        }
    })
}

/// Return true if there are credentials for requests to an address, or if the machine may have
/// some.
pub(crate) fn has_credentials(address: &Address) -> bool {
    match address.scheme {
        Scheme::S3 => {
            let keys = |profile: Profile| profile.contains_key("aws_access_key_id");
            has_variable(&AWS) || aws_profile().is_ok_and(keys) || is_machine_of("Amazon")
        }
        Scheme::Gs => {
            let default = home().map(|home| home.join(GOOGLE_LOGIN));
            has_variable(&GOOGLE)
                || default.is_some_and(|file| file.exists())
                || is_machine_of("Google")
        }
        Scheme::Az => has_variable(&AZURE),
        Scheme::Http | Scheme::Https => {
            authorization(&address.bucket).is_ok_and(|login| login.is_some())
        }
    }
}

/// Return settings with which a client does not repeat requests, because [`Connector`] does.
fn once() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 0,
        ..RetryConfig::default()
    }
}

/// Options of all clients. They replace those of variables such as `AWS_CONNECT_TIMEOUT`, because
/// [`Connector`] sets the time limits of requests.
fn options() -> ClientOptions {
    ClientOptions::new().with_allow_http(true)
}

fn s3(address: &Address, set: &[Variable]) -> std::result::Result<AmazonS3Builder, String> {
    let builder = AmazonS3Builder::new()
        .with_retry(once())
        .with_http_connector(Connector::default());
    let mut builder = with_variables(builder, set, AmazonS3Builder::with_config)
        .with_client_options(options())
        .with_bucket_name(&address.bucket);
    let is_unsigned = is_anonymous() || skipping(address.scheme).is_some();
    let signs = has_credentials(address) && !is_unsigned;
    let profile = match is_unsigned || has_variable(&AWS) {
        // The keys of the profile are not needed, so that its errors are ignored.
        true => aws_profile().unwrap_or_default(),
        false => aws_profile()?,
    };
    if signs && has_variable(&AWS) {
        let value_of = |name: &str| {
            let mut found = set.iter().filter(|(one, _)| one == name);
            found.next().map(|(_, value)| value.as_str())
        };
        check_sources(value_of)?;
        if let (Some(uri), None) = (value_of(FULL_URI), value_of(TOKEN_FILE))
            && value_of(RELATIVE_URI).is_none()
        {
            // `object_store` uses `FULL_URI` only together with a token file. The builder therefore
            // gets a relative address, and [`Connector`] sends the requests for this address to
            // `uri`.
            builder = builder
                .with_config(AmazonS3ConfigKey::ContainerCredentialsRelativeUri, "/")
                .with_http_connector(Connector {
                    container: Some(Container::of(uri)?),
                    ..Connector::default()
                });
        }
    } else if signs && let Some(key) = profile.get("aws_access_key_id") {
        let Some(secret) = profile.get("aws_secret_access_key") else {
            return Err(
                "the AWS profile has aws_access_key_id, but no aws_secret_access_key".into(),
            );
        };
        builder = builder
            .with_access_key_id(key)
            .with_secret_access_key(secret);
        if let Some(token) = profile.get("aws_session_token") {
            check_word("aws_session_token of the AWS profile", token)?;
            builder = builder.with_token(token);
        }
        check_word("aws_access_key_id of the AWS profile", key)?;
    } else if !is_unsigned {
        check_profile(&profile)?;
    }
    for (key, setting) in [
        (AmazonS3ConfigKey::Region, "region"),
        (AmazonS3ConfigKey::Endpoint, "endpoint_url"),
    ] {
        if let (None, Some(value)) = (builder.get_config_value(&key), profile.get(setting)) {
            if key == AmazonS3ConfigKey::Endpoint {
                check("endpoint_url (AWS_ENDPOINT_URL) of the AWS profile", value)?;
            }
            builder = builder.with_config(key, value);
        }
    }
    if let Some(region) = builder.get_config_value(&AmazonS3ConfigKey::Region)
        && !region
            .chars()
            .all(|one| one.is_ascii_alphanumeric() || "-_.".contains(one))
    {
        return Err(format!(
            "the region of AWS_REGION, AWS_DEFAULT_REGION or the AWS profile is {region:?}: expected a \
             name such as eu-north-1"
        ));
    }
    match signs {
        true => Ok(builder),
        false => Ok(builder.with_skip_signature(true)),
    }
}

/// Return the name of the variable that makes `object_store` send requests without signatures, if
/// it is set.
pub(crate) fn skipping(scheme: Scheme) -> Option<&'static str> {
    let name = match scheme {
        Scheme::S3 => "AWS_SKIP_SIGNATURE",
        Scheme::Gs => "GOOGLE_SKIP_SIGNATURE",
        Scheme::Az => "AZURE_SKIP_SIGNATURE",
        Scheme::Http | Scheme::Https => return None,
    };
    // These are the values that `object_store` reads as true.
    let is_yes = |value: String| {
        matches!(
            &*value.to_ascii_lowercase(),
            "1" | "true" | "on" | "yes" | "y"
        )
    };
    env::var(name).is_ok_and(is_yes).then_some(name)
}

/// Refuse the variables of a role or container if other variables that it needs are missing. Do not
/// refuse them if the credentials come from variables that `object_store` prefers.
fn check_sources<'a>(
    value_of: impl Fn(&str) -> Option<&'a str>,
) -> std::result::Result<(), String> {
    let has = |name| value_of(name).is_some();
    let (file, role) = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN");
    if has("AWS_ACCESS_KEY_ID") || (has(file) && has(role)) || has(RELATIVE_URI) {
        Ok(())
    } else if let Some(uri) = value_of(FULL_URI) {
        check_container(uri)?;
        // A file that cannot be read is ignored here, because the client reports its error.
        let path = value_of(TOKEN_FILE);
        let token = path.and_then(|path| fs::read_to_string(path).ok());
        check_word(
            &format!("the file of {TOKEN_FILE}"),
            &token.unwrap_or_default(),
        )
    } else if has(file) {
        Err(format!(
            "{file} is set, but {role} is not: set both or none, or set keys with {EXPORT}"
        ))
    } else {
        Ok(())
    }
}

/// Refuse a server of credentials that is neither local nor encrypted, as AWS's programs do,
/// because the server sends keys and receives a token.
fn check_container(uri: &str) -> std::result::Result<(), String> {
    let near = [
        "localhost",
        "127.0.0.1",
        "[::1]",
        "169.254.170.2",
        "169.254.170.23",
        "[fd00:ec2::23]",
    ];
    let uri: http::Uri = uri.parse().map_err(|_| format!("{FULL_URI}: no address"))?;
    let is_near = uri.host().is_some_and(|host| near.contains(&host));
    match is_near || uri.scheme_str() == Some("https") {
        true => Ok(()),
        false => Err(format!(
            "{FULL_URI}: expected https, or a server of this machine or of its container service, \
             such as 169.254.170.23"
        )),
    }
}

impl Container {
    /// Return the server of credentials at an address.
    ///
    /// # Errors
    /// A sentence about a variable that cannot be used.
    fn of(uri: &str) -> std::result::Result<Self, String> {
        let token = env::var(TOKEN).unwrap_or_default();
        check_word(TOKEN, &token)?;
        let header = HeaderValue::from_str(&token).ok();
        Ok(Container {
            uri: uri
                .parse()
                .map_err(|error| format!("{FULL_URI}: {error}"))?,
            authorization: header.filter(|_| !token.is_empty()).map(|mut value| {
                value.set_sensitive(true);
                value
            }),
        })
    }
}

/// Refuse a profile whose keys come from a login or a role.
fn check_profile(profile: &Profile) -> std::result::Result<(), String> {
    let others = [
        "sso_session",
        "sso_start_url",
        "role_arn",
        "credential_process",
    ];
    match others.iter().find(|key| profile.contains_key(**key)) {
        Some(key) => Err(format!(
            "the AWS profile gets its keys by {key}, which paceline does not read: export them first, \
             with {EXPORT}"
        )),
        None => Ok(()),
    }
}

fn google(address: &Address, set: &[Variable]) -> GoogleCloudStorageBuilder {
    let builder = GoogleCloudStorageBuilder::new()
        .with_retry(once())
        .with_http_connector(Connector::default());
    let builder = with_variables(builder, set, GoogleCloudStorageBuilder::with_config)
        .with_client_options(options())
        .with_bucket_name(&address.bucket);
    match has_credentials(address) && !is_anonymous() {
        true => builder,
        false => builder.with_skip_signature(true),
    }
}

fn azure(address: &Address, set: &[Variable]) -> MicrosoftAzureBuilder {
    let builder = MicrosoftAzureBuilder::new()
        .with_retry(once())
        .with_http_connector(Connector::default());
    let mut builder = with_variables(builder, set, MicrosoftAzureBuilder::with_config)
        .with_client_options(options())
        .with_container_name(&address.bucket);
    if let Some((_, endpoint)) = set.iter().find(|(name, _)| name == "IDENTITY_ENDPOINT") {
        builder = builder.with_msi_endpoint(endpoint);
    }
    match has_credentials(address) && !is_anonymous() {
        true => builder,
        false => builder.with_skip_signature(true),
    }
}

fn http(address: &Address) -> std::result::Result<HttpBuilder, String> {
    let scheme = match address.scheme {
        Scheme::Http => "http",
        _ => "https",
    };
    let query = address.query.as_deref();
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    let login = match is_anonymous() {
        true => None,
        false => authorization(&address.bucket)?,
    };
    Ok(HttpBuilder::new()
        .with_url(format!("{scheme}://{}/{query}", address.bucket))
        .with_client_options(options())
        .with_retry(once())
        .with_http_connector(Connector {
            authorization: login.as_ref().and_then(header),
            ..Connector::default()
        }))
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

/// Return true if this machine belongs to the cloud of a vendor. The metadata of the cloud then
/// contain credentials.
fn is_machine_of(vendor: &str) -> bool {
    ["sys_vendor", "product_name"].iter().any(|name| {
        fs::read_to_string(format!("/sys/class/dmi/id/{name}"))
            .is_ok_and(|text| text.contains(vendor))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use object_store::ClientConfigKey;

    use super::*;

    #[test]
    fn variables_of_aws_that_belong_together() {
        let check = |set: &[(&str, &'static str)]| {
            check_sources(|name| set.iter().find(|one| one.0 == name).map(|one| one.1))
        };
        let (file, role) = (("AWS_WEB_IDENTITY_TOKEN_FILE", "/a"), ("AWS_ROLE_ARN", "a"));
        let (uri, token) = ((FULL_URI, "https://h"), (TOKEN_FILE, "/none"));
        let key = ("AWS_ACCESS_KEY_ID", "a");
        let relative = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/a");
        let other = ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "a");
        for set in [
            &[key, uri, other][..],
            &[key, file],
            &[file, role, uri],
            &[relative, uri],
            &[uri, token],
            &[uri, other],
            &[uri, file],
            &[relative, file],
        ] {
            assert_eq!(check(set), Ok(()));
        }
        assert!(check(&[file]).unwrap_err().contains("AWS_ROLE_ARN is not"));
        for (uri, is_usable) in [
            ("http://169.254.170.23/v1/credentials", true),
            ("http://[fd00:ec2::23]/v1/credentials", true),
            ("https://h/credentials", true),
            ("http://h/credentials", false),
            ("http://localhost.h/credentials", false),
            ("credentials", false),
        ] {
            assert_eq!(check_container(uri).is_ok(), is_usable, "{uri}");
        }
    }

    #[test]
    fn variables_change_no_option_of_the_client() {
        let parse = |text| Address::parse(Path::new(text)).unwrap().unwrap();
        let timeout = ClientConfigKey::ConnectTimeout;
        let usual = options().get_config_value(&timeout);
        let set =
            ["AWS", "GOOGLE", "AZURE"].map(|one| (format!("{one}_CONNECT_TIMEOUT"), "1s".into()));
        let s3 = s3(&parse("s3://b/a"), &set).unwrap();
        let google = google(&parse("gs://b/a"), &set);
        let azure = azure(&parse("az://b/a"), &set);
        for found in [
            s3.get_config_value(&AmazonS3ConfigKey::Client(timeout)),
            google.get_config_value(&GoogleConfigKey::Client(timeout)),
            azure.get_config_value(&AzureConfigKey::Client(timeout)),
        ] {
            assert_eq!(found, usual);
        }
    }

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
