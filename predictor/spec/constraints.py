"""The language of ``--where`` and ``--constraint``: which rows, or strategies, are meant.

Examples: ``tier in {A,B} and workload == pretrain*``, ``tp * pp <= 32``, ``not (cp > 1)``.

- Comparisons: ``== != < <= > >=``, ``in {a,b}``, ``not in {a,b}``, joined by ``and``, ``or``,
  ``not`` and parentheses.
- The left side is a column or a product of columns and numbers; so is the right side of an order.
- Elsewhere a bare word is text, unless it names a column. A trailing ``*`` is a wildcard. Quotes
  are needed around text with spaces, signs or the words above. Case does not matter.
- A blank cell equals nothing but ``""`` and satisfies no order.

The text is parsed and compared, never evaluated as code.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from predictor.spec.errors import InputError

Column = Sequence[Any] | np.ndarray[Any, Any]
Columns = Mapping[str, Column]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

LONGEST = 2000
"""Characters of a constraint."""
DEEPEST = 50
"""Nested parentheses and negations."""
_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>'[^']*'|\"[^\"]*\")|(?P<sign>==|!=|<=|>=|<|>|\{|\}|\(|\)|,)"
    r"|(?P<wild>[\w.][\w.\-+/:]*\*(?![\w(]))|(?P<star>\*)"
    r"|(?P<word>-?[\w.][\w.\-+/:]*))")
_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
_RESERVED = frozenset({"and", "or", "not", "in"})


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int
    """Characters before it."""


@dataclass(frozen=True, slots=True)
class _Product:
    """Columns and numbers multiplied; one column alone keeps its text."""

    factors: tuple[str | float, ...]

    def columns(self) -> set[str]:
        return {factor for factor in self.factors if isinstance(factor, str)}

    def numbers(self, columns: Columns) -> np.ndarray[Any, Any]:
        """Return the product for every row, NaN where a cell is no number."""
        rows = len(next(iter(columns.values()), ()))
        product = np.ones(rows)
        for factor in self.factors:
            product = product * (factor if isinstance(factor, float) else _numbers(columns[factor]))
        return product

    def single(self) -> str | None:
        only = self.factors[0]
        return only if len(self.factors) == 1 and isinstance(only, str) else None


@dataclass(frozen=True, slots=True)
class _Order:
    left: _Product
    sign: str
    right: _Product

    def columns(self) -> set[str]:
        return self.left.columns() | self.right.columns()

    def matches(self, columns: Columns) -> Mask:
        with np.errstate(invalid="ignore"):
            found = _ORDERS[self.sign](self.left.numbers(columns), self.right.numbers(columns))
        return np.asarray(found, dtype=bool)


@dataclass(frozen=True, slots=True)
class _Member:
    """Equal to one of several values; ``==`` has one."""

    left: _Product
    values: tuple[_Token, ...]

    def columns(self) -> set[str]:
        return self.left.columns()

    def matches(self, columns: Columns) -> Mask:
        found = [self._equals(columns, value) for value in self.values]
        return np.asarray(np.logical_or.reduce(found), dtype=bool)

    def _equals(self, columns: Columns, value: _Token) -> Mask:
        if value.kind == "word" and value.text in columns:
            return _equal_columns(self.left, value.text, columns)
        number = None if value.kind == "quoted" else _number(value.text)
        name = self.left.single()
        if name is None or number is not None:
            return np.asarray(self.left.numbers(columns) == _required(number, value), dtype=bool)
        texts = [_text(cell) for cell in columns[name]]
        wanted = value.text.lower()
        if value.kind == "wild":
            return np.array([text.startswith(wanted[:-1]) for text in texts], dtype=bool)
        return np.array([text == wanted for text in texts], dtype=bool)


@dataclass(frozen=True, slots=True)
class _Joined:
    both: bool
    parts: tuple[_Node, ...]

    def columns(self) -> set[str]:
        return set().union(*(part.columns() for part in self.parts))

    def matches(self, columns: Columns) -> Mask:
        join = np.logical_and if self.both else np.logical_or
        return np.asarray(join.reduce([part.matches(columns) for part in self.parts]), dtype=bool)


@dataclass(frozen=True, slots=True)
class _Negated:
    part: _Node

    def columns(self) -> set[str]:
        return self.part.columns()

    def matches(self, columns: Columns) -> Mask:
        return ~self.part.matches(columns)


_Node = _Order | _Member | _Joined | _Negated


@dataclass(frozen=True, slots=True)
class Constraint:
    """A parsed constraint."""

    text: str
    root: _Node

    @property
    def columns(self) -> frozenset[str]:
        """Columns that the constraint cannot do without."""
        return frozenset(self.root.columns())

    def matches(self, columns: Columns) -> Mask:
        """Return, shape (rows,), whether each row satisfies the constraint.

        ``columns`` maps names to equally long sequences of cells.

        Raises
        ------
        InputError
            When the constraint names a column that is not there.
        """
        unknown = sorted(self.columns - columns.keys())
        if unknown:
            raise InputError.of(
                "known-column", f"there is no column {', '.join(map(repr, unknown))} to compare",
                _did_you_mean(unknown[0], columns), "where")
        return self.root.matches(columns)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return whether one set of values satisfies the constraint.

        Raises
        ------
        InputError
            When the constraint names a value that is not there.
        """
        return bool(self.matches({name: [value] for name, value in values.items()})[0])


def parse_constraint(text: str) -> Constraint:
    """Return the constraint that ``text`` states.

    Raises
    ------
    InputError
        Saying what was expected and where the text stops making sense.
    """
    if len(text) > LONGEST:
        raise InputError.of("constraint-length", f"the constraint has {len(text)} characters",
                            f"give at most {LONGEST}", "where")
    return Constraint(text, _Parser(text).parse())


class _Parser:
    """Recursive descent: or < and < not < comparison."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._tokens(text)
        self.at = 0
        self.depth = 0

    def _tokens(self, text: str) -> list[_Token]:
        tokens: list[_Token] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                rest = text[position:].lstrip()
                self._wrong(f"{rest[:20]!r} cannot be read", end - len(rest.rstrip()))
            kind = match.lastgroup or "word"
            found = match.group(kind)
            bare = found[1:-1] if kind == "quoted" else found
            tokens.append(_Token(kind, bare, match.start(kind)))
            position = match.end()
        return tokens

    def _wrong(self, what: str, position: int | None = None) -> NoReturn:
        at = self._peek().position if position is None else position
        raise InputError.of(
            "constraint",
            f"cannot read {self.text.strip()[:80]!r} at character {at + 1}: {what}",
            "write for example: tier in {A,B} and workload == pretrain* and tp <= 8", "where")

    def _peek(self) -> _Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else _Token(
            "end", "the end", len(self.text.rstrip()))

    def _take(self, *texts: str) -> bool:
        token = self._peek()
        if token.kind in ("word", "sign") and token.text.lower() in texts:
            self.at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            self._wrong(f"expected {text!r} before {self._peek().text!r}")

    def parse(self) -> _Node:
        node = self._any()
        if self.at < len(self.tokens):
            self._wrong(f"expected 'and' or 'or' before {self._peek().text!r}")
        return node

    def _any(self) -> _Node:
        parts = [self._all()]
        while self._take("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else _Joined(False, tuple(parts))

    def _all(self) -> _Node:
        parts = [self._one()]
        while self._take("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else _Joined(True, tuple(parts))

    def _one(self) -> _Node:
        self.depth += 1
        if self.depth > DEEPEST:
            self._wrong(f"it nests deeper than {DEEPEST}")
        if self._take("not"):
            node: _Node = _Negated(self._one())
        elif self._take("("):
            node = self._any()
            self._expect(")")
        else:
            node = self._comparison()
        self.depth -= 1
        return node

    def _comparison(self) -> _Node:
        left = self._product()
        if self._take("not"):
            self._expect("in")
            return _Negated(_Member(left, self._values()))
        if self._take("in"):
            return _Member(left, self._values())
        sign = self._peek()
        if sign.kind == "sign" and sign.text in ("==", "!=", *_ORDERS):
            self.at += 1
            if sign.text in _ORDERS:
                return _Order(left, sign.text, self._product())
            member = _Member(left, (self._value(),))
            return member if sign.text == "==" else _Negated(member)
        self._wrong(f"expected a comparison (== != < <= > >= in) before {sign.text!r}")

    def _product(self) -> _Product:
        factors: list[str | float] = []
        starred = True
        while starred:
            factors.append(self._factor())
            # "tp* pp" reads as a wildcard until it turns out to be a factor.
            starred = self.tokens[self.at - 1].kind == "wild" or self._peek().kind == "star"
            self.at += self._peek().kind == "star"
        return _Product(tuple(factors))

    def _factor(self) -> str | float:
        token = self._peek()
        if token.kind not in ("word", "wild") or token.text.lower() in _RESERVED:
            self._wrong(f"expected a column or a number before {token.text!r}")
        self.at += 1
        name = token.text.rstrip("*")
        number = _number(name)
        return name if number is None else number

    def _value(self) -> _Token:
        token = self._peek()
        bare = token.kind in ("word", "wild") and token.text.lower() not in _RESERVED
        if not bare and token.kind != "quoted":
            self._wrong(f"expected a value before {token.text!r}")
        self.at += 1
        return token

    def _values(self) -> tuple[_Token, ...]:
        self._expect("{")
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        self._expect("}")
        return tuple(values)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None


def _required(number: float | None, value: _Token) -> float:
    if number is None:
        raise InputError.of("constraint", f"a product cannot equal the text {value.text!r}",
                            "compare it with a number", "where")
    return number


def _text(cell: object) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    return str(cell).strip().lower()


def _as_number(cell: object) -> float:
    found = _number(_text(cell))
    return math.nan if found is None else found


def _numbers(column: Column) -> np.ndarray[Any, Any]:
    kind = column.dtype.kind if isinstance(column, np.ndarray) else "O"
    if kind in "iufb":
        return np.asarray(column, dtype=float)
    return np.array([_as_number(cell) for cell in column], dtype=float)


def _equal_columns(left: _Product, right: str, columns: Columns) -> Mask:
    name = left.single()
    numeric = left.numbers(columns) == _numbers(columns[right])
    if name is None:
        return np.asarray(numeric, dtype=bool)
    same = [(a := _text(x)) == _text(y) and a != ""
            for x, y in zip(columns[name], columns[right], strict=True)]
    return np.asarray(numeric | np.array(same, dtype=bool), dtype=bool)


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=3)
    return f"did you mean {' or '.join(near)}?" if near else "choose a column of the table"
