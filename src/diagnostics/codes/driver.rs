//! Codes E00xx: the surroundings of a compilation, such as files that cannot be read.

use super::codes;

codes! {
    /// A file cannot be read.
    UNREADABLE = "E0001", "a file cannot be read";
    rule: "The file does not exist, is a folder, or may not be read by this user. The message ends with the\n\
           reason that the operating system gives.";

    /// A file is not UTF-8.
    NOT_UTF8 = "E0002", "a source text must be UTF-8";
    rule: "Source texts are UTF-8. The message names the first byte that is not. Files of other programs (weights,\n\
           compiled models) are often given in the place of the source by mistake.";

    /// A file is too large to be a source text.
    TOO_LARGE = "E0003", "a source text may have at most 4 MiB";
    rule: "No program that a person wrote is that long, and the compiler keeps all of it in memory several times\n\
           over. Data belongs in weights files, which have no such limit.";

    /// Output cannot be written.
    UNWRITABLE = "E0004", "an output cannot be written";
    rule: "The folder of the output must exist and be writable, and the disk must not be full. The message ends with\n\
           the reason that the operating system gives.";

    /// No linker on this machine.
    NO_LINKER = "E0005", "there is no linker";
    rule: "A shared library is made by the machine's linker: `cc`, `ld.lld`, `rust-lld` or `ld`, the first that is found.\n\
           Install a C compiler or LLVM's lld, or write an object file with `--emit obj` and link it elsewhere.";

    /// The linker fails.
    LINKER_FAILED = "E0006", "the linker fails";
    rule: "The linker was started and did not succeed, or could not be started. The message shows its command and what\n\
           it said.";

    /// A library of one instruction set.
    ONE_LEVEL = "E0007", "a library that is made of tile IR has code for one instruction set";
    rule: "Tile IR is made for one instruction set, that of `--cpu`, or `portable`. A program, or its graph IR, is compiled\n\
           for several, and the best that the processor has runs. This is a note: the library runs wherever its code does.";
}
