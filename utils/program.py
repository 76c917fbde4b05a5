"""What of the project's code a script reaches, read from its sources without running them."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ENGINE = "engine"  # what every run of a script has in common, whatever its arguments


@dataclass(frozen=True, eq=False)
class Piece:
    """A definition of a module, an entry of a registry, or a statement that runs when the module is imported."""

    name: str
    node: Any  # of the syntax tree
    module: Module

    @cached_property
    def uses(self) -> frozenset[str]:
        """The names in it, with what is taken from them: `np.random.default_rng`."""
        return frozenset(_dotted_names(self.node))

    @cached_property
    def code(self) -> str:
        """Its name and code, and where the names in it come from; neither comments, docstrings nor layout."""
        imported = self.module.imported
        heads = sorted({name.split(".")[0] for name in self.uses} & imported.keys())
        sources = (f"{head} = {source}" for head in heads for source in sorted(imported[head]))
        return "\n".join([self.name, ast.unparse(self.node), *sources])

    @cached_property
    def words(self) -> frozenset[str]:
        """The strings by which it may name entries of registries: those in brackets, and all of an entry's own."""
        nodes: Iterable[ast.AST] = ast.walk(self.node)
        if isinstance(self.node, ast.stmt):
            nodes = [node.slice for node in nodes if isinstance(node, ast.Subscript)]
        return frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


class Module:
    """What a module consists of.

    `defined` has the pieces that bind a name, `registries` the entries by key of each name that is declared as a
    `Registry`, `loose` the statements that bind no name, and `imported` what a name stands for after some import
    statement, wherever in the module that is; "*" for whatever name.
    """

    def __init__(self, name: str, source: bytes, package: str) -> None:
        self.name = name
        self.defined: dict[str, list[Piece]] = {}
        self.registries: dict[str, dict[str, Piece]] = {}
        self.loose: list[Piece] = []
        self.imported: dict[str, set[str]] = {}
        tree = _without_docstrings(ast.parse(source))
        for node in ast.walk(tree):
            for bound, stands_for in _imports(node, package):
                self.imported.setdefault(bound, set()).add(stands_for)
        for statement in tree.body:
            if not isinstance(statement, ast.Import | ast.ImportFrom) and not _is_for_types(statement):
                names = _bound(statement)
                for bound in names:
                    pieces = self.defined.setdefault(bound, [])
                    pieces.append(Piece(f"{name}.{bound}#{len(pieces)}", statement, self))
                if not names:
                    self.loose.append(Piece(f"{name}#{len(self.loose)}", statement, self))
        for bound, pieces in self.defined.items():
            if len(pieces) == 1 and _is_registry(pieces[0].node) and (entries := self._entries(pieces[0].node.value)):
                self.registries[bound] = {
                    key: Piece(f"{name}.{bound}[{key}]", node, self) for key, node in entries.items()
                }

    def _entries(self, value: ast.expr) -> dict[Any, ast.expr]:
        """The entries of a registry by key; none where they cannot be told apart: it then counts like any definition.

        It is a dictionary with its keys written out, or is made from a tuple: of functions or classes, whose names are
        the keys, or of calls, of which the keys are the first arguments.
        """
        if isinstance(value, ast.Dict):
            words, nodes = [getattr(key, "value", None) for key in value.keys], value.values
        elif isinstance(value, ast.DictComp):
            source: Any = value.generators[0].iter
            if isinstance(source, ast.Name) and source.id in self.defined:
                source = getattr(self.defined[source.id][0].node, "value", None)
            nodes = source.elts if isinstance(source, ast.Tuple) else [source]
            firsts = (node.args[0] if isinstance(node, ast.Call) and node.args else node for node in nodes)
            words = [first.id if isinstance(first, ast.Name) else getattr(first, "value", None) for first in firsts]
        else:
            return {}
        return dict(zip(words, nodes, strict=True)) if all(isinstance(word, str) for word in words) else {}


class Program:
    """A script and the modules that it imports, directly or through others, as they are when this is made.

    Args:
        script: the script, in the project's root.
        aside: modules, by their paths in the project, that do not bear on what is computed.
    """

    def __init__(self, script: Path, aside: Collection[str] = ()) -> None:
        self._modules: dict[str, Module] = {}
        self._reached: dict[str, tuple[frozenset[Piece], frozenset[str]]] = {}
        waiting = [script.stem]
        while waiting:
            name = waiting.pop()
            packages = {
                f"{name.replace('.', '/')}.py": name.rpartition(".")[0],
                f"{name.replace('.', '/')}/__init__.py": name,
            }
            file = next((file for file in packages if (script.parent / file).is_file()), None)
            if file and file not in aside and name not in self._modules:
                module = self._modules[name] = Module(name, (script.parent / file).read_bytes(), packages[file])
                sources = set().union(*module.imported.values())
                waiting += [part for source in sources for part in _prefixes(source)]

    def version(self, words: Iterable[str] = ()) -> dict[str, str]:
        """SHA-256 sums of the parts that are reached with these words among the arguments, see `parts`.

        What a run does cannot change unless one of them does; other entries may be added or changed without effect.
        """
        return {name: _digest(pieces) for name, pieces in sorted(self.parts(words).items())}

    def parts(self, words: Iterable[str] = ()) -> dict[str, frozenset[Piece]]:
        """What is reached: from the script itself ("engine"), and besides it from each entry that the words lead to."""
        engine, registries = self._reach(ENGINE, [piece for each in self._modules.values() for piece in each.loose])
        parts = {ENGINE: engine}
        known = set(words).union(*(piece.words for piece in engine))
        while new := [entry for entry in self._named(registries, known) if entry.name not in parts]:
            for entry in new:
                pieces, more = self._reach(entry.name, [entry])
                parts[entry.name] = pieces - engine
                known.update(*(piece.words for piece in parts[entry.name]))
                registries |= more
        return parts

    def _reach(self, name: str, start: Iterable[Piece]) -> tuple[frozenset[Piece], frozenset[str]]:
        """The pieces that these lead to, themselves among them, and the registries; remembered by `name`."""
        if name not in self._reached:
            pieces: set[Piece] = set()
            registries: set[str] = set()
            waiting = list(start)
            while waiting:
                piece = waiting.pop()
                if piece not in pieces:
                    pieces.add(piece)
                    for module, bound in self._definitions(piece):
                        if bound in module.registries:
                            registries.add(f"{module.name}.{bound}")
                        else:
                            waiting += module.defined[bound]
            self._reached[name] = frozenset(pieces), frozenset(registries)
        return self._reached[name]

    def _definitions(self, piece: Piece) -> Iterator[tuple[Module, str]]:
        for name in piece.uses:
            yield from self._meant(piece.module, name)

    def _meant(self, module: Module, name: str) -> Iterator[tuple[Module, str]]:
        """The definitions of the project, by module and name, that a name stands for where it is used in a module."""
        head, *rest = name.split(".")
        if head in module.defined:
            yield module, head
        for source in module.imported.get(head) or {f"{package}{head}" for package in module.imported.get("*", ())}:
            path = ".".join([source, *rest])
            owner = next((part for part in reversed(_prefixes(path)) if part in self._modules), None)
            if owner == path:  # the module itself, whatever is done with it
                yield from ((self._modules[owner], bound) for bound in self._modules[owner].defined)
            elif owner is not None:
                yield from self._meant(self._modules[owner], path.removeprefix(f"{owner}."))

    def _named(self, registries: Iterable[str], words: Collection[str]) -> list[Piece]:
        """The entries of these registries that are named by any of the words."""
        found = []
        for registry in registries:
            module, _, bound = registry.rpartition(".")
            entries = self._modules[module].registries[bound]
            found += [entries[key] for key in entries.keys() & words]
        return found


def _digest(pieces: Iterable[Piece]) -> str:
    return hashlib.sha256("\n\n".join(sorted(piece.code for piece in pieces)).encode()).hexdigest()


def _prefixes(path: str) -> list[str]:
    """`a`, `a.b` and `a.b.c` of `a.b.c`."""
    parts = path.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts) + 1)]


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            del node.body[: ast.get_docstring(node, clean=False) is not None]
    return tree


def _imports(node: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """The names that an import statement of a module in a package binds, with what each then stands for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.split(".")[0], alias.name if alias.asname else alias.name.split(".")[0]
            yield alias.name, alias.name
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: 1 - node.level or None] if node.level else []
        source = ".".join([*above, *([node.module] if node.module else [])])
        for alias in node.names:
            yield alias.asname or alias.name, f"{source}.{alias.name.replace('*', '')}"


def _bound(statement: ast.stmt) -> list[str]:
    """The names that a definition or assignment binds in its module; none for any other statement."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        targets = [statement.target]
    parts = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    return names if len(names) == len(parts) else []


def _dotted_names(node: ast.AST) -> Iterator[str]:
    """The names in some code, each with the attributes that are taken from it one after the other."""
    if name := _dotted(node):
        yield name
    else:
        for child in ast.iter_child_nodes(node):
            yield from _dotted_names(child)


def _dotted(node: ast.AST | None) -> str:
    """`a.b.c`, or nothing for other code."""
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return node.id if isinstance(node, ast.Name) else ""


def _is_registry(statement: ast.stmt) -> bool:
    annotation = getattr(statement, "annotation", None)
    kind = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return _dotted(kind).split(".")[-1] == "Registry"


def _is_for_types(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and _dotted(statement.test).endswith("TYPE_CHECKING")
