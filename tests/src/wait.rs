//! Waiting for a condition with a deadline: the only way in which anything here waits.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kube::Api;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Between looks after a long wait: many start a program.
const LONGEST_LATER: Duration = Duration::from_secs(1);
/// A look is late by no more than this part of the wait before it.
const LATE: u32 = 25;
/// A look that takes longer hangs: another one, on another connection, may not.
const LONGEST_LOOK: Duration = Duration::from_secs(15);

/// Most looks take less.
const SHORT: Duration = Duration::from_secs(1);

/// Said before the first look returns.
const NOTHING: &str = "nothing";
/// Said of a look that was cut off.
const HUNG: &str = " (and the look after that did not return)";

/// Calls `probe` until it answers `Ok`, and gives that value back.
///
/// `Err` means "not yet" and says what was seen. When `deadline` passes first the error names `what` and repeats the last
/// thing seen. One call of `probe` that hangs is cut off, and `probe` called again.
pub async fn wait_until<T, E, F, Fut>(what: &str, deadline: Duration, probe: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: Display,
{
    wait(what, deadline, LONGEST_LOOK, probe).await
}

/// Waits until the object of that name passes a test.
pub async fn wait_object<K>(
    what: &str,
    deadline: Duration,
    (api, name): (&Api<K>, &str),
    test: impl Fn(&Value) -> bool,
) -> Result<Value>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    wait_until(what, deadline, || async {
        let object = api.get(name).await.map_err(|error| error.to_string())?;
        let object = json!(object);
        if test(&object) {
            Ok(object)
        } else {
            Err(object.to_string())
        }
    })
    .await
}

async fn wait<T, E, F, Fut>(
    what: &str,
    deadline: Duration,
    longest_look: Duration,
    mut probe: F,
) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: Display,
{
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut last = NOTHING.to_string();
    loop {
        let left = deadline.saturating_sub(start.elapsed());
        let within = left.min(longest_look);
        match tokio::time::timeout(within, probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => last = format!("{seen:#}"),
            Err(_elapsed) if last.ends_with(HUNG) => {}
            // The deadline came.
            Err(_elapsed) if within < SHORT && last != NOTHING => {}
            Err(_elapsed) => last.push_str(HUNG),
        }
        if start.elapsed() >= deadline {
            bail!("{what}: not so within {deadline:?}; last seen: {last}");
        }
        tokio::time::sleep(pause.min(deadline.saturating_sub(start.elapsed()))).await;
        let longest = (start.elapsed() / LATE).clamp(LONGEST_PAUSE, LONGEST_LATER);
        pause = (pause * 2).min(longest);
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

    #[tokio::test]
    async fn after_a_look_that_hangs_comes_another() {
        let mut looks = 0;
        let (deadline, look) = (Duration::from_secs(30), Duration::from_millis(20));
        let value = wait("second look", deadline, look, || {
            looks += 1;
            let hangs = looks == 1;
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                Ok::<_, String>(())
            }
        });
        value.await.unwrap();
        assert_eq!(looks, 2);
    }
}
