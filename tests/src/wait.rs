//! Waiting for a condition with a deadline: the only way in which anything here waits.

use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Calls `probe` until it answers `Ok`, and gives that value back.
///
/// `Err` means "not yet" and says what was seen. When `deadline` passes first the error names `what` and repeats the last
/// thing seen. One call of `probe` that hangs is cut off at the deadline too.
pub async fn wait_until<T, E, F, Fut>(what: &str, deadline: Duration, mut probe: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: Display,
{
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut last = "nothing: the first look did not return".to_string();
    loop {
        let left = deadline.saturating_sub(start.elapsed());
        match tokio::time::timeout(left, probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => last = format!("{seen:#}"),
            Err(_elapsed) => last.push_str(" (and the look after that did not return)"),
        }
        if start.elapsed() >= deadline {
            bail!("{what}: not so within {deadline:?}; last seen: {last}");
        }
        tokio::time::sleep(pause.min(deadline.saturating_sub(start.elapsed()))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn gives_the_value_of_the_first_success() {
        let mut looks = 0;
        let value = wait_until("third look", Duration::from_secs(5), || {
            looks += 1;
            std::future::ready(if looks == 3 {
                Ok(looks)
            } else {
                Err(format!("look {looks}"))
            })
        })
        .await;
        assert_eq!(value.unwrap(), 3);
    }

    #[tokio::test]
    async fn a_missed_deadline_tells_what_was_seen() {
        let missed = wait_until("a miracle", Duration::from_millis(30), || async {
            Err::<(), _>("rain")
        })
        .await;
        let text = missed.unwrap_err().to_string();
        assert!(
            text.contains("a miracle") && text.ends_with("last seen: rain"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_hanging_look_is_cut_off() {
        let missed = wait_until(
            "an answer",
            Duration::from_millis(30),
            std::future::pending::<Result<(), String>>,
        )
        .await;
        assert!(missed.unwrap_err().to_string().contains("did not return"));
    }
}
