"""Dataclasses that cost next to nothing before they are used.

The standard library writes and compiles the methods of a dataclass while its module is imported, about
0.4 ms for each class, which made a third of what a fresh process paid until its first answer. Here a class
with slots gets them at once and shares them with all others: each puts a faster one in its place when it
pays, and what `dataclasses.fields`, `replace` and `inspect.signature` look at is made when they look. So a
class is few objects, which the garbage collector looks at while modules are imported, and four times more when
the process exits. Instances compare as tuples of their fields do, in all versions of Python: one and the same
NaN is equal to itself.
A class that asks for more (fields of a base, an order, `InitVar`, own methods in the place of those made
here) is left to the standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses
    import functools
    import inspect  # as dataclasses does
    import operator
    import threading

    _OURS = frozenset(
        {
            "__init__",
            "__setattr__",
            "__delattr__",
            "__getstate__",
            "__slots__",
            "__replace__",
            "__signature__",
        }
    )
    _COMPARING = frozenset({"__eq__", "__hash__"})
    _KNOWN = frozenset({"frozen", "slots", "eq", "kw_only", "repr", "weakref_slot"})
    # To a class without a docstring the standard library gives its signature: 1 to 3 ms the first time.
    _WRITTEN = "Made for its fields."
    _FEW = 8
    """Instances that are made without a compiled `__init__`."""

    def dataclass(cls=None, /, **options):
        """As `dataclasses.dataclass`, at no cost before the first use where there are slots."""
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        kinds = cls.__annotations__
        text = " ".join(map(str, kinds.values()))
        if (
            not options.get("slots")
            or not options.keys() <= _KNOWN
            or not _OURS.isdisjoint(cls.__dict__)
            or (options.get("eq", True) and not _COMPARING.isdisjoint(cls.__dict__))
            or (cls.__bases__ != (object,) and hasattr(cls, "__dataclass_fields__"))
            or "InitVar" in text
            or "KW_ONLY" in text
        ):
            return dataclasses.dataclass(cls, **options)
        if "ClassVar" in text:
            kinds = {name: kind for name, kind in kinds.items() if "ClassVar" not in str(kind)}
        return _make(cls, kinds, options)

    def _make(cls, kinds, options):
        """The class, with slots, and all that needs no compiling."""
        body = dict(cls.__dict__)
        body.pop("__dict__", None)
        body.pop("__weakref__", None)
        defaults = {name: body.pop(name) for name in kinds if name in body}
        for name, value in defaults.items():
            if type(value).__hash__ is None:
                raise ValueError(f"the default of {cls.__qualname__}.{name} can change; use default_factory")
        body["__slots__"] = (*kinds, "__weakref__") if options.get("weakref_slot") else tuple(kinds)
        body["__qualname__"] = cls.__qualname__
        body |= _ALWAYS
        if "__repr__" not in body and options.get("repr", True):
            body["__repr__"] = _represent
        if options.get("eq", True):
            body |= _COMPARED
        if options.get("frozen"):
            body |= _FROZEN
        elif options.get("eq", True):
            body["__hash__"] = None
        record = body["_record_"] = _Record()
        record.kinds = kinds
        record.defaults = defaults
        record.options = options
        record.made = 0
        record.binding = None
        record.cls = type(cls)(cls.__name__, cls.__bases__, body)
        return record.cls

    class _Record:
        """What a class is made of."""

        __slots__ = ("binding", "cls", "defaults", "kinds", "made", "options")

        def listed(self):
            """The fields that were written as `field(...)`."""
            return {n: value for n, value in self.defaults.items() if isinstance(value, dataclasses.Field)}

        def but(self, flag):
            """The fields' names, without those that say no to something."""
            without = {name for name, field in self.listed().items() if not getattr(field, flag)}
            return [name for name in self.kinds if name not in without]

        def field(self, name):
            default = self.defaults.get(name, dataclasses.MISSING)
            return default if isinstance(default, dataclasses.Field) else dataclasses.field(default=default)

        def keyword(self, name):
            default = self.defaults.get(name)
            only = default.kw_only if isinstance(default, dataclasses.Field) else dataclasses.MISSING
            return self.options.get("kw_only", False) if only is dataclasses.MISSING else only

        def prepare(self):
            """What `bind` goes by: names in order, defaults, their makers, names never given, names that end up set."""
            fields = self.listed()
            if not fields:
                return self.match_args(), self.defaults, {}, (), self.kinds.keys()
            missing = dataclasses.MISSING
            plain = {
                name: fields[name].default if name in fields else value
                for name, value in self.defaults.items()
                if name not in fields or fields[name].default is not missing
            }
            makers = {
                name: field.default_factory
                for name, field in fields.items()
                if field.default_factory is not missing
            }
            closed = {name for name, field in fields.items() if not field.init}
            ends = self.kinds.keys() - (closed - plain.keys() - makers.keys())
            return self.match_args(), plain, makers, closed, ends

        def bind(self, args, kwargs):
            """The value of each field; None where the arguments do not fit."""
            if self.binding is None:
                self.binding = self.prepare()
            positional, plain, makers, closed, ends = self.binding
            if len(args) > len(positional):
                return None
            given = dict(zip(positional, args, strict=False))
            if kwargs:
                if not given.keys().isdisjoint(kwargs):
                    return None
                given |= kwargs
            if closed and not closed.isdisjoint(given):
                return None
            values = plain | given
            for name, make in makers.items():
                if name not in values:
                    values[name] = make()
            return values if values.keys() == ends else None

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
                if self.options.get("frozen"):
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

        def compare(self):
            """Give the class comparison and hash of its own fields."""
            values = _values(self.but("compare"))

            def __eq__(self, other):
                if other.__class__ is self.__class__:
                    return values(self) == values(other)
                return NotImplemented

            def __hash__(self):
                return hash(values(self))

            self.cls.__eq__ = __eq__
            if self.options.get("frozen"):
                self.cls.__hash__ = __hash__

        def fields(self):
            """What `dataclasses.fields` and `replace` look at."""
            looked = {}
            for name, kind in self.kinds.items():
                looked[name] = field = self.field(name)
                field.name, field.type, field.kw_only = name, kind, self.keyword(name)
                field._field_type = _ordinary()
            return looked

        def params(self):
            return self.standard().__dataclass_params__

        def signature(self):
            return inspect.signature(self.standard())

        def standard(self):
            """The class with these fields and nothing else, as the standard library makes it."""
            body = {
                "__annotations__": dict(self.kinds),
                "__doc__": _WRITTEN,
                "__module__": self.cls.__module__,
            }
            bare = type(self.cls.__name__, (), body | self.defaults)
            flags = {name: self.options[name] for name in ("frozen", "eq", "kw_only") if name in self.options}
            return dataclasses.dataclass(bare, **flags)

        def match_args(self):
            if self.listed():
                return tuple([name for name in self.but("init") if not self.keyword(name)])
            return () if self.options.get("kw_only") else tuple(self.kinds)

    @functools.cache
    def _ordinary():
        """What the standard library marks a field with that is neither of the class only nor of `__init__` only."""
        bare = type("Any", (), {"__annotations__": {"field": "object"}, "__doc__": _WRITTEN})
        dataclasses.dataclass(bare, init=False, repr=False, eq=False)  # compiles nothing
        return bare.__dataclass_fields__["field"]._field_type

    class _Lazily:
        """An attribute of a class that is made when it is asked for."""

        def __init__(self, name, make):
            self.name = name
            self.make = make

        def __get__(self, instance, owner):
            record = owner._record_
            made = self.make(record)
            setattr(record.cls, self.name, made)
            return made

    class _Signature:
        """What a class is called with: not an instance that can be called, nor a subclass that is made otherwise."""

        def __get__(self, instance, owner):
            record = owner._record_
            if instance is not None or owner.__init__ is not record.cls.__init__:
                raise AttributeError("__signature__")
            return record.signature()

    def _values(names):
        if not names:
            return lambda instance: ()
        if len(names) == 1:
            only = operator.attrgetter(names[0])
            return lambda instance: (only(instance),)
        return operator.attrgetter(*names)

    # What follows is shared by all classes; a class's own takes its place once it pays.

    def _first_init(instance, *args, **kwargs):
        record = instance._record_
        record.made += 1
        values = record.bind(args, kwargs) if record.made <= _FEW else None
        if values is None:  # wrong arguments too: the real one says what is wrong
            record.cls.__init__ = record.init()
            record.cls.__init__(instance, *args, **kwargs)
            return
        for name, value in values.items():
            object.__setattr__(instance, name, value)
        if hasattr(instance, "__post_init__"):
            instance.__post_init__()

    def _first_eq(self, other):
        self._record_.compare()
        return self._record_.cls.__eq__(self, other)

    def _first_hash(self):
        self._record_.compare()
        return self._record_.cls.__hash__(self)

    _representing = set()

    def _represent(self):
        key = id(self), threading.get_ident()
        if key in _representing:
            return "..."
        _representing.add(key)
        try:
            names = self._record_.but("repr")
            inside = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        finally:
            _representing.discard(key)
        return f"{self.__class__.__qualname__}({inside})"

    def _get_state(self):
        return [getattr(self, name) for name in self._record_.kinds]

    def _set_state(self, state):
        for name, value in zip(self._record_.kinds, state, strict=True):
            object.__setattr__(self, name, value)

    def _refuse_to_set(self, name, value):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_to_delete(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    _ALWAYS = {
        "__init__": _first_init,
        "__dataclass_fields__": _Lazily("__dataclass_fields__", _Record.fields),
        "__dataclass_params__": _Lazily("__dataclass_params__", _Record.params),
        "__match_args__": _Lazily("__match_args__", _Record.match_args),
        "__replace__": dataclasses.replace,
        "__signature__": _Signature(),
    }
    _COMPARED = {"__eq__": _first_eq, "__hash__": _first_hash}
    _FROZEN = {
        "__setattr__": _refuse_to_set,
        "__delattr__": _refuse_to_delete,
        "__getstate__": _get_state,
        "__setstate__": _set_state,
    }
