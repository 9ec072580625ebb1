//! `--data tinyshakespeare`: a server on this machine stands in for the network.

mod common;

use common::{fresh, repo, stderr, stdout};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A server that gives the same answer to every request; returns its address and its count of requests.
fn serve(head: &'static str, body: Vec<u8>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}/input.txt", listener.local_addr().expect("one"));
    let count = Arc::new(AtomicUsize::new(0));
    let served = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            served.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 2048];
            let _ = stream.read(&mut request);
            // The client may hang up early: that is its answer to a body that is too long.
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(&body);
        }
    });
    (address, count)
}

const OK: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";

/// The program with these arguments, a cache in `dir` and the data set's address.
fn with_cache(dir: &Path, url: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_isobit"))
        .args(["--backend", "cpu"])
        .args(args)
        .current_dir(dir)
        .env("XDG_CACHE_HOME", dir.join("cache"))
        .env("ISOBIT_TINYSHAKESPEARE_URL", url)
        .output()
        .expect("the program starts")
}

fn dry_run(dir: &Path, url: &str, args: &[&str]) -> Output {
    with_cache(dir, url, &[&["train", "--dry-run"], args].concat())
}

fn refused(name: &str, url: &str, says: &str) {
    let dir = fresh(name);
    let o = dry_run(&dir, url, &["--data", "tinyshakespeare"]);
    let text = stderr(&o);
    assert_eq!(o.status.code(), Some(2), "{text}");
    let error = text.lines().last().expect("a line");
    assert!(error.starts_with("error: cannot download"), "{text}");
    assert!(
        error.contains(says) && error.contains("--data FILE"),
        "{text}"
    );
    let kept = std::fs::read_dir(dir.join("cache/isobit")).expect("the cache");
    assert_eq!(kept.count(), 0, "nothing of a bad download is kept");
}

#[test]
fn what_is_not_the_data_set_is_refused() {
    const SIZE: usize = 1_115_394;
    refused(
        "download-short",
        &serve(OK, vec![b'a'; 1000]).0,
        "1000 bytes",
    );
    refused("download-hash", &serve(OK, vec![b'a'; SIZE]).0, "SHA-256");
    // Endless as far as the client can tell: it stops reading after one byte too many.
    let long = serve(OK, vec![b'a'; 64 << 20]).0;
    refused("download-long", &long, "1115395 or more bytes");
    let missing = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    refused("download-missing", &serve(missing, vec![]).0, "404");
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 1115394\r\nConnection: close\r\n\r\n";
    refused("download-cut", &serve(cut, vec![b'a'; 5000]).0, "");
    refused("download-address", "no address", "");
}

#[test]
fn without_a_network_it_fails_at_once() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("a port that nobody listens on any more");
    let start = Instant::now();
    refused("download-offline", &format!("http://{closed}/"), "refused");
    refused("download-name", "https://isobit.invalid/", "");
    assert!(start.elapsed() < Duration::from_secs(15));
}

#[test]
fn it_is_downloaded_once_and_again_where_the_copy_is_damaged() {
    let file = repo("../shared/data/tinyshakespeare.txt");
    let Ok(body) = std::fs::read(&file) else {
        println!("skipped: {} is not there", file.display());
        return;
    };
    let (url, count) = serve(OK, body.clone());
    let dir = fresh("download-once");
    let args = ["--data", "tinyshakespeare"];
    let kept = dir.join("cache/isobit/tinyshakespeare.txt");
    for requests in [1, 1] {
        let o = dry_run(&dir, &url, &args);
        assert!(o.status.success(), "{}", stderr(&o));
        assert!(
            stdout(&o).contains("data: tinyshakespeare\n"),
            "{}",
            stdout(&o)
        );
        assert!(stdout(&o).contains("1003854 characters to train on"));
        assert!(std::fs::read(&kept).expect("kept") == body);
        assert_eq!(count.load(Ordering::SeqCst), requests);
    }
    // A config file may name it, and its name is not a path relative to that file.
    std::fs::write(dir.join("run.toml"), "[data]\ntext = \"tinyshakespeare\"\n").expect("written");
    let o = dry_run(&dir, &url, &["--config", "run.toml"]);
    assert!(o.status.success(), "{}", stderr(&o));
    for damaged in [&body[..9], &[&body[1..], b"x"].concat()] {
        let before = count.load(Ordering::SeqCst);
        std::fs::write(&kept, damaged).expect("damaged");
        assert!(dry_run(&dir, &url, &args).status.success());
        assert!(std::fs::read(&kept).expect("kept") == body);
        assert_eq!(count.load(Ordering::SeqCst), before + 1);
    }
    // A checkpoint keeps the name, from whatever folder it is used.
    let train = "train --data tinyshakespeare --schemes fp32 --steps 1 --batch 2 --outdir run";
    let o = with_cache(&dir, &url, &train.split(' ').collect::<Vec<_>>());
    assert!(o.status.success(), "{}", stderr(&o));
    let elsewhere = dir.join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a folder");
    std::fs::rename(dir.join("cache"), elsewhere.join("cache")).expect("moved");
    let o = with_cache(&elsewhere, &url, &["eval", "--from", "../run"]);
    assert!(o.status.success(), "{}", stderr(&o));
    assert!(
        stdout(&o).contains("data: tinyshakespeare,"),
        "{}",
        stdout(&o)
    );
}
