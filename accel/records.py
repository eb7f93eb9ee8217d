"""Dataclasses that cost next to nothing before they are used.

The standard library writes and compiles the methods of a dataclass while its module is imported, about
0.4 ms for each class, which made a third of what a fresh process paid until its first answer. Here a class
with slots gets them at once, a compiled `__init__` once it pays, and its other methods without compiling.
What `dataclasses.fields` and `replace` look at is made when they look. A class that asks for more (fields
of a base, `InitVar`, own methods in the place of those made here) is left to the standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses
    import functools
    import inspect
    import operator
    import threading

    _OURS = frozenset(
        {
            "__init__",
            "__eq__",
            "__hash__",
            "__lt__",
            "__setattr__",
            "__delattr__",
            "__getstate__",
            "__slots__",
        }
    )
    _KNOWN = frozenset({"frozen", "slots", "eq", "order", "kw_only", "repr", "weakref_slot"})
    _FEW = 8
    """Instances that are made without a compiled `__init__`."""

    def dataclass(cls=None, /, **options):
        """As `dataclasses.dataclass`, at no cost before the first use where there are slots."""
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        kinds = inspect.get_annotations(cls)
        text = " ".join(map(str, kinds.values()))
        if (
            not options.get("slots")
            or not options.keys() <= _KNOWN
            or not _OURS.isdisjoint(cls.__dict__)
            or any(hasattr(base, "__dataclass_fields__") for base in cls.__bases__)
            or "InitVar" in text
            or "KW_ONLY" in text
        ):
            return dataclasses.dataclass(cls, **options)
        if "ClassVar" in text:
            kinds = {name: kind for name, kind in kinds.items() if "ClassVar" not in str(kind)}
        return _Record(cls, kinds, options).make()

    class _Record:
        """What a class is made of."""

        def __init__(self, cls, kinds, options):
            self.cls = cls
            self.kinds = kinds
            self.frozen = options.pop("frozen", False)
            self.eq = options.pop("eq", True)
            self.order = options.pop("order", False)
            self.repr = options.pop("repr", True)
            self.kw_only = options.pop("kw_only", False)
            self.weak = options.pop("weakref_slot", False)
            self.defaults = {name: cls.__dict__[name] for name in kinds if name in cls.__dict__}
            self.fields = [
                name for name, value in self.defaults.items() if isinstance(value, dataclasses.Field)
            ]

        def but(self, flag):
            """The fields' names, without those that say no to something."""
            without = {name for name in self.fields if not getattr(self.defaults[name], flag)}
            return [name for name in self.kinds if name not in without] if without else list(self.kinds)

        def make(self):
            """The class, with slots, and all that needs no compiling."""
            cls = self.cls
            for name, value in self.defaults.items():
                if type(value).__hash__ is None and name not in self.fields:
                    raise ValueError(
                        f"the default of {cls.__qualname__}.{name} can change; use default_factory"
                    )
            body = {name: value for name, value in cls.__dict__.items() if name not in self.kinds}
            body.pop("__dict__", None)
            body.pop("__weakref__", None)
            body["__slots__"] = (*self.kinds, "__weakref__") if self.weak else tuple(self.kinds)
            body["__dataclass_fields__"] = _Lazily(self, "__dataclass_fields__", self.look)
            body["__dataclass_params__"] = _Lazily(self, "__dataclass_params__", self.params)
            body["__match_args__"] = tuple([name for name in self.but("init") if not self.keyword(name)])
            body["__init__"] = self.first_init()
            if self.repr and "__repr__" not in body:
                body["__repr__"] = _repr(self.but("repr"))
            if self.eq:
                body |= _comparisons(self.but("compare"), order=self.order)
                if not self.frozen:
                    body["__hash__"] = None
            if self.frozen:
                body |= _frozen(tuple(self.kinds))
            self.cls = type(cls)(cls.__name__, cls.__bases__, body)
            self.cls.__qualname__ = cls.__qualname__
            return self.cls

        def field(self, name):
            default = self.defaults.get(name, dataclasses.MISSING)
            return default if name in self.fields else dataclasses.field(default=default)

        def keyword(self, name):
            only = self.defaults[name].kw_only if name in self.fields else dataclasses.MISSING
            return self.kw_only if only is dataclasses.MISSING else only

        def first_init(self):
            """An `__init__` that needs no compiling, and puts the real one in its place once it pays."""
            count = 0

            def __init__(instance, *args, **kwargs):
                nonlocal count
                count += 1
                values = self.bind(args, kwargs) if count <= _FEW else None
                if values is None:  # wrong arguments too: the real one says what is wrong
                    self.cls.__init__ = self.init()
                    self.cls.__init__(instance, *args, **kwargs)
                    return
                for name, value in values.items():
                    object.__setattr__(instance, name, value)
                if hasattr(instance, "__post_init__"):
                    instance.__post_init__()

            return __init__

        def bind(self, args, kwargs):
            """The value of each field; None where the arguments do not fit."""
            positional = self.cls.__match_args__
            if len(args) > len(positional):
                return None
            given = dict(zip(positional, args, strict=False))
            if not given.keys().isdisjoint(kwargs):
                return None
            given |= kwargs
            values = {}
            for name in self.kinds:
                field = self.defaults.get(name, dataclasses.MISSING)
                listed = name in self.fields
                if name in given and not (listed and not field.init):
                    values[name] = given.pop(name)
                elif listed and field.default_factory is not dataclasses.MISSING:
                    values[name] = field.default_factory()
                else:
                    default = field.default if listed else field
                    if default is not dataclasses.MISSING:
                        values[name] = default
                    elif not listed or field.init:
                        return None
            return None if given else values

        def init(self):
            """The real `__init__`, compiled."""
            scope = {"_unset": dataclasses.MISSING}
            plain, keyword, lines = ["self"], [], []
            for name in self.kinds:
                field = self.field(name)
                value, default = name, ""
                if field.default_factory is not dataclasses.MISSING:
                    scope[f"_make_{name}"] = field.default_factory
                    default = "=_unset"
                    value = (
                        f"_make_{name}() if {name} is _unset else {name}" if field.init else f"_make_{name}()"
                    )
                elif field.default is not dataclasses.MISSING:
                    scope[f"_default_{name}"] = field.default
                    default = f"=_default_{name}"
                    value = name if field.init else f"_default_{name}"
                if field.init:
                    (keyword if self.keyword(name) else plain).append(name + default)
                elif not default:
                    continue
                if self.frozen:
                    # The slot itself: it takes two thirds of the time of object.__setattr__.
                    scope[f"_set_{name}"] = self.cls.__dict__[name].__set__
                    lines.append(f"_set_{name}(self, {value})")
                else:
                    lines.append(f"self.{name} = {value}")
            if hasattr(self.cls, "__post_init__"):
                lines.append("self.__post_init__()")
            head = ", ".join([*plain, "*", *keyword] if keyword else plain)
            # As the standard library does it: names of fields, and nothing from outside.
            exec(f"def __init__({head}):\n " + "\n ".join(lines or ["pass"]), scope)  # noqa: S102
            made = scope["__init__"]
            made.__qualname__ = f"{self.cls.__qualname__}.__init__"
            made.__module__ = self.cls.__module__
            return made

        def look(self):
            """What `dataclasses.fields` and `replace` look at."""
            looked = {}
            for name, kind in self.kinds.items():
                looked[name] = field = self.field(name)
                field.name, field.type, field.kw_only = name, kind, self.keyword(name)
                field._field_type = _ordinary()
            return looked

        def params(self):
            body = {"__annotations__": dict(self.kinds), "__module__": self.cls.__module__} | self.defaults
            bare = type(self.cls.__name__, (), body)
            flags = {"frozen": self.frozen, "eq": self.eq, "order": self.order, "kw_only": self.kw_only}
            return dataclasses.dataclass(bare, **flags).__dataclass_params__

    @functools.cache
    def _ordinary():
        """What the standard library marks a field with that is neither of the class only nor of `__init__` only."""
        return next(
            iter(dataclasses.make_dataclass("Any", ["field"]).__dataclass_fields__.values())
        )._field_type

    class _Lazily:
        """An attribute of a class that is made when it is asked for."""

        def __init__(self, record, name, make):
            self.record = record
            self.name = name
            self.make = make

        def __get__(self, instance, owner):
            made = self.make()
            setattr(self.record.cls, self.name, made)
            return made

    def _values(names):
        if not names:
            return lambda instance: ()
        if len(names) == 1:
            only = operator.attrgetter(names[0])
            return lambda instance: (only(instance),)
        return operator.attrgetter(*names)

    def _comparisons(names, *, order):
        values = _values(names)

        def __eq__(self, other):
            if other.__class__ is self.__class__:
                return values(self) == values(other)
            return NotImplemented

        def __hash__(self):
            return hash(values(self))

        made = {"__eq__": __eq__, "__hash__": __hash__}
        if order:
            for compare in (operator.lt, operator.le, operator.gt, operator.ge):
                made[f"__{compare.__name__}__"] = _ordering(values, compare)
        return made

    def _ordering(values, compare):
        def method(self, other):
            if other.__class__ is self.__class__:
                return compare(values(self), values(other))
            return NotImplemented

        return method

    def _repr(names):
        def __repr__(self):
            return _represent(self, names)

        return __repr__

    _representing = set()

    def _represent(instance, names):
        key = id(instance), threading.get_ident()
        if key in _representing:
            return "..."
        _representing.add(key)
        try:
            inside = ", ".join([f"{name}={getattr(instance, name)!r}" for name in names])
        finally:
            _representing.discard(key)
        return f"{instance.__class__.__qualname__}({inside})"

    def _frozen(names):
        def __getstate__(self):
            return [getattr(self, name) for name in names]

        def __setstate__(self, state):
            for name, value in zip(names, state, strict=True):
                object.__setattr__(self, name, value)

        return {
            "__setattr__": _refuse_to_set,
            "__delattr__": _refuse_to_delete,
            "__getstate__": __getstate__,
            "__setstate__": __setstate__,
        }

    def _refuse_to_set(self, name, value):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_to_delete(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
