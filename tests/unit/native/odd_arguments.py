"""Calls of the native functions that nobody would make: each returns or raises, and leaves nothing behind.

Arguments are made from what the stub says, so that a call gets beyond the first check; then something odd is
put in: other types, numbers at the edges, bytes of another message, things that raise when they are asked for
something, and callbacks that empty every list of the call while it is under way.

    python -m tests.unit.native.odd_arguments FIRST_SEED CALLS LAST_CALL_FILE [NAME...]
"""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from struct import pack
from typing import Any, NamedTuple

import tools.sanitize  # noqa: F401  # puts the watched module in place, where there is one
from kourou import native as package
from kourou.native import native
from kourou.protocol import properties, record
from kourou.protocol.frame import Frame
from tests.fuzz.mutation import EDGES, mutated

STUB = Path(package.__file__).with_name("_native.pyi")
ODD_ONE_IN = 25
NUMBERS = (*EDGES, 3, 8, 20, 64, 1000, 2**31, 2**40, 2**62, -(2**63), 2**63, 2**64, 10**30)
ENTRY = b"\x00" * 8 + pack(">iq", 100, -7)
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
RECORD = record.encode(
    topic=b"orders",
    queue_id=3,
    flag=0,
    queue_offset=7,
    physical_offset=0,
    sys_flag=0,
    born_ms=1_794_797_067_533,
    born_host=HOST,
    store_ms=1_794_797_067_533,
    store_host=HOST,
    body=b"hello",
    properties=properties.encode({"KEYS": "k1 k2", "TAGS": "a", "UNIQ_KEY": "7F" * 16}),
    reconsume_times=0,
    prepared_offset=0,
)
HEADER = (
    b'{"code":310,"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":399,'
    b'"extFields":{"a":"shop","b":"orders","c":"TBW102","d":"4","e":"3","f":"0","g":"1794797067533","h":"0",'
    b'"i":"UNIQ_KEY\\u00017F000001000018B4AAC2000000000000\\u0002WAIT\\u0001true\\u0002TAGS\\u0001a",'
    b'"j":"0","k":"false","m":"false"}}'
)
FRAME = pack(">II", 4 + len(HEADER) + 5, len(HEADER)) + HEADER + b"hello"
SEEDS = (
    *(b"", b"\x00", b"orders", b"7F" * 16, HOST, HOST, HOST * 2 + bytes(4), ENTRY, ENTRY * 40),
    *(RECORD, RECORD * 3, HEADER, FRAME, FRAME * 3, bytes(800)),
    *(
        pack(f"={len(places)}q", *places)
        for places in ((0,), (0, len(RECORD)), (0, 5, 9, 20), (20, 3, -1, 2**62))
    ),
)
WORDS = (
    b"UNIQ_KEY\x01",
    b"KEYS\x01",
    b"\x02",
    b"TAGS\x01a\x02",
    pack(">I", 0xDAA320A7),
    pack(">I", 0x7FFFFFFF),
)


class Thrown(Exception):
    """What our own objects raise inside a call."""


def signatures() -> dict[str, list[ast.expr]]:
    """Of each function that the stub has, the types of its parameters."""
    module = ast.parse(STUB.read_text())
    return {
        each.name: [parameter.annotation for parameter in each.args.posonlyargs if parameter.annotation]
        for each in module.body
        if isinstance(each, ast.FunctionDef)
    }


class Maker:
    """Arguments of one call, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.is_odd = self.chance.random() < 0.8
        self.lists: list[list[Any]] = []

    def arguments(self, types: list[ast.expr]) -> list[Any]:
        made = [self.value(each) for each in types]
        if self.is_odd and not self.chance.randrange(60):
            made = made[: self.chance.randrange(len(made) + 1)] + [None] * self.chance.randrange(3)
        return made

    def value(self, kind: ast.expr) -> Any:
        if self.is_odd and not self.chance.randrange(ODD_ONE_IN):
            return self.odd()
        match kind:
            case ast.BinOp():
                return self.value(self.chance.choice((kind.left, kind.right)))
            case ast.Constant(value=None):
                return None
            case ast.Name(id=name):
                return self.plain(name)
            case ast.Subscript(value=ast.Name(id=name), slice=inner):
                return self.compound(name, inner.elts if isinstance(inner, ast.Tuple) else [inner])
        raise AssertionError(f"the stub has a type that is not known here: {ast.unparse(kind)}")

    def plain(self, name: str) -> Any:
        chance = self.chance
        match name:
            case "bytes":
                return self.data()
            case "bytearray":
                return bytearray(self.data())
            case "memoryview":
                return memoryview(chance.choice((bytes, bytearray))(self.data()))
            case "int":
                return chance.choice(NUMBERS) if chance.random() < 0.2 else chance.randrange(200)
            case "str":
                return "orders" if chance.random() < 0.5 else self.data().decode("utf-8", "replace")
            case "bool":
                return chance.random() < 0.5
            case "float":
                return chance.choice((0.0, -1.5, 1e300, float("nan")))
            case "Any" | "object":
                return self.anything()
        raise AssertionError(f"the stub has a type that is not known here: {name}")

    def compound(self, name: str, inner: list[ast.expr]) -> Any:
        chance = self.chance
        if name in ("list", "Sequence"):
            made = [self.value(inner[0]) for _ in range(chance.choice((0, 1, 1, 3, 10)))]
            self.lists.append(made)
            return made
        if name == "tuple":
            if isinstance(inner[-1], ast.Constant) and inner[-1].value is Ellipsis:
                return tuple(self.value(inner[0]) for _ in range(chance.randrange(9)))
            return tuple(self.value(each) for each in inner)
        if name == "dict":
            pairs = (tuple(self.value(each) for each in inner) for _ in range(chance.randrange(8)))
            return {key: value for key, value in pairs if _is_hashable(key)}
        if name in ("set", "frozenset"):
            return {each for each in (self.value(inner[0]) for _ in range(3)) if _is_hashable(each)}
        if name == "Callable":
            return self.callback(inner[1])
        raise AssertionError(f"the stub has a type that is not known here: {name}")

    def callback(self, returned: ast.expr) -> Callable[..., Any]:
        def call(*_: object) -> Any:
            self.misbehave()
            return self.value(returned)

        return Frame if self.chance.random() < 0.2 else call

    def misbehave(self) -> None:
        """What code of ours that is called back would not do."""
        if self.is_odd and not self.chance.randrange(10):
            for each in self.lists:
                each[:] = self.chance.choice(([], [None] * 20, each * 3, [self.odd() for _ in each]))
        if self.is_odd and not self.chance.randrange(15):
            raise Thrown

    def data(self) -> bytes:
        chance = self.chance
        return mutated(chance, SEEDS, WORDS) if chance.random() < 0.4 else chance.choice(SEEDS)

    def anything(self) -> Any:
        chance = self.chance
        match chance.randrange(6):
            case 0:
                return self.odd()
            case 1:
                return Anything(self)
            case 2:
                return (self.data(), chance.randrange(9), chance.choice(NUMBERS), self.data())[
                    : chance.randrange(5)
                ]
            case 3:
                return self.data()
            case _:
                header = HEADER if chance.random() < 0.6 else mutated(chance, (HEADER,), WORDS)
                return Frame(0, header, self.data())

    def odd(self) -> Any:
        """Whatever the types say."""
        chance, data = self.chance, self.data()
        released = memoryview(data)
        released.release()
        makers: tuple[Callable[[], Any], ...] = (
            *(
                lambda: None,
                lambda: chance.choice(NUMBERS),
                lambda: 0.5,
                lambda: data,
                lambda: bytearray(data),
            ),
            *(
                lambda: "",
                lambda: "\ud800",
                lambda: "中" * 300,
                lambda: [],
                lambda: [None],
                lambda: (),
                lambda: {},
            ),
            *(lambda: memoryview(data)[::-2], lambda: released, lambda: memoryview(bytearray(64)).cast("I")),
            *(
                lambda: (None,) * 3,
                lambda: [[]] * 4,
                lambda: [b""] * 4,
                lambda: object,
                lambda: Anything(self),
            ),
            *(
                lambda: Bytes(data),
                lambda: Number(7),
                lambda: self.callback(ast.Name("Any")),
                lambda: range(5),
            ),
        )
        return chance.choice(makers)()


class Anything:
    """Has every attribute, and is a number, a sequence and a mapping, if it is in the mood."""

    def __init__(self, maker: Maker) -> None:
        self.__dict__["_maker"] = maker

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        maker: Maker = self._maker
        maker.misbehave()
        return (
            maker.plain(maker.chance.choice(("bytes", "int", "str"))) if maker.chance.random() < 0.7 else []
        )

    def __setattr__(self, name: str, value: object) -> None:
        self._maker.misbehave()

    def __index__(self) -> int:
        self._maker.misbehave()
        return int(self._maker.chance.choice(NUMBERS))

    def __len__(self) -> int:
        self._maker.misbehave()
        return int(self._maker.chance.randrange(5))

    def __getitem__(self, key: object) -> Any:
        self._maker.misbehave()
        return self._maker.odd()

    def __eq__(self, other: object) -> bool:
        self._maker.misbehave()
        return False

    __hash__ = None  # type: ignore[assignment]


class Bytes(bytes):
    """Like bytes, and not of their type."""


class Number(int):
    """Like an int, and not of its type."""


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except (TypeError, ValueError):  # of a list; of a view that was released
        return False
    return True


class Function(NamedTuple):
    name: str
    call: Callable[..., object]
    types: list[ast.expr]


def functions(*names: str) -> list[Function]:
    """All of them, or these."""
    found = signatures()
    return [Function(name, getattr(native, name), found[name]) for name in names or found]


def call(among: list[Function], seed: int, note: Callable[[str], None] = lambda told: None) -> bool:
    """Make one call; whether it returned. SystemError when it did neither that nor raise as one does."""
    function = among[seed % len(among)]
    arguments = Maker(seed).arguments(function.types)
    note(f"seed {seed}: {function.name}{arguments!r:.2000}")
    try:
        function.call(*arguments)
    except SystemError:
        raise
    except Exception:
        return False
    return True


def growth(among: list[Function], seeds: range) -> int:
    """How many blocks of memory are there that were not there before these calls."""
    gc.collect()
    before = sys.getallocatedblocks()
    for seed in seeds:
        call(among, seed)
    gc.collect()
    return sys.getallocatedblocks() - before


def main() -> None:
    """Prints how many calls returned, and how many blocks of memory the third round of them left behind."""
    first, calls, path, *names = sys.argv[1:]
    among, seeds = functions(*names), range(int(first), int(first) + int(calls))
    with open(path, "w+b", buffering=0) as file:

        def note(told: str) -> None:
            file.seek(0)
            file.write(told.encode("utf-8", "backslashreplace") + b"\n\n")

        returned = sum(call(among, seed, note) for seed in seeds)
    is_counted = sys.getallocatedblocks() > 0  # not those of malloc
    growths = [growth(among, seeds) for _ in range(2 if is_counted else 0)]  # the first one fills caches
    print(returned, *growths[1:])


if __name__ == "__main__":
    main()
