//! The options of `attnc play`.
//!
//! In: the command line, parsed by clap. Out: a plain struct for the driver.

use super::options::MessageOptions;
use super::values::{Binding, Named};
use clap::Args;

/// `attnc play 4`
#[derive(Args, Debug, Clone)]
pub struct PlayOptions {
    /// A program, a chapter of the course by number or name, an exercise by name, or the end of an
    /// address (`#..`) that the page has made
    pub program: Option<String>,
    /// The port; any that is free if omitted
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// Only print the address; open no browser
    #[arg(long)]
    pub no_open: bool,
    /// How long each compilation or run may take
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// How much memory each may use, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(512..=1_048_576))]
    pub memory: u64,
    /// Print the interface of the program as JSON: for the page.
    #[arg(long, hide = true)]
    pub describe: bool,
    /// Sizes for `describe`.
    #[arg(long, hide = true)]
    pub size: Vec<Named<u64>>,
    /// Bindings for `describe`.
    #[arg(long, hide = true)]
    pub dim: Vec<Named<Binding>>,
    /// The model for `describe`.
    #[arg(long, hide = true)]
    pub entry: Option<String>,
    /// Messages.
    #[command(flatten)]
    pub messages: MessageOptions,
}
