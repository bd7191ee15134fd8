//! Codes E00xx: the environment of a compilation: files, outputs, the linker.

use super::codes;

codes! {
    /// A file cannot be read.
    UNREADABLE = "E0001", "a file cannot be read";
    rule: "The file does not exist, is a directory, or this user may not read it. The message ends with the error of the\n\
           operating system.";

    /// A file is not UTF-8.
    NOT_UTF8 = "E0002", "a source file must be UTF-8";
    rule: "Source files are UTF-8 without NUL bytes. The message names the first invalid byte. Often the cause is that another\n\
           file (weights, a compiled model) was given instead of the source.";

    /// A file is too large to be a source file.
    TOO_LARGE = "E0003", "a source file may have at most 4 MiB";
    rule: "The compiler keeps several copies of the source in memory, and no hand-written program is that long. Data belongs\n\
           in weights files, which have no such limit.";

    /// Output cannot be written.
    UNWRITABLE = "E0004", "an output cannot be written";
    rule: "The directory of the output must exist and be writable, and the disk must not be full. The message ends with the\n\
           error of the operating system.";

    /// No linker on this machine.
    NO_LINKER = "E0005", "no linker found";
    rule: "attnc links shared libraries with a linker of the system: the first of `cc`, `ld.lld`, `rust-lld` and `ld` found.\n\
           Install a C compiler or LLVM's lld, or write an object file with `--emit obj` and link it elsewhere.";

    /// The linker fails.
    LINKER_FAILED = "E0006", "the linker failed";
    rule: "The linker returned an error or could not be started. The message shows its command and its output.";

    /// A library of one instruction set.
    ONE_LEVEL = "E0007", "a library compiled from tile IR has code for one instruction set only";
    rule: "Tile IR is specific to one instruction set, that of `--cpu`, or `portable`. A program or its graph IR is compiled for\n\
           several, and the best one that the processor supports runs. This is a note: the library works on every processor\n\
           with that instruction set.";

    /// A checkpoint that cannot be imported.
    NOT_IMPORTED = "E0008", "a checkpoint cannot be imported";
    rule: "`attnc import` writes a program that follows the checkpoint's configuration exactly, or none. The message names\n\
           the field of `config.json` that it would not follow, or the tensor that is missing; of a GGUF file, the entry of its\n\
           metadata, or the tensor whose quantisation attnc does not read. Supported values of `model_type`\n\
           are listed in the message about it. `--ignore FIELD` states that a field changes nothing in the results.";

    /// A data set that cannot be trained on.
    DATA = "E0009", "a data set cannot be used";
    rule: "`attnc train --data` takes a file of bytes (`--tokens bytes`), of 16-bit or 32-bit integers (`u16`, `u32`), a\n\
           NumPy array of one axis (`.npy`), or a text for a tokenizer. It must be longer than a window, and its tokens must\n\
           be less than the length of the axis that they index in the program.";
}
