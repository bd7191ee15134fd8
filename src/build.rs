//! Makes the parsers from the grammars in `grammar/`.

fn main() {
    if !std::path::Path::new("grammar").exists() {
        return;
    }
    println!("cargo:rerun-if-changed=grammar");
    // The default lane table leaves valid tokens out of the "expected" lists of syntax errors.
    // SAFETY: the build script has one thread, so nothing reads the environment at the same time.
    unsafe { std::env::set_var("LALRPOP_LANE_TABLE", "disabled") };
    let made = lalrpop::Configuration::new().set_in_dir("grammar").process();
    if let Err(error) = made {
        eprintln!("grammar: {error}");
        std::process::exit(1);
    }
}
