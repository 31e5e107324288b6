//! The daemon's side: asks the helper about one address.

use std::{io, net::IpAddr, path::Path, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
    time::timeout,
};

use super::{
    AddressUse, InvalidRequest,
    message::{ANSWER_LIMIT, ProbeAnswer, ProbeRequest, TIMEOUT_MAX},
};

/// What systemd takes to start a helper on a busy host.
const HELPER_START: Duration = Duration::from_secs(1);

/// Why it is not known whether an address is in use.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    #[error("cannot reach fipd-probe.socket: {0}; is it enabled?")]
    Connect(io::Error),
    #[error("the connection to the probe helper failed: {0}")]
    Io(#[from] io::Error),
    #[error("the probe helper did not answer within {} ms", .0.as_millis())]
    Late(Duration),
    #[error("the probe helper ended without an answer; see journalctl -u 'fipd-probe@*'")]
    NoAnswer,
    #[error("the answer of the probe helper cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("the probe failed: {0}")]
    Failed(String),
}

/// Asks the helper at `socket` whether somebody on the network of `interface` uses `address`.
///
/// Answers within `deadline`, of which the helper probes for all but a second: from 1.1 s; more than 8 s adds no certainty.
///
/// # Errors
/// Nothing is known about the address.
pub async fn probe(
    socket: &Path,
    interface: &str,
    address: IpAddr,
    deadline: Duration,
) -> Result<AddressUse, ProbeError> {
    let probing = deadline.saturating_sub(HELPER_START).min(TIMEOUT_MAX);
    let request = ProbeRequest::new(interface, address, probing)?;
    let answer = timeout(deadline, ask(socket, &request)).await;
    match answer.map_err(|_| ProbeError::Late(deadline))?? {
        ProbeAnswer::Free => Ok(AddressUse::Free),
        ProbeAnswer::InUse { mac } => Ok(AddressUse::InUse { mac }),
        ProbeAnswer::Failed { error } => Err(ProbeError::Failed(error)),
    }
}

async fn ask(socket: &Path, request: &ProbeRequest) -> Result<ProbeAnswer, ProbeError> {
    let connected = UnixStream::connect(socket).await;
    let mut stream = connected.map_err(ProbeError::Connect)?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut answer = Vec::new();
    let mut reader = BufReader::new(stream.take(ANSWER_LIMIT as u64));
    reader.read_until(b'\n', &mut answer).await?;
    match answer.is_empty() {
        true => Err(ProbeError::NoAnswer),
        false => Ok(serde_json::from_slice(&answer)?),
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error, net::Ipv4Addr};

    use fipd_cni::frame::Mac;
    use tempfile::TempDir;
    use tokio::{net::UnixListener, time::Instant};

    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5));
    const DEADLINE: Duration = Duration::from_millis(1200);

    /// What the client makes of a helper that says this, or says nothing and waits.
    async fn asked(says: Option<&'static [u8]>) -> (Result<AddressUse, ProbeError>, String) {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("probe.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let helper = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 1 << 10];
            let length = stream.read(&mut request).await.unwrap();
            if let Some(says) = says {
                // The client may hang up before it took all.
                let _ = stream.write_all(says).await;
            } else {
                std::future::pending::<()>().await;
            }
            String::from_utf8(request[..length].to_vec()).unwrap()
        });
        let answer = probe(&socket, "eth0", ADDRESS, DEADLINE).await;
        let request = match says {
            Some(_) => helper.await.unwrap(),
            None => String::new(),
        };
        (answer, request)
    }

    #[tokio::test]
    async fn answers_are_passed_on_and_the_helper_gets_all_but_a_second() {
        let (answer, request) = asked(Some(b"{\"result\":\"free\"}\n")).await;
        assert_eq!(answer.unwrap(), AddressUse::Free);
        let expected = r#"{"interface":"eth0","address":"10.0.0.5","timeout_ms":200}"#;
        assert_eq!(request, format!("{expected}\n"));

        let (answer, _) = asked(Some(br#"{"result":"in-use","mac":"02:00:00:00:00:09"}"#)).await;
        let mac = Mac([2, 0, 0, 0, 0, 9]);
        assert_eq!(answer.unwrap(), AddressUse::InUse { mac });
        let (answer, _) = asked(Some(br#"{"result":"failed","error":"eth0 is down"}"#)).await;
        let error = answer.unwrap_err().to_string();
        assert_eq!(error, "the probe failed: eth0 is down");
    }

    #[tokio::test]
    async fn a_helper_that_says_nothing_or_nonsense_or_too_much_is_an_error() {
        let (answer, _) = asked(Some(b"")).await;
        assert!(matches!(answer, Err(ProbeError::NoAnswer)), "{answer:?}");
        for says in [
            &b"{}\n"[..],
            b"free\n",
            br#"{"result":"maybe"}"#,
            br#"{"result":"in-use"}"#,
            br#"{"result":"in-use","mac":"nobody"}"#,
            &[b' '; 100 << 10],
        ] {
            let (answer, _) = asked(Some(says)).await;
            assert!(
                matches!(answer, Err(ProbeError::Unreadable(_))),
                "{answer:?}"
            );
        }
        let start = Instant::now();
        let (answer, _) = asked(None).await;
        assert!(
            matches!(answer, Err(ProbeError::Late(DEADLINE))),
            "{answer:?}"
        );
        assert!(start.elapsed() < DEADLINE + Duration::from_millis(500));
    }

    #[tokio::test]
    async fn without_a_socket_or_with_a_bad_request_nothing_is_asked() {
        let nowhere = Path::new("/nonexistent/probe.sock");
        let answer = probe(nowhere, "eth0", ADDRESS, DEADLINE).await;
        let error = answer.unwrap_err();
        assert!(matches!(error, ProbeError::Connect(_)), "{error:?}");
        assert!(error.source().is_none() && error.to_string().contains("is it enabled?"));
        let bad = [
            probe(nowhere, "a/b", ADDRESS, DEADLINE).await,
            probe(nowhere, "eth0", Ipv4Addr::LOCALHOST.into(), DEADLINE).await,
            probe(nowhere, "eth0", ADDRESS, HELPER_START).await,
        ];
        for answer in bad {
            assert!(matches!(answer, Err(ProbeError::Invalid(_))), "{answer:?}");
        }
    }
}
