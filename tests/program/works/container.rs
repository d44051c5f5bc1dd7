//! The container image: `contrib/container`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::served::{ServeProcess, two_archives};
use crate::common::*;

/// User of the image.
const USER: u32 = 65532;

/// The image, in a storage directory that only this test uses.
struct Image {
    storage: TempDir,
    container: String,
}

impl Image {
    /// Builds the image with the program of the tests, and makes a container.
    fn build() -> Self {
        let mut image = Self { storage: temp_dir(), container: String::new() };
        let dir = image.storage.path();
        let [graph, runtime] = ["graph", "run"].map(|name| dir.join(name));
        let settings = format!(
            "[storage]\ndriver = \"vfs\"\ngraphroot = \"{}\"\nrunroot = \"{}\"\n",
            text(&graph),
            text(&runtime)
        );
        fs::write(dir.join("storage.conf"), settings).expect("written");
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/container/build");
        image.run(Command::new(build).arg(slotpress_path()).arg("slotpress-test"));
        image.container = image.run(Command::new("buildah").args(["from", "slotpress-test"])).trim().to_string();
        image
    }

    fn output_of(&self, command: &mut Command) -> Output {
        command.env("CONTAINERS_STORAGE_CONF", self.storage.path().join("storage.conf")).output().expect("started")
    }

    fn run(&self, command: &mut Command) -> String {
        let output = self.output_of(command);
        assert!(output.status.success(), "{command:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns a command that runs the image's program, with directories mounted at these places.
    fn command(&self, mounts: &[(&Path, &str)]) -> Command {
        let mut command = Command::new("buildah");
        command.env("CONTAINERS_STORAGE_CONF", self.storage.path().join("storage.conf"));
        command.args(["run", "--isolation", "chroot", "--network", "host"]);
        for (dir, place) in mounts {
            command.arg(format!("--volume={}:{place}", text(dir)));
        }
        let inspected = self.run(Command::new("buildah").args(["inspect", &self.container]));
        let inspected: serde_json::Value = serde_json::from_str(&inspected).expect("JSON");
        let entrypoint = inspected["OCIv1"]["config"]["Entrypoint"].as_array().expect("an entry point").clone();
        command.arg(&self.container).arg("--").args(entrypoint.iter().map(|word| word.as_str().expect("text")));
        command
    }
}

/// Returns the arguments that an example passes to `bootstrap`, with `server` as the source.
fn bootstrap_arguments(example: &str, server: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/container").join(example);
    let text = fs::read_to_string(path).expect("read");
    let list = text.lines().find_map(|line| line.split_once(r#": ["bootstrap""#)).expect("a line").1;
    let arguments: Vec<String> = serde_json::from_str(&format!(r#"["bootstrap"{list}"#)).expect("JSON");
    assert!(["${SOURCE:?a server that has archives}", "http://HOST:8899"].contains(&arguments[1].as_str()));
    let source = arguments[1].clone();
    arguments.into_iter().map(|argument| if argument == source { server.to_string() } else { argument }).collect()
}

/// The demo runs in the image; the examples bring a volume to a server's state, and leave it as it is
/// when they run again.
#[test]
fn the_image_brings_a_volume_to_a_recent_state() {
    needs!("buildah", "root");
    let image = Image::build();
    let demo = image.run(image.command(&[]).args(["demo", "--size", "8MiB"]));
    assert!(demo.contains("$ slotpress verify restored"), "{demo}");
    let archives = two_archives();
    fs::set_permissions(archives.path(), fs::Permissions::from_mode(0o755)).expect("readable");
    let command = image.command(&[(archives.path(), text(archives.path()))]);
    let server = ServeProcess::start_with_command(command, archives, &[]);
    for example in ["compose.yaml", "kubernetes.yaml"] {
        let volumes = [temp_dir(), temp_dir()];
        for volume in &volumes {
            chown(volume.path(), Some(USER), Some(USER)).expect("given");
        }
        let [ledger, accounts] = &volumes;
        let mounts = [(ledger.path(), "/ledger"), (accounts.path(), "/accounts")];
        let arguments = bootstrap_arguments(example, &server.url(""));
        let stdout = image.run(image.command(&mounts).args(&arguments));
        assert!(stdout.contains("40 on the full archive of slot 26"), "{example}: {stdout}");
        let before = (tree(ledger.path()), tree(accounts.path()));
        assert!(relative_paths(&ledger.path().join("snapshots")).contains(&"40".to_string()));
        let arguments = bootstrap_arguments(example, "http://127.0.0.1:1");
        let stdout = image.run(image.command(&mounts).args(arguments));
        assert!(stdout.contains("skipped"), "{example}: {stdout}");
        assert!(before == (tree(ledger.path()), tree(accounts.path())), "{example}");
    }
    // The signal ends buildah, so its exit status says nothing about the program.
    server.stop();
}
