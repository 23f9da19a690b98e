"""What can be seen of the functions of a pipeline without Spark: mistakes that it would tell once it has started.

Only what is certain is refused, from the signature and from the source of a function: what a function does in a
branch, or hands to another one, is left to Spark, which is asked before anything runs (`frames.py`).
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from elastream.engines.spark.pipeline import UNIQUE_ID, Kind, Pipeline, PipelineStep, takes_unique_id
from elastream.errors import InvalidInput

_SAME_STREAM = """
    alias coalesce drop dropna fillna filter hint mapInArrow mapInPandas observe repartition replace sample select
    selectExpr toDF union unionAll unionByName where withColumn withColumnRenamed withColumns withColumnsRenamed
    withWatermark
"""
"""Methods of a DataFrame that give a DataFrame of the same stream."""
_KEEPING_STATE = """
    distinct dropDuplicates dropDuplicatesWithinWatermark drop_duplicates groupBy groupby limit
"""
"""Those that keep state, whatever they are given."""
_SAME_STREAM_METHODS, _STATEFUL_METHODS = frozenset(_SAME_STREAM.split()), frozenset(_KEEPING_STATE.split())


def check_functions(pipeline: Pipeline) -> None:
    for step in pipeline.steps:
        if step.function is None:
            continue
        _check_parameters(step, step.function)
        tree = _source_of(step.function)
        if tree is None or step.kind is Kind.SINK:
            continue
        _check_return(step, tree)
        if step.kind is Kind.OPERATOR and step.state_partitions is None:
            _check_state(step, tree)


def _check_parameters(step: PipelineStep, function: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(function, follow_wrapped=False)  # a decorator may give it something itself
    except (TypeError, ValueError):  # of something that is not written in Python
        return
    given, by_name = _given(step), {UNIQUE_ID: None} if takes_unique_id(step) else {}
    try:
        signature.bind(*given, **by_name)
    except TypeError:
        raise InvalidInput(
            f"{step.name!r} takes ({_written(signature)}), and is given {_in_words(step)}: ({', '.join(given)})"
        ) from None


def _given(step: PipelineStep) -> tuple[str, ...]:
    """What a function is called with, by position."""
    match step.kind:
        case Kind.SOURCE:
            return ("spark",)
        case Kind.SINK:
            return ("batch", "batch_id")
        case _:
            return step.reads


def _in_words(step: PipelineStep) -> str:
    match step.kind:
        case Kind.SOURCE:
            return "the session"
        case Kind.SINK:
            return f"each batch with its id, and where it names it, its {UNIQUE_ID}"
        case _:
            return "a DataFrame for each name that it reads"


def _written(signature: inspect.Signature) -> str:
    return ", ".join(str(one.replace(annotation=inspect.Parameter.empty)) for one in signature.parameters.values())


def _check_return(step: PipelineStep, tree: ast.FunctionDef) -> None:
    own = list(_own_nodes(tree.body))
    if any(isinstance(node, ast.Return) and node.value is not None for node in own):
        return
    if any(isinstance(node, ast.Yield | ast.YieldFrom | ast.Raise) for node in own):  # told when it is called
        return
    raise InvalidInput(f"{step.name!r} returns nothing: it must return a DataFrame (is a return missing?)")


def _check_state(step: PipelineStep, tree: ast.FunctionDef) -> None:
    found = next(_state_kept_in(tree, inputs=len(step.reads)), None)
    if found is not None:
        raise InvalidInput(
            f"{step.name!r} keeps state ({found[0]} in line {found[1]}): declare its state_partitions, "
            "for example 12"
        )


def _state_kept_in(tree: ast.FunctionDef, *, inputs: int) -> Iterator[tuple[str, int]]:
    """The methods on the way from an input to what is returned that keep state, each with its line.

    A name is followed for as long as it is certain what it stands for: in the body itself, not in its branches.
    """
    streams = {one.arg for one in (*tree.args.posonlyargs, *tree.args.args)[:inputs]}
    for statement in tree.body:
        if _may_return(statement):  # what comes after it may not be reached
            return
        if isinstance(statement, ast.Return | ast.Assign | ast.AnnAssign) and statement.value is not None:
            yield from _kept_on_the_way(statement.value, streams)
        streams = _streams_after(statement, streams)


def _may_return(statement: ast.stmt) -> bool:
    return not isinstance(statement, ast.Return) and any(
        isinstance(n, ast.Return) for n in _own_nodes([statement])
    )


def _streams_after(statement: ast.stmt, streams: set[str]) -> set[str]:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_stream(value, streams):
            return streams | {name}
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return streams - {name.id for name in names if isinstance(name.ctx, ast.Store)}


def _kept_on_the_way(value: ast.expr, streams: set[str]) -> Iterator[tuple[str, int]]:
    for receiver, method, call in _calls_of(value):
        if not _is_stream(receiver, streams):
            continue
        joined = method == "join" and call.args and _is_stream(call.args[0], streams)
        if method in _STATEFUL_METHODS or joined:
            yield method, call.lineno


def _calls_of(value: ast.expr) -> Iterator[tuple[ast.expr, str, ast.Call]]:
    """The methods of a chain such as `a.b().c()`, the last one first."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        yield value.func.value, value.func.attr, value
        value = value.func.value


def _is_stream(value: ast.expr, streams: set[str]) -> bool:
    """Whether it is an input of the function, but for methods that leave it the same stream."""
    methods = [method for _, method, _ in _calls_of(value)]
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value
    return isinstance(value, ast.Name) and value.id in streams and _SAME_STREAM_METHODS.issuperset(methods)


def _own_nodes(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """All nodes of a function, those of functions and classes within it left out."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _own_nodes(list(ast.iter_child_nodes(node)))


def _source_of(function: Callable[..., Any]) -> ast.FunctionDef | None:
    """As it is written; None where that cannot be told, or where a decorator may do more than it says."""
    if not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
        return None
    try:
        parsed = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    tree = parsed.body[0] if parsed.body else None
    if not isinstance(tree, ast.FunctionDef):
        return None
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    return tree
