"""`%%attnc`: a cell of a notebook that is a program.

    %%attnc model --dim D=64 --pack int8
    model Attention<D = 64> { .. }

The first word, if it does not begin with `-`, is the variable that the model is assigned to (`model` if there is none); the
rest are options of the command. `weights=NAME` takes the weights from a variable of the notebook.
"""

import shlex

from .model import compile


def register(shell):
    """Adds the magic to this shell of IPython."""

    def attnc(line, cell):
        words = shlex.split(line)
        name = words.pop(0) if words and not words[0].startswith("-") and "=" not in words[0] else "model"
        if not name.isidentifier():
            raise ValueError("%%%%attnc: expected the name of a variable, found %r" % name)
        weights = None
        for word in [word for word in words if word.startswith("weights=")]:
            words.remove(word)
            given = word[len("weights=") :]
            weights = shell.user_ns.get(given, given)
        model = compile(cell, flags=words, weights=weights)
        shell.push({name: model})
        return model

    shell.register_magic_function(attnc, magic_kind="cell", magic_name="attnc")
