//! Runs `slotpress recompress`, and prints its report.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use clap::Args;
use slotpress::{Error, RecompressOptions, RecompressReport, RecompressSource, Result, Sink, recompress};
use slotpress_base::IoContext;

use super::archive::{print_root, shown_path, skip_existing};
use super::check::{self, CheckArgs};
use super::codec::{self, EncodingArgs};
use super::io_policy::IoPolicyArgs;
use super::network::{ConnectionArgs, archives_of, refuse_url};
use super::output::Output;
use super::ui::Ui;
use super::{list, stdout, values};

/// Recompress an archive: smaller, checked, and with an index
///
/// Reads archives of slotpress, Agave and Firedancer (since September 2026), in one pass. The
/// result holds the same entries in the same order. If the archive is damaged, or does not match
/// its name, no output is made.
#[derive(Debug, Args)]
pub struct RecompressArgs {
    /// The archive, or - for standard input. From several archives, and from a directory of
    /// archives, it takes what a node would choose
    #[arg(value_name = "ARCHIVE|DIR|-", required = true)]
    archives: Vec<PathBuf>,
    /// The directory or store (s3://BUCKET/PREFIX) for the new archive, or - for standard output
    #[arg(short, long = "output", value_name = "TARGET")]
    output: PathBuf,
    #[command(flatten)]
    encoding: EncodingArgs,
    /// Memory limit for buffers (fewer workers run if it is too small for all), and the same again
    /// for the state check; data that does not fit is spilled to the output directory [default:
    /// 1GiB for the state check]
    #[arg(long, value_name = "SIZE", value_parser = values::size, env = "SLOTPRESS_MEMORY")]
    memory: Option<u64>,
    /// The base slot of an incremental archive from standard input
    #[arg(long, value_parser = values::slot, value_name = "SLOT")]
    base_slot: Option<u64>,
    /// The full archive on which an incremental one is based, to check the state of both together;
    /// it is only read
    #[arg(long, value_name = "FULL_ARCHIVE", help_heading = "Check")]
    base: Option<PathBuf>,
    /// Replace an archive of the same name
    #[arg(long)]
    force: bool,
    /// If an archive of the same name exists, leave it as it is, unchecked, and end with exit code
    /// 0
    #[arg(long, conflicts_with = "force")]
    skip_existing: bool,
    #[command(flatten)]
    check: CheckArgs,
    #[command(flatten)]
    io_policy: IoPolicyArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub fn run(args: &RecompressArgs, ui: &Ui) -> Result<()> {
    for archive in args.archives.iter().chain(&args.base) {
        refuse_url(archive, &|url| {
            format!("`slotpress fetch {url} -o DIR` fetches it; then recompress the file in DIR")
        })?;
    }
    let archives = archives_of(&args.archives, &list::catalog_in)?;
    let is_stream = |archive: &Path| archive.as_os_str() == "-";
    if args.base_slot.is_some() && !is_stream(&archives[0]) {
        return Err(Error::usage("--base-slot is for standard input only: a file has the base slot in its name"));
    }
    let is_stdout = codec::is_stdout(&args.output, ui)?;
    if archives.len() > 1 && (is_stdout || args.base.is_some()) {
        return Err(Error::usage("a full and an incremental archive: two new archives, so neither --base nor a pipe"));
    }
    let output = Output::open(&args.output, args.memory, &args.connection)?;
    let check = args.check.options(args.memory);
    let other_bytes = args.encoding.decoding_bytes() + check.memory_bytes + output.memory_bytes();
    let encoding = args.encoding.options(output.left_of(args.memory), other_bytes, &args.io_policy, ui)?;
    for (number, archive) in archives.iter().enumerate() {
        let source = match is_stream(archive) {
            // Do not read through the standard library's buffer: waiting until the file descriptor is
            // readable would miss bytes in that buffer.
            true => {
                let input = std::io::stdin().as_fd().try_clone_to_owned();
                RecompressSource::Stream(File::from(input.or_path("open", Path::new("standard input"))?))
            }
            false => RecompressSource::File(archive.clone()),
        };
        let options = RecompressOptions::default()
            .encoding(encoding.clone())
            .base_slot(args.base_slot)
            .base(args.base.clone().or_else(|| (number > 0).then(|| archives[0].clone())))
            .check(match number + 1 < archives.len() {
                // What is expected is about the state of both together.
                true => check.clone().expect_hash(None).expect_slot(None),
                false => check.clone(),
            });
        let mut stdout = is_stdout.then(|| stdout::for_data(ui)).transpose()?;
        let sink = match &mut stdout {
            Some(stdout) => Sink::stream(stdout),
            None => output.sink(args.force)?,
        };
        match recompress(source, sink, &options, ui) {
            Ok(report) => print_report(&report, ui),
            Err(error) if args.skip_existing => skip_existing(error, ui)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn print_report(report: &RecompressReport, ui: &Ui) {
    let (archive, input_bytes, output_bytes) = (&report.archive, report.input_bytes, report.archive.output_bytes);
    if !ui.print_head("recompress", report, &shown_path(archive)) {
        return;
    }
    let codec = codec::show_codec(archive);
    ui.print(&format!("  {}, {codec}", values::count_of(archive.storages, "storage")));
    let [output, input] = [output_bytes, input_bytes].map(values::show_bytes);
    let more = 100.0 * (output_bytes as f64 / input_bytes.max(1) as f64 - 1.0);
    let ratio = values::show_ratio(report.tar_bytes, output_bytes);
    ui.print(&format!("  size     {output} from {input}, {more:+.1} % (ratio {ratio} to the tar)"));
    ui.print(&format!("  elapsed  {}", values::show_speed(report.tar_bytes, &archive.elapsed)));
    print_root(archive.root, ui);
    check::print_assurance(&report.assurance, ui);
}
