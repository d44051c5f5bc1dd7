//! Reads credentials from a profile in AWS's configuration: keys, or a program that prints them
//! (`credential_process`).
//!
//! `object_store` reads credentials from the environment, web identities, containers and machines, but not
//! from profiles. Credentials never appear in an error, log or debug output.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fmt, fs};

use async_trait::async_trait;
use object_store::aws::{AwsCredential, AwsCredentialProvider};
use object_store::{CredentialProvider, StaticCredentialProvider};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use slotpress_base::clock::{now, since_1970};
use slotpress_base::{Error, IoContext, Result};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::profile::{self, Section};
use crate::{NetError, NetErrorKind};

/// Time limit for a credentials program, which may ask a server.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);

/// Limit on the output of a credentials program. It prints hundreds of bytes; with a session
/// token, a few thousand.
const PRINTED_BYTES_MAX: u64 = 64 * 1024;

/// Credentials are renewed this long before they expire, so that they are still valid when the store
/// checks the request.
const RENEW_BEFORE: Duration = Duration::from_secs(300);

const FILE_BYTES_MAX: u64 = 1024 * 1024;

pub fn anonymous_credentials() -> AwsCredentialProvider {
    let credential = AwsCredential { key_id: "anonymous".to_string(), secret_key: String::new(), token: None };
    Arc::new(StaticCredentialProvider::new(credential))
}

#[derive(Default)]
pub struct Profile {
    pub region: Option<String>,
    pub credentials: Option<AwsCredentialProvider>,
}

impl Profile {
    /// Reads the profile that `AWS_PROFILE` names, or the default one. Its credentials are used only if the
    /// environment has none.
    ///
    /// # Errors
    /// `AWS_PROFILE` names a missing profile, or a file cannot be read.
    pub fn from_environment() -> Result<Self> {
        let named_profile = env::var("AWS_PROFILE").ok().filter(|name| !name.is_empty());
        let name = named_profile.as_deref().unwrap_or("default");
        let path = |variable: &str, default_name: &str| match env::var_os(variable) {
            Some(path) => Some(PathBuf::from(path)),
            None => env::var_os("HOME").map(|home| PathBuf::from(home).join(".aws").join(default_name)),
        };
        let config = read_file(path("AWS_CONFIG_FILE", "config"))?;
        let credentials = read_file(path("AWS_SHARED_CREDENTIALS_FILE", "credentials"))?;
        let headings = [format!("profile {name}"), name.to_string()];
        let config = headings.iter().find_map(|heading| profile::find_section(&config, heading));
        let credentials = profile::find_section(&credentials, name);
        if config.is_none() && credentials.is_none() {
            if named_profile.is_none() {
                return Ok(Self::default());
            }
            let message = format!("AWS_PROFILE is {name:?}, but no file has that profile");
            return Err(Error::usage(message).with_hint(
                "profiles are in ~/.aws/config and ~/.aws/credentials, or in the files that AWS_CONFIG_FILE and \
                 AWS_SHARED_CREDENTIALS_FILE name",
            ));
        }
        let sections: Vec<Section> = credentials.into_iter().chain(config).collect();
        let value = |key: &str| sections.iter().find_map(|section| section.get(key)).cloned();
        let mut profile = Self { region: value("region"), credentials: None };
        let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        if is_set("AWS_ACCESS_KEY_ID") || is_set("AWS_WEB_IDENTITY_TOKEN_FILE") {
            return Ok(profile);
        }
        if let (Some(key_id), Some(secret_key)) = (value("aws_access_key_id"), value("aws_secret_access_key")) {
            let credential = AwsCredential { key_id, secret_key, token: value("aws_session_token") };
            profile.credentials = Some(Arc::new(StaticCredentialProvider::new(credential)));
        } else if let Some(command) = value("credential_process") {
            profile.credentials = Some(Arc::new(CredentialProgram { command, cached: Mutex::new(None) }));
        }
        Ok(profile)
    }
}

fn read_file(path: Option<PathBuf>) -> Result<String> {
    let Some(path) = path else { return Ok(String::new()) };
    let read = || {
        let mut text = String::new();
        fs::File::open(&path)?.take(FILE_BYTES_MAX).read_to_string(&mut text).map(|_| text)
    };
    match read() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read.or_path("read", &path),
    }
}

struct CredentialProgram {
    command: String,
    cached: Mutex<Option<CachedCredential>>,
}

struct CachedCredential {
    credential: Arc<AwsCredential>,
    /// Time at which the program is run again, if the credential expires. It is an [`Instant`], because
    /// the time of day may jump.
    renew_at: Option<Instant>,
}

/// Omits the command, which may contain keys.
impl fmt::Debug for CredentialProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("credential_process")
    }
}

#[async_trait]
impl CredentialProvider for CredentialProgram {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut cached = self.cached.lock().await;
        if let Some(cached) = &*cached
            && cached.renew_at.is_none_or(|time| Instant::now() < time)
        {
            return Ok(cached.credential.clone());
        }
        let printed = run_program(&self.command, PROGRAM_TIMEOUT).await.and_then(|printed| parse_output(&printed));
        let output = printed
            .map_err(|why| object_store::Error::Generic { store: "S3", source: Box::new(program_error(why)) })?;
        let renew_at = output.expiration.and_then(|expiration| {
            let valid_for = since_1970(expiration.into()).saturating_sub(since_1970(now()));
            Instant::now().checked_add(valid_for.saturating_sub(RENEW_BEFORE))
        });
        let credential = Arc::new(AwsCredential {
            key_id: output.access_key_id,
            secret_key: output.secret_access_key,
            token: output.session_token,
        });
        *cached = Some(CachedCredential { credential: credential.clone(), renew_at });
        Ok(credential)
    }
}

fn program_error(why: &str) -> NetError {
    let why = format!("no credentials: the profile's credential_process {why}");
    NetError::without_url(NetErrorKind::Denied, &why)
        .with_hint("run it by hand: it must print JSON with AccessKeyId and SecretAccessKey")
}

/// Runs the command for at most `limit`, and returns its output. Discards standard error, which may
/// contain secrets. The limit also applies to a command that closes its output and keeps running.
async fn run_program(command: &str, limit: Duration) -> Result<Vec<u8>, &'static str> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|_| "cannot be started")?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let running = spawn_blocking(move || {
        let mut printed = Vec::new();
        let read = child.stdout.take().map(|stdout| stdout.take(PRINTED_BYTES_MAX).read_to_end(&mut printed));
        let has_succeeded = child.wait().is_ok_and(|status| status.success());
        (has_succeeded && read.is_some_and(|read| read.is_ok())).then_some(printed)
    });
    match timeout(limit, running).await {
        Ok(Ok(Some(printed))) => Ok(printed),
        Ok(_) => Err("failed"),
        Err(_) => {
            // The task is still waiting for the process, so no other process has its id.
            if let Some(group) = group {
                let _ = kill_process_group(group, Signal::KILL);
            }
            Err("took longer than a minute")
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProgramOutput {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<chrono::DateTime<chrono::Utc>>,
}

fn parse_output(printed: &[u8]) -> Result<ProgramOutput, &'static str> {
    let output: ProgramOutput = serde_json::from_slice(printed).map_err(|_| "prints no credentials")?;
    if output.version != 1 {
        return Err("prints an unknown version");
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_outlives_its_time_limit_is_killed() {
        let limit = Duration::from_millis(200);
        assert_eq!(run_program("echo keys; exec >&-; sleep 9999", limit).await, Err("took longer than a minute"));
        assert_eq!(run_program("sleep 9999", limit).await, Err("took longer than a minute"));
        assert_eq!(run_program("echo keys", PROGRAM_TIMEOUT).await, Ok(b"keys\n".to_vec()));
        assert_eq!(run_program("echo keys; exit 1", PROGRAM_TIMEOUT).await, Err("failed"));
    }
}
