//! Files of a release other than the program: documents whose links work where they are installed,
//! and the publisher.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::temp_dir;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read_file(path: impl AsRef<Path>) -> String {
    fs::read_to_string(repository().join(path)).expect("read")
}

/// Returns the documents of the tarball and the packages.
fn shipped_documents() -> Vec<PathBuf> {
    let files_of_dir = |dir: &'static str| {
        let entries = fs::read_dir(repository().join(dir)).expect("there");
        entries.map(move |entry| Path::new(dir).join(entry.expect("an entry").file_name()))
    };
    let files_of_root = ["README.md", "CHANGELOG.md", "SECURITY.md"].map(PathBuf::from);
    files_of_root.into_iter().chain(files_of_dir("docs")).chain(files_of_dir("contrib/grafana")).collect()
}

#[test]
fn packages_contain_the_documents_they_link_to() {
    let shipped = shipped_documents();
    for path in shipped.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let text = read_file(path);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
        let target_of = |link: &str| {
            let link = link.split('#').next().unwrap_or_default();
            if link.is_empty() {
                return path.clone();
            }
            match link.strip_prefix("../") {
                Some(above) => PathBuf::from(above),
                None => path.parent().unwrap_or(Path::new("")).join(link),
            }
        };
        for link in links.filter(|link| !link.starts_with("https://")) {
            assert!(shipped.contains(&target_of(link)), "{} links to {link}, which no package has", path.display());
        }
    }
    // The file lists of the deb and the rpm, and of the tarball they are made from.
    let packages = read_file("Cargo.toml");
    let tarball = read_file("contrib/release/build");
    let copied: Vec<&str> = tarball.lines().filter(|line| line.trim_start().starts_with("cp -r ")).collect();
    for name in ["README.md", "CHANGELOG.md", "SECURITY.md", "docs", "contrib/grafana"] {
        let source = format!("\"target/dist/package/{name}{}\"", if name.contains('.') { "" } else { "/*" });
        assert_eq!(packages.matches(&source).count(), 2, "{source} in the deb and in the rpm");
        assert!(copied.iter().any(|line| line.split_whitespace().any(|word| word == name)), "{name}: {copied:?}");
    }
}

#[test]
fn a_release_with_placeholders_is_refused() {
    const FILES: [&str; 4] = ["contrib/release/check", "contrib/release/publisher", "Cargo.toml", "docs/installing.md"];
    let dir = temp_dir();
    let copy = |name: &str| {
        let to = dir.path().join(name);
        fs::create_dir_all(to.parent().expect("a directory")).expect("made");
        fs::copy(repository().join(name), to).expect("copied");
    };
    for name in FILES {
        copy(name);
    }
    let check = || {
        let output = Command::new(dir.path().join(FILES[0])).arg("publisher").output().expect("runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let publisher = read_file(FILES[1]);
    let value = |name: &str| {
        let line = publisher.lines().find_map(|line| line.strip_prefix(&format!("{name}="))).expect("a line");
        line.trim_matches('"').to_string()
    };
    let filled = [
        ("repository", "https://git.example/slotpress"),
        ("maintainer", "Somebody <somebody@mail.example>"),
        ("public_key", "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"),
    ];
    let fill_in = |name: &str| {
        let mut text = read_file(name);
        for (name, replacement) in filled {
            text = text.replace(&value(name), replacement);
        }
        fs::write(dir.path().join(name), text).expect("written");
    };
    for name in &FILES[1..] {
        fill_in(name);
    }
    assert_eq!(check(), (true, String::new()));
    for placeholder in [
        "repository=https://slotpress.invalid/slotpress",
        "maintainer='Somebody <somebody@slotpress.invalid>'",
        "public_key=PUBLIC_KEY_OF_RELEASES",
    ] {
        let path = dir.path().join(FILES[1]);
        let text = fs::read_to_string(&path).expect("read");
        fs::write(&path, format!("{text}{placeholder}\n")).expect("written");
        let (is_good, stderr) = check();
        assert!(!is_good, "{placeholder}: {stderr}");
        assert!(stderr.contains("is a placeholder"), "{placeholder}: {stderr}");
        fs::write(&path, text).expect("written");
    }
    // Each file in which a value is not filled in is an error.
    for name in &FILES[2..] {
        copy(name);
        let (is_good, stderr) = check();
        assert!(!is_good, "{stderr}");
        assert!(stderr.contains(&format!("{name} does not have: ")), "{stderr}");
        fill_in(name);
    }
}
