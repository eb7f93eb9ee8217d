"""Dataclasses that cost next to nothing before they are used.

The standard library writes and compiles the methods of a dataclass while its module is imported, about
0.4 ms for each class, which made a third of what a fresh process paid until its first answer. Here a class
with slots gets them at once, its `__init__` when the first instance is made, and its other methods without
compiling. What `dataclasses.fields`, `replace` and `match` look at is made by the standard library when
they look. A class that asks for more (`order`, fields of a base, `InitVar`, own methods in the place of
those made here) is left to the standard library altogether.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses
    import inspect
    import threading
    from operator import attrgetter

    _OURS = frozenset(
        {"__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__slots__"}
    )
    _KNOWN = frozenset({"frozen", "slots", "eq", "kw_only", "repr", "weakref_slot"})
    _LOOKED_AT = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")

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
            body |= {name: _Lazily(self, name) for name in _LOOKED_AT}
            body["__init__"] = self.first_init()
            if self.repr and "__repr__" not in body:
                body["__repr__"] = _repr(self.but("repr"))
            if self.eq:
                body |= _comparisons(self.but("compare"))
                if not self.frozen:
                    body["__hash__"] = None
            if self.frozen:
                body |= _frozen(tuple(self.kinds))
            self.cls = type(cls)(cls.__name__, cls.__bases__, body)
            self.cls.__qualname__ = cls.__qualname__
            return self.cls

        def first_init(self):
            """An `__init__` that puts the real one in its own place."""

            def __init__(instance, *args, **kwargs):
                made = self.init()
                self.cls.__init__ = made
                made(instance, *args, **kwargs)

            return __init__

        def init(self):
            """The real `__init__`, compiled."""
            scope = {"_set": object.__setattr__, "_unset": dataclasses.MISSING}
            plain, keyword, lines = ["self"], [], []
            for name in self.kinds:
                field = self.defaults.get(name, dataclasses.MISSING)
                if not isinstance(field, dataclasses.Field):
                    field = dataclasses.field(default=field)
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
                    only = self.kw_only if field.kw_only is dataclasses.MISSING else field.kw_only
                    (keyword if only else plain).append(name + default)
                elif not default:
                    continue
                lines.append(f"_set(self, {name!r}, {value})" if self.frozen else f"self.{name} = {value}")
            if hasattr(self.cls, "__post_init__"):
                lines.append("self.__post_init__()")
            head = ", ".join([*plain, "*", *keyword] if keyword else plain)
            # As the standard library does it: names of fields, and nothing from outside.
            exec(f"def __init__({head}):\n " + "\n ".join(lines or ["pass"]), scope)  # noqa: S102
            made = scope["__init__"]
            made.__qualname__ = f"{self.cls.__qualname__}.__init__"
            made.__module__ = self.cls.__module__
            return made

        def standard(self):
            """A dataclass of the standard library with the same fields, and nothing else."""
            body = {"__annotations__": dict(self.kinds), "__module__": self.cls.__module__} | self.defaults
            bare = type(self.cls.__name__, (), body)
            return dataclasses.dataclass(bare, frozen=self.frozen, eq=self.eq, kw_only=self.kw_only)

    class _Lazily:
        """An attribute of a class that the standard library makes when it is asked for."""

        def __init__(self, record, name):
            self.record = record
            self.name = name

        def __get__(self, instance, owner):
            standard = self.record.standard()
            for name in _LOOKED_AT:
                setattr(self.record.cls, name, getattr(standard, name))
            return getattr(standard, self.name)

    def _values(names):
        if not names:
            return lambda instance: ()
        if len(names) == 1:
            only = attrgetter(names[0])
            return lambda instance: (only(instance),)
        return attrgetter(*names)

    def _comparisons(names):
        values = _values(names)

        def __eq__(self, other):
            if other.__class__ is self.__class__:
                return values(self) == values(other)
            return NotImplemented

        def __hash__(self):
            return hash(values(self))

        return {"__eq__": __eq__, "__hash__": __hash__}

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
