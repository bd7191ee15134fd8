//! Codes E08xx: weights files, devices, and calls of a compiled model.

use super::codes;

codes! {
    /// Weights that do not match the program.
    WEIGHTS = "E0801", "the weights do not match the program";
    rule: "A weights file is a safetensors file. It must contain a tensor for each parameter of the model, named by its\n\
           path, with the shape and element type of the program. The message lists all that are missing or wrong;\n\
           `#[name = \"..\"]` before a field gives its name in the file, and `--random` takes random values\n\
           instead of a file. Tensors of `bf16` or `f16` are also accepted for parameters of `f32`: they are converted when\n\
           the weights are loaded, which is exact, and a note says so. The opposite conversion would round, so it is an\n\
           error: convert the file, or declare the parameter with the type in the file.";

    /// Weights that are not used.
    UNUSED = "E0802", "unused tensors in the weights file";
    rule: "The file contains tensors that are not parameters of the model. This is a warning: checkpoints often contain more\n\
           than one model needs, but the cause may also be a parameter with another name in the file.";

    /// A call that fails.
    CALL = "E0803", "a call failed";
    rule: "The arguments do not match the entry point (their number, element types or shapes), they violate a `where` clause,\n\
           or an index was out of range at run time. The message says which, with what was expected and what was found.\n\
           Arrays are not converted but for integers that fit: `x.astype(numpy.float32)` converts one. The types of all\n\
           arguments and the conditions are in the program, in the header (`--emit header`) and in what `help(model)` shows in\n\
           Python.";

    /// A tap that a call did not reach.
    SILENT_TAP = "E0804", "a call did not reach a tap";
    rule: "A tap in a branch that is not taken, or in a loop without iterations, is never written. Its value is then all zeros,\n\
           interpreted or compiled. `attnc_taps_written` (in Python `taps.written`) returns for each tap in how many steps it\n\
           was written.";

    /// A call that should return the next token, but returns none.
    NO_TOKEN = "E0805", "the model returned no next token";
    rule: "The entry point that `attnc generate` calls returns the next token. `decode.next` returns -1 if a score is\n\
           NaN: then the weights belong to another program, or a value was too large for its type. Any other number outside\n\
           of the tokenizer's vocabulary cannot be shown: the tokenizer belongs to another model.";

    /// A tokenizer that cannot be used.
    TOKENIZER = "E0806", "the tokenizer cannot be used";
    rule: "`--tokenizer` takes `bytes`, or the file `tokenizer.json` of a checkpoint of the Hugging Face hub whose model is BPE\n\
           (GPT-2, Llama, Mistral, Qwen, Gemma) or a unigram model (T5). A part of the file that would be followed wrongly\n\
           is rejected by name. Its vocabulary must not be larger than that of the model.";

    /// A GPU that cannot be used.
    DEVICE = "E0807", "the model cannot be opened on the GPU";
    rule: "With `--target cuda` a model runs on an NVIDIA GPU. The message names the missing part: a driver (`libcuda.so.1`, or the\n\
           file that ATTNC_CUDA_LIB names), a GPU, a newer driver, a GPU of a newer generation; or why the driver rejects\n\
           the kernels. Programs that call a library for both (`--target cpu,cuda`) may open it on the device `auto`, which is\n\
           the CPU if no GPU can be used; nothing else falls back to the CPU.";

    /// A model that does not open for another reason.
    OPEN = "E0808", "the model cannot be opened";
    rule: "The weights are not to blame: there is not enough memory for them and their packed copies, on the GPU or in\n\
           the system, the processor lacks instructions that the library was compiled for, or a variable of the environment\n\
           (ATTNC_DEVICE, ATTNC_THREADS, ATTNC_CPU) has an invalid value. The message says which. A GPU's memory is shared\n\
           with other processes, and `nvidia-smi` shows them; a smaller type of the weights (`--pack`, `bf16`) takes less.";

    /// Training whose numbers are lost.
    DIVERGED = "E0809", "training gave a number that is not finite";
    rule: "The loss of a step, or a parameter after it, is infinite or NaN, and no further step can repair that. The last\n\
           checkpoint was written before. Common causes are a learning rate that is too large, a first phase without `warmup`,\n\
           gradients without `clip`, and a division or a logarithm of 0 in the loss.";

    /// A checkpoint of another program.
    CHECKPOINT = "E0810", "the checkpoint does not fit";
    rule: "`attnc train --resume` continues where a checkpoint ended. It has the parameters, the states of the rules (the\n\
           means of AdamW, say) and of the model. If the program has others, or the data is other data, the steps would be\n\
           other ones. `--weights` begins a new run with the parameters of a checkpoint alone.";
}
