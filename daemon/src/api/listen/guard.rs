//! Keeps clients from using up a port: limits on connections, of all and of each address, a deadline for their first bytes, and,
//! on ports without login, one for connections on which nothing moves.
//!
//! The deadline of the HTTP server begins when it knows the version of HTTP that is spoken, and counts for HTTP/1 only.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum_server::accept::Accept;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep},
};

use super::{HEAD_DEADLINE, Most, network};
use crate::liveness::Heartbeat;

/// Bytes by which HTTP/2 is told from HTTP/1 (RFC 9113, 3.4).
const PREFACE: usize = 24;

/// Accepts as `inner` does, but not more than the limits at once: who comes then is closed at once.
#[derive(Clone, Debug)]
pub(super) struct Guard<A> {
    inner: A,
    most: Most,
    permits: Arc<Semaphore>,
    by_address: ByAddress,
    heartbeat: Heartbeat,
}

/// How many there are of each.
type ByAddress = Arc<Mutex<BTreeMap<IpAddr, usize>>>;

impl<A> Guard<A> {
    pub fn new(inner: A, most: Most, heartbeat: Heartbeat) -> Self {
        Self {
            inner,
            most,
            permits: Arc::new(Semaphore::new(most.all)),
            by_address: ByAddress::default(),
            heartbeat,
        }
    }

    /// A place for the connection. Fails where all are taken, or those of its address.
    fn place(&self, stream: &TcpStream) -> io::Result<ConnectionCount> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(io::Error::other)?;
        let address = network(stream.peer_addr()?.ip());
        let mut by_address = self.by_address.lock();
        let taken = by_address.entry(address).or_default();
        if *taken >= self.most.of_one {
            return Err(io::Error::other("too many connections from one address"));
        }
        *taken += 1;
        Ok(ConnectionCount {
            _permit: permit,
            address,
            by_address: Arc::clone(&self.by_address),
        })
    }
}

/// What a connection counts as, as long as it is there.
#[derive(Debug)]
struct ConnectionCount {
    _permit: OwnedSemaphorePermit,
    address: IpAddr,
    by_address: ByAddress,
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        if let Entry::Occupied(mut taken) = self.by_address.lock().entry(self.address) {
            *taken.get_mut() -= 1;
            if *taken.get() == 0 {
                taken.remove();
            }
        }
    }
}

impl<A, S> Accept<TcpStream, S> for Guard<A>
where
    A: Accept<TcpStream, S>,
    A::Future: Send + 'static,
    A::Stream: Send + 'static,
    A::Service: Send + 'static,
{
    type Stream = Guarded<A::Stream>;
    type Service = A::Service;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        self.heartbeat.beat();
        let place = match self.place(&stream) {
            Ok(place) => place,
            Err(full) => return Box::pin(std::future::ready(Err(full))),
        };
        let accepted = self.inner.accept(stream, service);
        let idle = self.most.idle;
        Box::pin(async move {
            let (stream, service) = accepted.await?;
            let guarded = Guarded {
                stream,
                heard: 0,
                idle,
                patience: Some(Box::pin(tokio::time::sleep(HEAD_DEADLINE))),
                _place: place,
            };
            Ok((guarded, service))
        })
    }
}

/// A connection that counts against the limits.
#[derive(Debug)]
pub(super) struct Guarded<S> {
    stream: S,
    /// Bytes so far, as far as they matter.
    heard: usize,
    idle: Option<Duration>,
    /// Until the first bytes, and then until something moves.
    patience: Option<Pin<Box<Sleep>>>,
    _place: ConnectionCount,
}

impl<S> Guarded<S> {
    /// Something was read or written.
    fn moved(&mut self) {
        if self.heard < PREFACE {
            return;
        }
        match (self.idle, &mut self.patience) {
            (Some(idle), Some(patience)) => patience.as_mut().reset(Instant::now() + idle),
            (Some(_), None) => {}
            (None, _) => self.patience = None,
        }
    }

    /// What `poll` is while there is patience.
    fn within<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let patience = self.patience.as_mut().filter(|_| poll.is_pending());
        match patience.is_some_and(|patience| patience.as_mut().poll(cx).is_ready()) {
            true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            false => poll,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let new = buf.filled().len() - before;
        if new > 0 {
            self.heard = self.heard.saturating_add(new).min(PREFACE);
            self.moved();
        }
        self.within(cx, read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        if written.is_ready() {
            self.moved();
        }
        self.within(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        if written.is_ready() {
            self.moved();
        }
        self.within(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, routing::get};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpSocket,
    };
    use tokio_util::sync::CancellationToken;

    use super::{
        super::{MOST, MOST_OPEN, Port},
        *,
    };

    fn serve(most: Most) -> std::net::SocketAddr {
        let port = Port::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = port.address;
        let router = Router::new().route("/", get(|| async { "here" }));
        tokio::spawn(port.serve(None, router, most, CancellationToken::new()));
        address
    }

    async fn is_served(mut stream: TcpStream) -> bool {
        let ask = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let mut answer = String::new();
        // A connection that was closed may be reset.
        let _ = stream.write_all(ask.as_bytes()).await;
        let _ = stream.read_to_string(&mut answer).await;
        answer.ends_with("here")
    }

    /// How long a client is kept that says this and then nothing.
    async fn kept(most: Most, says: &[u8]) -> Duration {
        let mut silent = TcpStream::connect(serve(most)).await.unwrap();
        silent.write_all(says).await.unwrap();
        let began = Instant::now();
        let mut answer = Vec::new();
        let most = Duration::from_secs(3600);
        let closed = tokio::time::timeout(most, silent.read_to_end(&mut answer)).await;
        closed.map_or(most, |_| began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_begin_is_closed() {
        for says in [
            "",
            "P",
            "PRI * HT",
            "GET / HTTP/1.1\r\n",
            "GET / HTTP/1.1\r\nhost: x\r\n",
        ] {
            for most in [MOST, MOST_OPEN] {
                let took = kept(most, says.as_bytes()).await;
                assert!(
                    took < HEAD_DEADLINE + Duration::from_secs(1),
                    "{says:?}: {took:?}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn where_places_are_few_nobody_keeps_one_without_use() {
        // The preface of HTTP/2 and empty settings.
        let settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        let took = kept(MOST_OPEN, settings).await;
        let idle = MOST_OPEN.idle.unwrap();
        assert!(took < idle + Duration::from_secs(1), "{took:?}");
    }

    #[test]
    fn where_descriptors_are_few_fewer_are_taken() {
        let within = |descriptors| {
            let most = MOST.within(descriptors);
            (most.all, most.of_one)
        };
        assert_eq!(within(1_024), (512, 128));
        assert_eq!(within(65_536), (MOST.all, MOST.of_one));
        assert_eq!(within(u64::MAX), (MOST.all, MOST.of_one));
    }

    #[tokio::test]
    async fn only_so_many_at_once() {
        let address = serve(Most { all: 2, ..MOST });
        let mut open = Vec::new();
        for _ in 0..2 {
            open.push(TcpStream::connect(address).await.unwrap());
        }
        let third = TcpStream::connect(address).await.unwrap();
        assert!(!is_served(third).await);
        drop(open.pop());
        while !is_served(TcpStream::connect(address).await.unwrap()).await {
            tokio::task::yield_now().await;
        }
        assert!(is_served(open.pop().unwrap()).await);
    }

    #[tokio::test]
    async fn one_address_leaves_places_to_others() {
        let address = serve(Most { of_one: 2, ..MOST });
        let from = async |client: &str| {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(client.parse().unwrap()).unwrap();
            socket.connect(address).await.unwrap()
        };
        let (here, elsewhere) = ("127.0.0.1:0", "127.0.0.2:0");
        let mut open = vec![from(here).await, from(here).await];
        assert!(!is_served(from(here).await).await);
        assert!(is_served(from(elsewhere).await).await);
        drop(open.pop());
        while !is_served(from(here).await).await {
            tokio::task::yield_now().await;
        }
        assert!(is_served(open.pop().unwrap()).await);
    }
}
