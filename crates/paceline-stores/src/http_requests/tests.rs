use super::*;

#[test]
fn pauses_in_seconds_or_until_a_date() {
    let pause = |text| {
        let headers = [(RETRY_AFTER, HeaderValue::from_static(text))];
        retry_after(&HeaderMap::from_iter(headers))
    };
    assert_eq!(pause("7"), Some(Duration::from_secs(7)));
    let most = pause("18446744073709551615").unwrap();
    assert_eq!(Duration::from_secs(1).saturating_add(most), Duration::MAX);
    assert_eq!(pause("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
    let long = pause("Fri, 21 Oct 2185 07:28:00 GMT").unwrap();
    assert!(long > Duration::from_secs(100 * 365 * 86400));
    assert_eq!(pause("soon"), None);
}

#[test]
fn length_of_a_part() {
    let len = |text| len_of_part(&HeaderValue::from_static(text));
    assert_eq!(len("bytes 20-29/1000"), Some(10));
    assert_eq!(len("bytes 0-0/*"), Some(1));
    assert_eq!(len("bytes */1000"), None);
    assert_eq!(len("bytes 5-2/1000"), None);
}

#[test]
fn pause_that_a_server_requests() {
    let mut headers = HeaderMap::new();
    assert_eq!(retry_after(&headers), None);
    headers.insert(RETRY_AFTER, HeaderValue::from_static("3"));
    assert_eq!(retry_after(&headers), Some(Duration::from_secs(3)));
}

#[test]
fn errors_that_may_pass() {
    let connect = |text: &str| {
        HttpError::new(
            HttpErrorKind::Connect,
            std::io::Error::other(text.to_owned()),
        )
    };
    let refused = connect("cannot connect for certificate.xtc");
    assert!(may_pass(&refused, 1));
    assert!(!may_pass(&refused, CONNECTIONS));
    assert!(!may_pass(
        &connect("invalid peer certificate: UnknownIssuer"),
        1
    ));
}

#[test]
fn a_server_that_does_not_answer() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let short = Duration::from_millis(50);
    // An encrypted connection needs an answer of the server.
    for (scheme, connect, silence) in [("http", CONNECT_TIMEOUT, short), ("https", short, SILENCE)]
    {
        let address = format!("{scheme}://{}/md.xtc", silent.local_addr().unwrap());
        let client = Repeating::new(connect, silence, Duration::ZERO).unwrap();
        let mut request = HttpRequest::new(object_store::client::HttpRequestBody::empty());
        *request.uri_mut() = address.parse().unwrap();
        let error = runtime.block_on(client.call(request)).unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Timeout);
        assert_eq!(
            text_within(&error, "(Connect)"),
            scheme == "https",
            "{error:?}"
        );
    }
}

/// Return the hosts of a client whose first request goes to `first`. Names are looked up in a table
/// with public names, private names, and a name with addresses of both kinds.
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
