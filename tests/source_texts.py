"""Texts in the syntax trees of the sources."""

import ast


def template(node: ast.AST) -> str | None:
    """Return a text of the sources with `{}` for each value, as a key has it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None
