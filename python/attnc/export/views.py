"""Chains of views (view, permute, transpose, unsqueeze ..) as one `rearrange`.

In: the shape of a tensor, and the views of it. Out: the pattern, as einops writes it. An axis is a list of atoms;
a view splits atoms, or puts some into one axis; the others move axes. It knows nothing of operations.
"""

import sympy

from .dims import sympy_of


class View:
    """Axes of a tensor, and what became of them. An axis of no atoms has length 1."""

    def __init__(self, shape):
        self.sizes = []
        self.source = [self._axis(size) for size in shape]
        self.target = [list(axis) for axis in self.source]

    def _axis(self, size):
        size = sympy_of(size)
        if size == 1:
            return []
        self.sizes.append(size)
        return [len(self.sizes) - 1]

    def permute(self, order):
        self.target = [self.target[axis] for axis in order]

    def unsqueeze(self, axis):
        self.target.insert(axis if axis >= 0 else axis + len(self.target) + 1, [])

    def squeeze(self, axes):
        rank = len(self.target)
        gone = {axis % rank for axis in axes} if axes is not None else range(rank)
        self.target = [axis for i, axis in enumerate(self.target) if i not in gone or axis]

    def view(self, shape):
        """True if the new axes are whole atoms, or factors of atoms."""
        atoms = [atom for axis in self.target for atom in axis]
        made = []
        for size in map(sympy_of, shape):
            axis = []
            while size != 1:
                if not atoms:
                    return False
                atom = atoms[0]
                rest = _quotient(size, self.sizes[atom])
                if rest is not None:
                    axis.append(atoms.pop(0))
                    size = rest
                    continue
                outer = _quotient(self.sizes[atom], size)
                if outer is None:
                    return False
                # The axis takes the outer factor of the atom, and the next axes have the rest.
                first, second = self._split(atom, size, outer)
                axis.append(first)
                atoms[0] = second
                size = sympy.Integer(1)
            made.append(axis)
        self.target = made
        return not atoms

    def _split(self, atom, outer, inner):
        self.sizes += [outer, inner]
        first, second = len(self.sizes) - 2, len(self.sizes) - 1
        for axes in (self.source, self.target):
            for axis in axes:
                if atom in axis:
                    at = axis.index(atom)
                    axis[at : at + 1] = [first, second]
        return first, second

    def is_nothing(self):
        return self.source == self.target and all(len(axis) < 2 for axis in self.source)

    def is_transpose(self):
        """Are just the last two axes exchanged?"""
        swapped = self.source[:-2] + self.source[-2:][::-1]
        return len(self.source) >= 2 and self.target == swapped and all(len(axis) < 2 for axis in self.source)

    def call(self, text, dims):
        """`rearrange(text, "pattern", name = length)`."""
        letters = {}
        used = [atom for axis in self.source for atom in axis]
        for atom in used:
            said = dims.text(self.sizes[atom])
            wanted = "n" if said.isdigit() else ("d" if said.startswith("D / ") else next(c for c in said if c.isalpha()).lower())
            free = [c for c in wanted + "defghijklmnopqrstuvwxyzabc" if c not in letters.values()]
            letters[atom] = free[0]

        def side(axes):
            return " ".join("1" if not a else letters[a[0]] if len(a) == 1 else "(%s)" % " ".join(letters[i] for i in a) for a in axes)

        given = []
        for axis in self.source:
            known = [atom for atom in axis if self.sizes[atom].is_Integer]
            # All but one need a length: the one without is that of a call if there is one, else a quotient, or the last.
            free = [a for a in axis if a not in known] or [a for a in axis if "/" in dims.text(self.sizes[a])] or axis[-1:]
            for atom in axis:
                if len(axis) > 1 and atom != free[0]:
                    given.append("%s = %s" % (letters[atom], dims.text(self.sizes[atom])))
        return "rearrange(%s)" % ", ".join([text, '"%s -> %s"' % (side(self.source), side(self.target)), *given])


def _quotient(a, b):
    """a / b, if that is a product of lengths and integers; None if it is not."""
    if a.is_Integer and b.is_Integer:
        return a / b if b != 0 and a % b == 0 else None
    quotient = sympy.cancel(a / b)
    return quotient if quotient.as_numer_denom()[1] == 1 else None
