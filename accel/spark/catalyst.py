"""Spark's optimized plans, which this module alone knows: the uses of accel in one, and the plan with other
reads in their place.

A plan is a tree of objects in the JVM. Each use of accel is a leaf of it, with the filters and columns above
it as far as Spark has pushed them down. Whatever is unlike what is known here raises `UnlikePlanError`, and
the caller leaves the plan as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from accel.spark.catalyst_filters import Combination, aggregate_of, conjuncts_of, field_paths
from accel.spark.column_tests import ColumnTest
from accel.spark.expressions import class_of, items_of
from accel.spark.join_sides import JOINS, Pair, equal_pairs, is_repeatable, is_row_wise
from accel.spark.read_records import recorded_by_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

__all__ = ["Leaf", "Rewriter", "UnlikePlanError"]

_LOGICAL: Final = "org.apache.spark.sql.catalyst.plans.logical"
_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions"
_SCAN: Final = "org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation"
_RELATION: Final = "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation"
_PYTHON_TABLE: Final = "org.apache.spark.sql.execution.datasources.v2.python.PythonTable"
_MAPS: Final = (f"{_LOGICAL}.MapInArrow", f"{_LOGICAL}.PythonMapInArrow")
_UNARY: Final = (f"{_LOGICAL}.Filter", f"{_LOGICAL}.Project", f"{_LOGICAL}.Aggregate")
DATASETS: Final = ("org.apache.spark.sql.classic.Dataset", "org.apache.spark.sql.Dataset")
"""From Spark 4.0 on, and before."""
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


Later = Callable[[], Any]
"""Gives a part of a plan, in which the reads that it waits for are in the place of uses of accel."""
Answer = Callable[["Leaf"], "Callable[[], DataFrame | None]"]
"""Begins the read in the place of a use of accel, and returns what waits for it; None leaves the use as it
is."""
Narrow = Callable[["Leaf", tuple[str, ...], "DataFrame"], "DataFrame | None"]
"""Gives the read of the rows of a use of accel whose columns equal a row of a DataFrame; None where the use
stays as it is."""
Measure = tuple[tuple[str, ...] | None, str]
"""The path of a column and "count", "min" or "max"; or None and "count_all"."""
Fold = Callable[["Leaf", Sequence[Measure]], "DataFrame | None"]
"""Gives one row with aggregates of the rows that pass the conditions of a use of accel; None where Spark is
to compute them."""
Users = tuple[Any, ...] | None
"""The nodes right above another one that use columns of it; None where all of them may be used."""


class UnlikePlanError(Exception):
    """A plan has something that this module does not know."""


class _ReadError(Exception):
    """What a read raised, which is no fault of the plan."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One use of accel in a plan."""

    options: Mapping[str, str] | None = field(default=None, repr=False)
    """Of `format("accel")`: its options."""
    function: Any = field(default=None, repr=False)
    """Of `accel.spark.table`: what it gave to `mapInArrow`; of a read, its record."""
    identity: bytes = field(repr=False)
    """The same for leaves that may share a read, if their columns and conditions are equal, too."""
    schema: StructType
    """All its columns."""
    columns: tuple[str, ...]
    """Those that the plan uses, in their order."""
    fields: Mapping[str, frozenset[tuple[str, ...]]] = field(default_factory=dict)
    """Of structs that are used by some of their fields alone: the paths of these. None of them: the plan
    asks whether the struct is null."""
    conditions: tuple[tuple[ColumnTest | Combination | None, str], ...]
    """The filters right above it, a conjunction, and their texts; None is one that is not understood."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Place:
    """A read in the place of a use of accel."""

    leaf: Leaf
    output: tuple[Any, ...]
    """The columns of the use, which the plan goes on to name."""
    names: Mapping[int, str]
    """The same by their numbers."""


class Rewriter:
    """Puts reads in the place of the uses of accel in the plans of a classic session.

    Parameters
    ----------
    spark : SparkSession
    function_name : str
        The name that Spark has for a function of `accel.spark.table`.
    key_bytes : int
        The most bytes of a side of a join whose keys narrow the other one.
    worth_bytes : int
        The least bytes of a read that they narrow.
    """

    def __init__(self, spark: SparkSession, function_name: str, *, key_bytes: int, worth_bytes: int) -> None:
        self._spark = spark
        self._session: Any = spark._jsparkSession
        context: Any = spark.sparkContext
        self._gateway: Any = context._gateway
        self._jvm: Any = context._jvm
        self._function_name = function_name
        self._key_bytes = key_bytes
        self._worth_bytes = worth_bytes
        self._fold: Fold = lambda leaf, measures: None
        self._places: dict[int, _Place] = {}
        """The reads, by the numbers of their columns."""

    def rewrite(
        self, df: DataFrame, read: Answer, narrow: Narrow | None = None, *, fold: Fold
    ) -> DataFrame | None:
        """Return a DataFrame of the same rows, in which `read` gives those of each use of accel.

        Parameters
        ----------
        df : DataFrame
        read : function of a Leaf
            It returns what waits for a DataFrame with the columns of the leaf, and all rows that pass its
            conditions, or more; for None where the use stays as it is. It is called for all leaves before
            the first of them is waited for. Decimals of at most 18 digits may be whole numbers of their
            last digit there.
        narrow : function of a Leaf, columns and a DataFrame, optional
            It returns what `read` does, without rows whose columns equal no row of the DataFrame; None where
            that is no use.
        fold : function of a Leaf and measures
            It returns one row of aggregates over all of a use; None where Spark is to compute them.

        Returns
        -------
        DataFrame or None
            None where the plan has no use of accel.

        Raises
        ------
        UnlikePlanError
            The plan has something that is not known here.
        """
        from py4j.protocol import Py4JError

        begin = _guarded(read)

        def begun(leaf: Leaf) -> Callable[[], DataFrame | None]:
            return _guarded(begin(leaf))

        self._fold = _guarded(fold)
        try:
            old = self._optimized(df)
            later = self._node(old, begun, (), None)
            plan = None if later is None else later()
            if plan is None or plan is old:
                return None
            if narrow is not None:
                plan = self._with_keys(plan, _guarded(narrow))
            found = self._frame(self._session, plan)
        except _ReadError as error:
            raise error.error from None
        except (Py4JError, AttributeError, TypeError) as error:
            # The first has the trace of the JVM in its text; its first line says what is missing.
            raise UnlikePlanError(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}") from error
        except Exception as error:
            if type(error).__module__.startswith("pyspark.errors"):
                raise UnlikePlanError(str(error).strip().splitlines()[0]) from error
            raise
        if found.columns != df.columns:
            found = found.toDF(*df.columns)  # the optimizer keeps columns, and not how their names are spelt
        ours = [field.dataType.simpleString() for field in found.schema]
        if ours != [field.dataType.simpleString() for field in df.schema]:
            raise UnlikePlanError(f"its columns would be {found.schema.simpleString()}")
        return found

    # -- plans -----------------------------------------------------------------------------------

    def _optimized(self, df: DataFrame) -> Any:
        """Return the plan as Spark optimizes it, without filters that a Python source takes for itself.

        A plan that was optimized before may lack such filters, so that it is optimized anew.
        """
        analyzed = df._jdf.queryExecution().analyzed()
        session = self._session
        if self._spark.conf.get(_PUSHDOWN, "false") == "true":
            session = session.cloneSession()
            session.conf().set(_PUSHDOWN, "false")
        return self._dataset(session, analyzed).queryExecution().optimizedPlan()

    def _dataset(self, session: Any, plan: Any) -> Any:
        for name in DATASETS:
            # py4j takes a class that it does not find for a package.
            found = self._class(name)
            if found is not None:
                return found.ofRows(session, plan)
        raise UnlikePlanError("this Spark has no Dataset where it was")

    def _class(self, name: str) -> Any:
        from py4j.java_gateway import JavaClass

        found = self._jvm
        for part in name.split("."):
            found = getattr(found, part)
        return found if isinstance(found, JavaClass) else None

    def _frame(self, session: Any, plan: Any) -> DataFrame:
        from pyspark.sql import DataFrame

        return DataFrame(self._dataset(session, plan), self._spark)

    def _node(self, node: Any, read: Answer, filters: tuple[Any, ...], users: Users) -> Later | None:
        """Return what gives a node with its uses of accel replaced; None where it has none.

        Parameters
        ----------
        node : JavaObject
        read : function
        filters : tuple of JavaObject
            The conditions of the filters right above it.
        users : tuple of JavaObject or None
            The nodes right above it that use columns of it.
        """
        kind = class_of(node)
        place = self._place(node, kind, filters, users)
        if place is not None:
            return partial(self._answered, node, place, read(place.leaf))
        if kind == f"{_LOGICAL}.Aggregate" and node.groupingExpressions().isEmpty():
            row = self._folded(node)
            if row is not None:
                return lambda: row
        mended = self._with_subqueries(node, read)
        children = [node.child()] if kind in _UNARY else items_of(node.children())
        if kind == f"{_LOGICAL}.Filter":
            condition = node.condition()
            filters = (*filters, condition) if condition.deterministic() else ()
            users = None if users is None else (*users, node)
        elif kind == f"{_LOGICAL}.Project":
            filters, users = (), (node,)
        else:
            # Rows that a filter further up drops may count here; so may columns that nothing names.
            filters, users = (), None
        found = [self._node(child, read, filters, users) for child in children]
        if mended is None:
            return self._with_children(node, children, found)

        def later() -> Any:
            new = mended()
            return _now(self._with_children(new, children, found), new)

        return later

    def _with_children(
        self, node: Any, children: Sequence[Any], found: Sequence[Later | None]
    ) -> Later | None:
        """Return what gives a node of a plan or an expression with children in the place of its own; None
        where all stay."""
        if all(each is None for each in found):
            return None

        def later() -> Any:
            new = [_now(each, child) for each, child in zip(found, children, strict=True)]
            if all(each is child for each, child in zip(new, children, strict=True)):
                return node
            return node.withNewChildren(self._seq(new))

        return later

    def _answered(self, node: Any, place: _Place, answer: Callable[[], DataFrame | None]) -> Any:
        """Return a read whose columns the plan takes for those of a leaf; the leaf where there is none."""
        frame = answer()
        if frame is None:
            return node
        self._places |= dict.fromkeys(place.names, place)
        return self._renamed(place, frame)

    # -- leaves ----------------------------------------------------------------------------------

    def _place(self, node: Any, kind: str, filters: tuple[Any, ...], users: Users) -> _Place | None:
        """Return the use of accel that a node is."""
        from pyspark.sql.types import StructType

        options, function, identity = None, None, b""
        if kind in (_SCAN, _RELATION):
            relation = node.relation() if kind == _SCAN else node
            table = relation.table()
            if class_of(table) != _PYTHON_TABLE or table.name() != "accel":
                return None
            if kind == _RELATION:
                raise UnlikePlanError("Spark has not planned a scan for accel")
            options = dict(relation.options().asCaseSensitiveMap())
            identity = repr(sorted(options.items())).encode()
        elif kind in _MAPS:
            found = self._function(node.functionExpr())
            if found is None:
                return None
            function, identity = found
        else:
            return None
        output = items_of(node.output())
        described = node.schema().json()
        schema = StructType.fromJson(json.loads(described))
        names = dict(zip(map(_id_of, output), schema.names, strict=True))
        fields: dict[str, frozenset[tuple[str, ...]]] = {}
        if users is None:
            columns = tuple(names.values())
        else:
            needed = {number for user in users for number in _references(user)}
            columns = tuple(name for number, name in names.items() if number in needed)
            if any(isinstance(schema[name].dataType, StructType) for name in columns):
                fields = _fields_used(users, names)
        conditions = tuple(pair for each in filters for pair in conjuncts_of(each, names))
        leaf = Leaf(
            options=options,
            function=function,
            identity=identity + described.encode(),
            schema=schema,
            columns=columns,
            fields=fields,
            conditions=conditions,
        )
        return _Place(leaf=leaf, output=tuple(output), names=names)

    def _function(self, expression: Any) -> tuple[Any, bytes] | None:
        """Return a function of `accel.spark.table` and its pickled form, or the record of a read and its
        name; None for another one."""
        from pyspark.serializers import CPickleSerializer

        name = expression.name()
        recorded = recorded_by_name(name)
        if recorded is not None:
            return recorded[1], f"read {recorded[0]}".encode()
        if name != self._function_name:
            return None
        command = expression.func().command().toArray(self._byte)
        pickled = bytes(command)
        serializer: Any = CPickleSerializer()
        found = serializer.loads(pickled)
        return (found[0], pickled) if isinstance(found, tuple) else None

    def _renamed(self, place: _Place, frame: DataFrame) -> Any:
        plan = frame._jdf.queryExecution().analyzed()
        output = plan.output()
        theirs = {field.name: (at, field.dataType) for at, field in enumerate(frame.schema)}
        renamed = []
        for old, name in zip(place.output, place.names.values(), strict=True):
            if name not in theirs:
                if name in place.leaf.columns:
                    raise UnlikePlanError(f"a read lacks the column {name!r}")
                continue
            at, kind = theirs[name]
            new = self._of_type(output.apply(at), kind, place.leaf.schema[name].dataType)
            if new is None:
                raise UnlikePlanError(f"the column {name!r} is {kind.simpleString()} now")
            described = bool(place.leaf.schema[name].metadata)
            renamed.append(self._alias(new, old, name, described=described))
        return self._project(self._seq(renamed), plan)

    def _of_type(self, column: Any, kind: DataType, wanted: DataType) -> Any:
        """Return a column in the type that a plan wants; None where it has another one."""
        from pyspark.sql.types import DecimalType, LongType

        if kind.simpleString() == wanted.simpleString():
            return column
        if isinstance(wanted, DecimalType) and isinstance(kind, LongType):
            return self._make_decimal(column, wanted.precision, wanted.scale, False)
        return None

    # -- aggregates ------------------------------------------------------------------------------

    def _folded(self, node: Any) -> Any:
        """Return the one row of an aggregate straight over a use of accel; None where Spark computes it."""
        below = node.child()
        filters: tuple[Any, ...] = ()
        while True:
            kind = class_of(below)
            if kind == f"{_LOGICAL}.Filter":
                condition = below.condition()
                if not condition.deterministic():
                    return None
                filters = (*filters, condition)
            elif kind != f"{_LOGICAL}.Project" or any(
                not class_of(each).endswith(".AttributeReference") for each in items_of(below.projectList())
            ):
                break
            below = below.child()
        place = self._place(below, kind, filters, None)
        if place is None:
            return None
        aggregates = items_of(node.aggregateExpressions())
        measures = [aggregate_of(each, place.names) for each in aggregates]
        if not measures or None in measures:
            return None
        frame = self._fold(place.leaf, [each for each in measures if each is not None])
        if frame is None:
            return None
        plan = frame._jdf.queryExecution().analyzed()
        renamed = []
        for old, new in zip(aggregates, items_of(plan.output()), strict=True):
            if new.dataType().catalogString() != old.dataType().catalogString():
                return None
            renamed.append(self._alias(new, old, old.name(), described=True))
        return self._project(self._seq(renamed), plan)

    def _alias(self, new: Any, old: Any, name: str, *, described: bool) -> Any:
        """Return a column that a plan takes for another one, which may be described by metadata."""
        metadata = self._option(old.metadata()) if described else self._none
        return self._alias_of(new, name, old.exprId(), old.qualifier(), metadata, self._nothing)

    # -- joins -----------------------------------------------------------------------------------

    def _with_keys(self, node: Any, narrow: Narrow) -> Any:
        """Return a plan in which the keys of small sides of joins narrow the reads of large ones."""
        if self._place_of(node) is not None:
            return node
        children = items_of(node.children())
        found = [self._with_keys(child, narrow) for child in children]
        if any(new is not old for new, old in zip(found, children, strict=True)):
            node = node.withNewChildren(self._seq(found))
        return self._narrowed(node, narrow) if class_of(node) == f"{_LOGICAL}.Join" else node

    def _narrowed(self, node: Any, narrow: Narrow) -> Any:
        sides = [node.left(), node.right()]
        outputs = [{_id_of(each) for each in items_of(side.output())} for side in sides]
        pairs: Sequence[Pair] | None = None
        for large in JOINS.get(node.joinType().toString(), ()):
            small = 1 - large
            if _bytes_of(sides[small]) > self._key_bytes:
                continue
            if pairs is None:
                pairs = equal_pairs(node, outputs)
            place, chosen = self._place_below(sides[large], [pair[large] for pair in pairs])
            if place is None or not is_repeatable(sides[small], self._place_of):
                continue
            keys = self._project(self._seq([pairs[at][small] for at in chosen]), sides[small])
            columns = tuple(place.names[_id_of(pairs[at][large])] for at in chosen)
            frame = narrow(place.leaf, columns, self._frame(self._session, keys))
            if frame is not None:
                sides[large] = self._exchanged(sides[large], place, self._renamed(place, frame))
                return node.withNewChildren(self._seq(sides))
        return node

    def _place_of(self, node: Any) -> _Place | None:
        """Return the read that a node is."""
        if class_of(node) != f"{_LOGICAL}.Project":
            return None
        first = node.projectList().headOption()
        if first.isEmpty() or not class_of(first.get()).endswith(".Alias"):
            return None
        return self._places.get(_id_of(first.get()))

    def _place_below(self, side: Any, keys: Sequence[Any]) -> tuple[_Place | None, list[int]]:
        """Return a read of which some keys are columns that reach a join as they are, and which keys those
        are."""
        stack = [side]
        numbers = [_id_of(key) for key in keys]
        while stack and keys:
            node = stack.pop()
            place = self._place_of(node)
            if place is None:
                stack += is_row_wise(node)
                continue
            chosen = [at for at, number in enumerate(numbers) if number in place.names]
            if chosen and _bytes_of(node) >= self._worth_bytes:
                return place, chosen
        return None, []

    def _exchanged(self, node: Any, place: _Place, read: Any) -> Any:
        """Return a plan with another read in its place."""
        if self._place_of(node) is place:
            return read
        children = items_of(node.children())
        found = [self._exchanged(child, place, read) for child in children]
        if all(new is old for new, old in zip(found, children, strict=True)):
            return node
        return node.withNewChildren(self._seq(found))

    # -- subqueries ------------------------------------------------------------------------------

    def _with_subqueries(self, node: Any, read: Answer) -> Later | None:
        """Return what gives a node with the subqueries in its expressions replaced."""
        if not node.containsPattern(self._of_subqueries) or node.subqueries().isEmpty():
            return None
        own = [node.productElement(at) for at in range(node.productArity())]
        found = [self._argument(each, read) for each in own]
        if all(each is None for each in found):
            return None

        def later() -> Any:
            new = [_now(each, argument) for each, argument in zip(found, own, strict=True)]
            if all(each is argument for each, argument in zip(new, own, strict=True)):
                return node
            arguments = self._gateway.new_array(self._jvm.java.lang.Object, len(own))
            for at, argument in enumerate(new):
                arguments[at] = argument
            return node.makeCopy(arguments)

        return later

    def _argument(self, value: Any, read: Answer) -> Later | None:
        if self._is(value, f"{_EXPRESSIONS}.Expression"):
            return self._expression(value, read)
        if not self._is(value, "scala.collection.Seq"):
            return None
        own = items_of(value)
        found = [self._argument(each, read) for each in own]
        if all(each is None for each in found):
            return None

        def later() -> Any:
            new = [_now(each, item) for each, item in zip(found, own, strict=True)]
            same = all(each is item for each, item in zip(new, own, strict=True))
            return value if same else self._seq(new)

        return later

    def _expression(self, value: Any, read: Answer) -> Later | None:
        children = items_of(value.children())
        found = [self._expression(child, read) for child in children]
        if not self._is(value, f"{_EXPRESSIONS}.PlanExpression"):
            return self._with_children(value, children, found)
        own = value.plan()
        below = self._node(own, read, (), None)
        if below is None:
            return self._with_children(value, children, found)

        def later() -> Any:
            plan = below()
            new = value if plan is own else value.withNewPlan(plan)
            return _now(self._with_children(new, children, found), new)

        return later

    # -- Scala -----------------------------------------------------------------------------------

    # A name that is looked up takes a call to the JVM for each of its parts, so that each is kept.

    @cached_property
    def _project(self) -> Any:
        return getattr(self._jvm, _LOGICAL).Project

    @cached_property
    def _alias_of(self) -> Any:
        return getattr(self._jvm, _EXPRESSIONS).Alias

    @cached_property
    def _make_decimal(self) -> Any:
        return getattr(self._jvm, _EXPRESSIONS).MakeDecimal

    @cached_property
    def _option(self) -> Any:
        return self._jvm.scala.Option.apply

    @cached_property
    def _list(self) -> Any:
        return self._jvm.java.util.ArrayList

    @cached_property
    def _to_seq(self) -> Any:
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq

    @cached_property
    def _is_instance(self) -> Any:
        return self._jvm.py4j.reflection.TypeUtil.isInstanceOf

    @cached_property
    def _of_subqueries(self) -> Any:
        """What a node says of itself that has subqueries in its expressions, or in those below it."""
        return self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PLAN_EXPRESSION()

    @cached_property
    def _none(self) -> Any:
        return self._option(None)

    @cached_property
    def _byte(self) -> Any:
        return self._jvm.scala.reflect.ClassTag.Byte()

    @cached_property
    def _nothing(self) -> Any:
        return self._seq([])

    def _is(self, value: Any, name: str) -> bool:
        from py4j.java_gateway import JavaObject

        return isinstance(value, JavaObject) and bool(self._is_instance(name, value))

    def _seq(self, values: Sequence[Any]) -> Any:
        listed = self._list()
        for value in values:
            listed.add(value)
        return self._to_seq(listed)


def _now(later: Later | None, own: Any) -> Any:
    """Return what takes the place of a part of a plan; the part itself where nothing does."""
    return own if later is None else later()


def _guarded(ask: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the caller whose errors are no faults of the plan."""

    def guarded(*arguments: Any) -> Any:
        try:
            return ask(*arguments)
        except Exception as error:  # noqa: BLE001 - it is raised again
            raise _ReadError(error) from None

    return guarded


def _references(node: Any) -> set[int]:
    return {_id_of(each) for each in items_of(node.references().toSeq())}


def _fields_used(users: Sequence[Any], names: Mapping[int, str]) -> dict[str, frozenset[tuple[str, ...]]]:
    """Return the columns of which only fields are used, with the paths of those."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for user in users:
        for expression in items_of(user.expressions()):
            for name, path in field_paths(expression, names):
                paths = found.setdefault(name, set())
                if path is not None:
                    paths.add(path)
    return {name: frozenset(paths) for name, paths in found.items() if () not in paths}


def _bytes_of(node: Any) -> int:
    return int(str(node.stats().sizeInBytes()))


def _id_of(attribute: Any) -> int:
    found = attribute.exprId().id()
    if not isinstance(found, int):
        raise UnlikePlanError("the columns of this Spark have no numbers")
    return found
