//! The commands of `attnc` as a user runs them: options, outputs, messages, exit statuses.

mod bench_command;
mod command_line;
mod compare;
mod dumps;
mod edits;
#[path = "../common/fixtures.rs"]
mod fixtures;
#[path = "../common/front.rs"]
mod front;
mod generate;
mod gpu;
mod help;
#[path = "../common/host.rs"]
mod host;
mod import;
mod import_caches;
mod import_families;
mod import_gguf;
mod import_refusals;
mod import_weights;
mod learn;
mod lsp;
mod lsp_names;
mod outputs;
mod play;
mod reduce;
mod run_arguments;
mod run_calls;
mod run_command;
mod texts;
mod tokenizers;
mod train;
mod training;
