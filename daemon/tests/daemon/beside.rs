//! Where stand-ins answer.

/// A stand-in that answers on a thread of its own until the test's process ends.
pub fn serve_beside(listener: std::net::TcpListener, router: axum::Router) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
    });
}
