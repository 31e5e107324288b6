//! Keeps clients that say nothing from using up a port: a limit on connections, and a deadline for the first byte.
//!
//! The deadline of the HTTP server begins with the first byte.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum_server::accept::Accept;
use futures::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Sleep,
};

use super::HEAD_DEADLINE;

/// Accepts as `inner` does, but not more than the limit at once: who comes then is closed at once.
#[derive(Clone, Debug)]
pub(super) struct Guard<A> {
    inner: A,
    permits: Arc<Semaphore>,
}

impl<A> Guard<A> {
    pub fn new(inner: A, most: usize) -> Self {
        Self {
            inner,
            permits: Arc::new(Semaphore::new(most)),
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
        let permit = match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(full) => return Box::pin(std::future::ready(Err(io::Error::other(full)))),
        };
        let accepted = self.inner.accept(stream, service);
        Box::pin(async move {
            let (stream, service) = accepted.await?;
            let guarded = Guarded {
                stream,
                silent: Some(Box::pin(tokio::time::sleep(HEAD_DEADLINE))),
                _permit: permit,
            };
            Ok((guarded, service))
        })
    }
}

/// A connection that counts against the limit.
#[derive(Debug)]
pub(super) struct Guarded<S> {
    stream: S,
    /// Until the first byte.
    silent: Option<Pin<Box<Sleep>>>,
    _permit: OwnedSemaphorePermit,
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_ready() {
            self.silent = None;
        } else if let Some(silent) = &mut self.silent
            && silent.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
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
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::{Router, routing::get};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        time::Instant,
    };
    use tokio_util::sync::CancellationToken;

    use super::{super::Port, *};

    fn serve(most: usize) -> std::net::SocketAddr {
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

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_closed() {
        let mut silent = TcpStream::connect(serve(1)).await.unwrap();
        let began = Instant::now();
        assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
        let took = began.elapsed();
        assert!(took < HEAD_DEADLINE + Duration::from_secs(1), "{took:?}");
    }

    #[tokio::test]
    async fn only_so_many_at_once() {
        let address = serve(2);
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
}
