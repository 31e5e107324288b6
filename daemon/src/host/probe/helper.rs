//! The privileged side: `fipd probe-helper`, started by systemd for each connection to its socket.

use std::{io, os::fd::AsFd as _, time::Duration};

use tokio::{
    io::{
        AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
        BufReader,
    },
    net::UnixStream,
    time::timeout,
};

use super::{
    detect::detect,
    message::{ProbeAnswer, ProbeRequest, REQUEST_LIMIT},
};

/// How long the request may take to arrive, and the answer to be taken.
const IO_DEADLINE: Duration = Duration::from_secs(1);

/// The connection that systemd passed as standard input (`Accept=yes`, `StandardInput=socket`).
///
/// # Errors
/// Standard input is not a Unix socket.
pub fn accepted_connection() -> io::Result<UnixStream> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let stream = std::os::unix::net::UnixStream::from(socket);
    // Fails for what is not a socket.
    stream.peer_addr()?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Answers the one request of a connection. What is wrong with the request or the interface is the answer.
///
/// # Errors
/// The request did not arrive, or nobody took the answer.
pub async fn serve_connection(
    reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let answer = match read_request(reader).await? {
        Ok(request) => answer(&request).await,
        Err(why) => ProbeAnswer::failed(&why),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    let write = async {
        writer.write_all(&line).await?;
        writer.shutdown().await
    };
    timeout(IO_DEADLINE, write).await?
}

async fn answer(request: &ProbeRequest) -> ProbeAnswer {
    let detected = detect(request).await;
    tracing::debug!(?request, ?detected, "probed");
    match detected {
        Ok(occupancy) => occupancy.into(),
        Err(error) => ProbeAnswer::failed(&error.to_string()),
    }
}

/// A request, or what is wrong with it.
async fn read_request(reader: impl AsyncRead + Unpin) -> io::Result<Result<ProbeRequest, String>> {
    let mut line = Vec::new();
    let mut reader = BufReader::new(reader.take(REQUEST_LIMIT as u64));
    match timeout(IO_DEADLINE, reader.read_until(b'\n', &mut line)).await {
        Ok(read) => read?,
        Err(_) => {
            let seconds = IO_DEADLINE.as_secs();
            return Ok(Err(format!("no request within {seconds} s")));
        }
    };
    let whole = line.strip_suffix(b"\n");
    Ok(match whole {
        Some(line) => serde_json::from_slice(line).map_err(|why| format!("bad request: {why}")),
        None if line.len() == REQUEST_LIMIT => {
            Err(format!("a request longer than {REQUEST_LIMIT} bytes"))
        }
        None => Err("the request ends without a line feed".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use tokio::{io::duplex, time::Instant};

    use super::*;

    /// What the helper answers to these bytes, of a client that then waits or closes its side.
    async fn answered(request: &[u8], closes: bool) -> String {
        let (mut client, helper) = duplex(8 << 10);
        let (reader, writer) = tokio::io::split(helper);
        client.write_all(request).await.unwrap();
        if closes {
            client.shutdown().await.unwrap();
        }
        serve_connection(reader, writer).await.unwrap();
        let mut line = String::new();
        client.read_to_string(&mut line).await.unwrap();
        line
    }

    #[tokio::test]
    async fn what_is_wrong_with_a_request_is_the_answer() {
        let late = r#"{"interface":"eth0","address":"10.0.0.5","timeout_ms":60000}"#;
        for (line, part) in [
            ("", "bad request: EOF"),
            ("{}", "missing field `interface`"),
            ("[]", "bad request"),
            (late, "a timeout of 60000 ms: must be 100 to 10000 ms"),
            ("\u{0}", "bad request"),
        ] {
            let answer = answered(format!("{line}\n").as_bytes(), false).await;
            let start = r#"{"result":"failed","error":""#;
            assert!(
                answer.starts_with(start) && answer.contains(part),
                "{answer}"
            );
        }
        assert!(answered(b"\xff\xfe\n", false).await.contains("bad request"));
    }

    #[tokio::test]
    async fn an_endless_request_is_cut_off() {
        let answer = answered(&vec![b' '; 4 << 10], false).await;
        assert!(answer.contains("longer than 1024 bytes"), "{answer}");
        let cut = answered(br#"{"interface":"eth0""#, true).await;
        assert!(cut.contains("without a line feed"), "{cut}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_nothing_is_not_waited_for() {
        let start = Instant::now();
        let answer = answered(b"{", false).await;
        assert!(answer.contains("no request within 1 s"), "{answer}");
        assert_eq!(start.elapsed().as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_no_answer_is_not_waited_for() {
        let (mut client, helper) = duplex(16);
        let (reader, writer) = tokio::io::split(helper);
        client.write_all(b"{}\n").await.unwrap();
        let start = Instant::now();
        let served = serve_connection(reader, writer).await;
        assert_eq!(served.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), 1);
    }
}
