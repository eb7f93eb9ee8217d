from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
from accel.errors import AccelError, ObjectNotFoundError, SchemaMismatchError, StoreError
from accel.metrics import Metrics
from accel.options import Options
from accel.planning.file_entry import FileBlock, FileEntry
from accel.store.client import Client
from accel.store.local_store import FileStore, etag_of
from accel.store.range_store import ObjectEntry, PageSeen
from accel.tables.path_source import PathRules, discover

S3 = "s3://bucket"


class Stores:
    """Buckets in memory that note what was listed."""

    def __init__(self, **buckets: Sequence[str] | Mapping[str, int]) -> None:
        self.buckets = {f"s3://{name}": keys for name, keys in buckets.items()}
        self.listed: list[tuple[str, str]] = []
        self.headed: list[str] = []
        self.markers: set[str] = set()
        """Keys whose `/` at the end went lost."""

    def client(self, root: str) -> _Bucket:
        return _Bucket(self, root)


class _Bucket:
    def __init__(self, stores: Stores, root: str) -> None:
        self.stores = stores
        self.root = root

    async def list_below(
        self,
        prefix: str,
        *,
        metrics: Metrics | None = None,
        begun: PageSeen | None = None,
    ) -> list[ObjectEntry]:
        assert not prefix.endswith("/")
        self.stores.listed.append((self.root, prefix))
        keys = self.stores.buckets[self.root]
        found = [
            ObjectEntry(key, keys[key] if isinstance(keys, Mapping) else 100, f'"{key}"')
            for key in sorted(keys)
            if not prefix or key.startswith(prefix + "/")
        ]
        if begun is not None:
            begun(found[: len(found) // 2])
        return found

    async def head(self, path: str, *, metrics: Metrics | None = None) -> ObjectEntry:
        self.stores.headed.append(path)
        if path in self.stores.markers:
            raise ObjectNotFoundError("there is no such object", path=path)
        return ObjectEntry(path, 0)


def listed(key: str, partition: tuple[object, ...] = (), *, url: str | None = None) -> FileEntry:
    return FileEntry(S3, key, url or f"{S3}/{key}", 100, f'"{key}"', partition)


def named(url: str, partition: tuple[object, ...] = ()) -> FileEntry:
    root, _, path = url.removeprefix("s3://").partition("/")
    return FileEntry(f"s3://{root}", path, url, None, None, partition)


_RULES = {field.name for field in dataclasses.fields(PathRules)}


async def find(stores: Stores, source: Any, **options: Any) -> FileBlock:
    rules = PathRules(**{name: options.pop(name) for name in _RULES & options.keys()})
    return await discover(source, clients=stores, rules=rules, metrics=Metrics(), **options)


NOTHING = pa.schema([])

# -- names, without a request --------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/a.parquet",
        "s3://bucket/d/part-0.snappy.pq",
        "s3://bucket/a b%20c+é.parquet",
        "s3://bucket/d/x.PARQUET",
    ],
)
async def test_a_named_file_takes_no_request(url: str) -> None:
    stores = Stores(bucket=[])
    assert await find(stores, url) == FileBlock((named(url),), NOTHING, 0)
    assert stores.listed == []


@pytest.mark.parametrize("partitioning", ["hive", None])
@pytest.mark.parametrize("key", ["a/b.parquet", "b.parquet", "year=1/b.parquet", "a/x=1.parquet"])
async def test_a_file_alone_is_found_as_among_others(key: str, partitioning: Any) -> None:
    stores = Stores(bucket=[key])
    alone = await find(stores, f"{S3}/{key}", partitioning=partitioning)
    among = await find(stores, [f"{S3}/{key}"] * 2, partitioning=partitioning)
    assert (alone.files, alone.partition_schema, alone.round_trips) == (
        among.files[:1],
        among.partition_schema,
        among.round_trips,
    )


async def test_over_http_everything_but_a_trailing_slash_is_a_file() -> None:
    stores = Stores()
    urls = ["https://host/a?X-Sig=a*b&p=/k=v/", "https://host/k=1/data", "https://host/[x]*.parquet?p=k=2/z"]
    assert await find(stores, urls) == FileBlock(
        (
            FileEntry("https://host", "a?X-Sig=a*b&p=/k=v/", urls[0]),
            FileEntry("https://host", "k=1/data", urls[1]),
            FileEntry("https://host", "[x]*.parquet?p=k=2/z", urls[2]),
        ),
        NOTHING,
        0,
    )


async def test_a_list_over_several_stores_keeps_its_order_and_its_repeats() -> None:
    stores = Stores(bucket=["d/2.parquet", "d/1.parquet"], other=["e/f"])
    found = await find(
        stores, ["s3://other/z.parquet", "s3://bucket/d/", "s3://other/e", "s3://other/z.parquet"]
    )
    assert found == FileBlock(
        (
            named("s3://other/z.parquet"),
            listed("d/1.parquet"),
            listed("d/2.parquet"),
            FileEntry("s3://other", "e/f", "s3://other/e/f", 100, '"e/f"'),
            named("s3://other/z.parquet"),
        ),
        NOTHING,
        1,
    )
    assert sorted(stores.listed) == [("s3://bucket", "d"), ("s3://other", "e")]


async def test_a_path_in_a_store_of_the_callers() -> None:
    stores = Stores()
    stores.buckets["store:"] = ["t/a=1/x", "t/a=2/y"]
    assert await find(stores, "t/*/?", in_store=True) == FileBlock(
        (
            FileEntry("store:", "t/a=1/x", "t/a=1/x", 100, '"t/a=1/x"', (1,)),
            FileEntry("store:", "t/a=2/y", "t/a=2/y", 100, '"t/a=2/y"', (2,)),
        ),
        pa.schema([("a", pa.int64())]),
        1,
    )
    assert (await find(stores, "**/y", in_store=True)).files[0].url == "t/a=2/y"
    assert [root_prefix for root_prefix in stores.listed] == [("store:", "t"), ("store:", "")]


# -- directories ---------------------------------------------------------------------------------

MESSY = {
    "t": 0,
    "t/": 0,
    "t/_SUCCESS": 0,
    "t/_delta_log/0.checkpoint.parquet": 100,
    "t/.part-0.crc": 12,
    "t/b.parquet": 100,
    "t/a b%20é.parquet": 100,
    "t/readme.txt": 100,
    "t/sub": 0,
    "t/sub/c.parquet": 100,
    "t/sub_$folder$": 0,
    "t/sub/_tmp/d.parquet": 100,
    "t/empty.parquet": 0,
    "t2/e.parquet": 100,
}


@pytest.mark.parametrize("url", ["s3://bucket/t/", "s3://bucket/t"])
async def test_a_directory_takes_what_is_neither_hidden_nor_a_marker(url: str) -> None:
    stores = Stores(bucket=MESSY)
    found = await find(stores, url, as_files=True)
    assert found == FileBlock(
        (
            listed("t/a b%20é.parquet"),
            listed("t/b.parquet"),
            FileEntry(S3, "t/empty.parquet", f"{S3}/t/empty.parquet", 0, '"t/empty.parquet"'),
            listed("t/readme.txt"),
            listed("t/sub/c.parquet"),
        ),
        NOTHING,
        1,
    )
    assert stores.listed == [(S3, "t")]


@pytest.mark.parametrize("source", ["s3://bucket/t/", "s3://bucket/t/*.parquet"])
async def test_the_marker_of_a_directory_that_has_an_extension(source: str) -> None:
    """Hadoop leaves `x.parquet/`, which obstore lists as `x.parquet`."""
    keys = {"t/x.parquet": 0, "t/x.parquet-old/a.txt": 7, "t/x.parquet/part-0.parquet": 100, "t/y.parquet": 0}
    found = await find(Stores(bucket=keys), source)
    kept = [file.path for file in found.files]
    if source.endswith("/"):
        assert kept == ["t/x.parquet-old/a.txt", "t/x.parquet/part-0.parquet", "t/y.parquet"]
    else:
        assert kept == ["t/y.parquet"]  # a file that the pattern names goes before directories that it names


async def test_the_marker_of_the_directory_itself_is_no_file_though_it_holds_something() -> None:
    stores = Stores(bucket={"t/": 5, "t/a.parquet": 100})
    assert (await find(stores, "s3://bucket/t/")).files == (listed("t/a.parquet"),)


@pytest.mark.parametrize("source", ["s3://bucket/t/", "s3://bucket/t", "s3://bucket/t/*.parquet"])
async def test_a_marker_below_which_there_is_nothing_is_told_from_an_empty_file(source: str) -> None:
    stores = Stores(
        bucket={"t/a.parquet": 0, "t/b.parquet": 100, "t/c.parquet": 0, "t/_d.parquet": 0, "t/e": 0}
    )
    stores.markers = {"t/a.parquet"}
    found = await find(stores, source)
    assert [(file.path, file.size) for file in found.files] == [("t/b.parquet", 100), ("t/c.parquet", 0)]
    assert (stores.listed, stores.headed) == ([(S3, "t")], ["t/a.parquet", "t/c.parquet"])


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("s3://bucket/t/", "the directory holds no data file"),
        ("s3://bucket/t/*.parquet", "nothing matches the pattern"),
    ],
)
async def test_where_there_is_nothing_but_a_marker(source: str, told: str) -> None:
    stores = Stores(bucket={"t/a.parquet": 0})
    stores.markers = {"t/a.parquet"}
    with pytest.raises(ObjectNotFoundError, match=f"^{re.escape(source)}: {told}"):
        await find(stores, source)


async def test_a_pattern_that_only_markers_match_names_directories() -> None:
    stores = Stores(bucket={"t/a.parquet": 0, "t/b.parquet/part": 100})
    stores.markers = {"t/a.parquet"}
    assert (await find(stores, "s3://bucket/t/*.parquet")).files == (listed("t/b.parquet/part"),)


async def test_many_empty_files_are_not_all_asked_for() -> None:
    stores = Stores(bucket={f"t/{n:03}.parquet": 0 for n in range(100)})
    assert len((await find(stores, "s3://bucket/t/")).files) == 100
    assert stores.headed == [f"t/{n:03}.parquet" for n in range(16)]
    stores.headed, stores.markers = [], {f"t/{n:03}.parquet" for n in range(0, 32, 2)}
    assert len((await find(stores, "s3://bucket/t/")).files) == 84
    assert stores.headed == [f"t/{n:03}.parquet" for n in range(48)]


async def test_a_store_that_does_not_say_keeps_its_empty_files() -> None:
    class Silent(_Bucket):
        async def head(self, path: str, *, metrics: Metrics | None = None) -> ObjectEntry:
            raise StoreError("the store answered with status 403", path=path, status=403)

    class Silently(Stores):
        def client(self, root: str) -> _Bucket:
            return Silent(self, root)

    found = await discover(
        "s3://bucket/t/", clients=Silently(bucket={"t/a.parquet": 0}), rules=PathRules(), metrics=Metrics()
    )
    assert [file.path for file in found.files] == ["t/a.parquet"]


async def test_what_is_hidden_above_the_directory_does_not_matter() -> None:
    stores = Stores(bucket=["_x/.y/z.parquet"])
    assert (await find(stores, "s3://bucket/_x/.y/")).files == (listed("_x/.y/z.parquet"),)


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/"])
async def test_a_bucket_is_a_directory(url: str) -> None:
    stores = Stores(bucket=["b", "a/c", "_d"])
    assert await find(stores, url) == FileBlock((listed("a/c"), listed("b")), NOTHING, 1)
    assert stores.listed == [(S3, "")]


async def test_an_open_name_below_which_there_is_nothing_is_a_file() -> None:
    assert await find(Stores(bucket=["tx"]), "s3://bucket/t") == FileBlock(
        (named("s3://bucket/t"),), NOTHING, 1
    )


async def test_an_open_name_below_which_all_is_hidden_is_no_file() -> None:
    with pytest.raises(ObjectNotFoundError, match="s3://bucket/t: the directory holds no data file"):
        await find(Stores(bucket=["t/_SUCCESS"]), "s3://bucket/t")


async def test_columns_that_a_schema_wants_and_no_path_spells() -> None:
    stores = Stores(bucket=["t/a", "t/b"])
    with pytest.raises(SchemaMismatchError):
        await find(stores, "s3://bucket/t/", partitioning=pa.schema([("day", pa.int64())]))


async def test_the_marker_of_a_directory_with_an_extension_that_hadoop_names_so() -> None:
    stores = Stores(bucket={"t/x.parquet_$folder$": 0, "t/y.parquet": 100})
    assert (await find(stores, "s3://bucket/t/")).files == (listed("t/y.parquet"),)


async def test_an_object_named_like_a_pattern_at_the_root_of_its_bucket() -> None:
    assert (await find(Stores(bucket=["a*", "ab"]), "s3://bucket/a*")).files == (listed("a*"),)


async def test_a_tuple_is_a_list() -> None:
    stores = Stores(bucket=[])
    assert await find(stores, ("s3://bucket/a.p", "s3://bucket/b.p")) == FileBlock(
        (named("s3://bucket/a.p"), named("s3://bucket/b.p")), NOTHING, 0
    )


async def test_a_version_is_no_extension() -> None:
    stores = Stores(bucket=["t_v1.2/x"])
    assert await find(stores, "s3://bucket/t_v1.2") == FileBlock((listed("t_v1.2/x"),), NOTHING, 1)


@pytest.mark.parametrize("keys", [[], ["d/_SUCCESS"], {"d/x": 0}], ids=["none", "hidden", "marker"])
async def test_a_directory_without_a_data_file(keys: Any) -> None:
    with pytest.raises(ObjectNotFoundError) as caught:
        await find(Stores(bucket=keys), "s3://bucket/d/")
    assert str(caught.value) == (
        "s3://bucket/d/: the directory holds no data file "
        "(names that begin with _ or . and empty markers do not count)"
    )


async def test_the_first_failure_of_several_listings_is_raised_plainly() -> None:
    with pytest.raises(ObjectNotFoundError, match="s3://bucket/none/: the directory holds no data file"):
        await find(Stores(bucket=["d/x"]), ["s3://bucket/d/", "s3://bucket/none/"])


# -- globs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "keys", "prefix"),
    [
        ("t/*.parquet", ["t/1.parquet", "t/2.parquet"], "t"),
        ("t/**/*.parquet", ["t/1.parquet", "t/2.parquet", "t/u/3.parquet", "t/v.parquet/part-0"], "t"),
        ("*/[12].parquet", ["t/1.parquet", "t/2.parquet"], ""),
        ("t/?/3.*", ["t/u/3.parquet"], "t"),
        ("t/v*", ["t/v.parquet/part-0"], "t"),
        ("t/u*/", ["t/u/3.parquet", "t/u/w/4"], "t"),
        ("t/_log/*", ["t/_log/5.parquet"], "t/_log"),
        ("t/x[1].parquet", ["t/x[1].parquet"], "t"),
        ("s*r/*", ["s*r/6"], ""),
    ],
)
async def test_a_glob(pattern: str, keys: list[str], prefix: str) -> None:
    stores = Stores(
        bucket=[
            "t/2.parquet",
            "t/1.parquet",
            "t/u/3.parquet",
            "t/u/w/4",
            "t/_log/5.parquet",
            "t/v.parquet/part-0",
            "t/v.parquet/_SUCCESS",
            "s*r/6",
            "t/x[1].parquet",
            "t/.x",
        ]
    )
    if pattern == "t/**/*.parquet":
        keys = [*keys[:3], "t/x[1].parquet"]
    elif pattern == "t/*.parquet":
        keys = [*keys, "t/x[1].parquet"]
    found = await find(stores, f"s3://bucket/{pattern}")
    assert found == FileBlock(tuple(listed(key) for key in keys), NOTHING, 1)
    assert stores.listed == [(S3, prefix)]


async def test_an_object_of_exactly_that_name_goes_before_the_pattern() -> None:
    stores = Stores(bucket=["t/a*.parquet", "t/ab.parquet", "t/x[1]", "t/x1"])
    assert (await find(stores, "s3://bucket/t/a*.parquet")).files == (listed("t/a*.parquet"),)
    assert (await find(stores, "s3://bucket/t/x[1]")).files == (listed("t/x[1]"),)


async def test_globbing_switched_off() -> None:
    stores = Stores(bucket=["t/ab.parquet"])
    url = "s3://bucket/t/a*.parquet"
    assert await find(stores, url, glob=False) == FileBlock((named(url),), NOTHING, 0)
    assert stores.listed == []


async def test_a_pattern_that_nothing_matches() -> None:
    with pytest.raises(ObjectNotFoundError) as caught:
        await find(Stores(bucket=["t/x"]), "s3://bucket/t/*.parquet")
    assert str(caught.value) == (
        "s3://bucket/t/*.parquet: nothing matches the pattern "
        "(an object whose name holds *, ? or [ is named with `glob=False`)"
    )


# -- partitions ----------------------------------------------------------------------------------

FLIGHTS = ["t/year=2013/month=02/b", "t/year=2013/month=01/a", "t/year=2012/month=12/c"]


async def test_hive_directories_become_typed_columns() -> None:
    found = await find(Stores(bucket=FLIGHTS), "s3://bucket/t/")
    assert found == FileBlock(
        (
            listed("t/year=2012/month=12/c", (2012, 12)),
            listed("t/year=2013/month=01/a", (2013, 1)),
            listed("t/year=2013/month=02/b", (2013, 2)),
        ),
        pa.schema([("year", pa.int64()), ("month", pa.int64())]),
        1,
    )


async def test_of_a_directory_only_what_is_below_it_counts() -> None:
    found = await find(Stores(bucket=FLIGHTS), "s3://bucket/t/year=2013")
    assert found.partition_schema == pa.schema([("month", pa.int64())])
    assert [file.partition for file in found.files] == [(1,), (2,)]


async def test_named_files_patterns_and_several_directories_count_whole_paths() -> None:
    year = pa.schema([("year", pa.int64()), ("month", pa.int64())])
    stores = Stores(bucket=FLIGHTS)
    for source in (
        [f"{S3}/t/year=2013/month=01/a.x", f"{S3}/t/year=2013/month=02/b.x"],
        "s3://bucket/t/year=2013/month=*/*",
        ["s3://bucket/t/year=2013/month=01/", "s3://bucket/t/year=2013/month=02"],
    ):
        found = await find(stores, source)
        assert found.partition_schema == year
        assert [file.partition for file in found.files] == [(2013, 1), (2013, 2)]
    bare = f"{S3}/t/year=2013/month=01/a"  # which may be a directory, until it is listed
    alone = await find(Stores(bucket=["t/year=2013/month=01/a"]), bare)
    assert (alone.partition_schema, [file.partition for file in alone.files]) == (year, [(2013, 1)])
    alone = await find(stores, "s3://bucket/t/year=2013/month=01/a.x")
    assert alone == FileBlock((named(f"{S3}/t/year=2013/month=01/a.x", (2013, 1)),), year, 0)


async def test_a_query_string_is_no_directory() -> None:
    url = "https://host/t/year=2013/a.parquet?X-Sig=b/month=7/c"
    found = await find(Stores(), url)
    assert found.partition_schema == pa.schema([("year", pa.int64())])
    assert [file.partition for file in found.files] == [(2013,)]


async def test_partitioning_none_and_a_schema() -> None:
    stores = Stores(bucket=FLIGHTS)
    off = await find(stores, "s3://bucket/t/", partitioning=None)
    assert off == FileBlock(tuple(listed(key) for key in sorted(FLIGHTS)), NOTHING, 1)
    types = pa.schema([("month", pa.string()), ("year", pa.int16())])
    given = await find(stores, "s3://bucket/t/", partitioning=types)
    assert given.partition_schema == types
    assert [file.partition for file in given.files] == [("12", 2012), ("01", 2013), ("02", 2013)]


async def test_a_directory_of_two_minds() -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        await find(Stores(bucket=["t/a=1/x", "t/y"]), "s3://bucket/t/")
    assert str(caught.value) == (
        "s3://bucket/t/y: partition keys none here, but a in s3://bucket/t/a=1/x "
        "(`partitioning=None` reads the files without partition columns)"
    )


async def test_an_equals_sign_in_a_file_name_is_no_partition() -> None:
    found = await find(Stores(bucket=["t/a=1.parquet"]), "s3://bucket/t/")
    assert found == FileBlock((listed("t/a=1.parquet"),), NOTHING, 1)


# -- the file system -----------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "t/k=a b/x y.parquet",
        "t/k=%C3%A9%2F=z/é%20.parquet",
        "t/k=__HIVE_DEFAULT_PARTITION__/[1].parquet",
        "t/_SUCCESS",
        "t/.hidden/y.parquet",
        "g/1.parquet",
        "g/12.parquet",
        "g/x.parquet/part-0",
        "g/deep/er/2.parquet",
        "plain",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PAR1")
    return tmp_path


class Local:
    def client(self, root: str) -> Client:
        assert root == "file://"
        return Client(FileStore(), root=root, token="t", options=Options())


async def find_local(source: Any, **options: Any) -> FileBlock:
    return await discover(source, clients=Local(), rules=PathRules(**options), metrics=Metrics())


def version(path: str) -> tuple[int, str]:
    found = os.stat(path)
    return found.st_size, etag_of(found)


async def test_a_local_directory_with_odd_names(tree: Path) -> None:
    metrics = Metrics()
    found = await discover(tree / "t", clients=Local(), rules=PathRules(), metrics=metrics)
    root = str(tree / "t")
    names = ["k=%C3%A9%2F=z/é%20.parquet", "k=__HIVE_DEFAULT_PARTITION__/[1].parquet", "k=a b/x y.parquet"]
    assert found.partition_schema == pa.schema([("k", pa.string())])
    assert [(f.root, f.path, f.url, f.size, f.partition) for f in found.files] == [
        ("file://", f"{root[1:]}/{name}", f"{root}/{name}", 4, (value,))
        for name, value in zip(names, ["é/=z", None, "a b"], strict=True)
    ]
    assert all(f.etag for f in found.files)
    assert (found.round_trips, metrics.requests) == (1, 1)


async def test_a_local_file_that_is_empty_is_one_whatever_its_name(tmp_path: Path) -> None:
    """It is being written, or was cut off: its rows must not be missed."""
    for name in ("part-0", "part-1", "sub_$folder$"):
        (tmp_path / name).write_bytes(b"PAR1" if name == "part-0" else b"")
    found = await find_local(str(tmp_path))
    assert [(file.url, file.size) for file in found.files] == [
        (f"{tmp_path}/part-0", 4),
        (f"{tmp_path}/part-1", 0),
    ]


@pytest.mark.parametrize("name", ["plain", "t/k=__HIVE_DEFAULT_PARTITION__/[1].parquet"])
async def test_a_local_file_takes_no_request_whatever_its_name(tree: Path, name: str) -> None:
    path = str(tree / name)
    file = FileEntry("file://", path[1:], path, *version(path))
    assert await find_local(path, partitioning=None) == FileBlock((file,), NOTHING, 0)


async def test_relative_paths_keep_the_users_words(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tree / "t" / "k=a b"
    monkeypatch.chdir(below)
    absolute = str(below)[1:]
    name = "x y.parquet"
    file = FileEntry("file://", f"{absolute}/{name}", name, *version(name))
    assert await find_local(name) == FileBlock((file,), NOTHING, 0)
    assert await find_local("*.parquet") == FileBlock((file,), NOTHING, 0)
    assert [f.url for f in (await find_local(".")).files] == ["./x y.parquet"]
    assert [f.url for f in (await find_local("../../g/*2.parquet")).files] == ["../../g/12.parquet"]


async def test_file_urls_are_percent_encoded(tree: Path) -> None:
    url = f"file://{tree}/t/k=a%20b/"
    path = f"{tree}/t/k=a b/x y.parquet"[1:]
    for source in (url, f"{url}x%20*.parquet", f"{url}x%20y.parquet"):
        found = await find_local(source, partitioning=None)
        assert [(f.path, f.url) for f in found.files] == [(path, f"{url}x%20y.parquet")]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("g/*.parquet", ["g/1.parquet", "g/12.parquet"]),
        ("g/**/*.parquet", ["g/1.parquet", "g/12.parquet", "g/deep/er/2.parquet"]),
        ("g/x.*", ["g/x.parquet/part-0"]),
        ("g/d*/", ["g/deep/er/2.parquet"]),
        ("**/2.parquet", ["g/deep/er/2.parquet"]),
        ("t/.h*/*", ["t/.hidden/y.parquet"]),
    ],
)
async def test_a_local_glob(tree: Path, pattern: str, names: list[str]) -> None:
    found = await find_local(f"{tree}/{pattern}", partitioning=None)
    assert [f.url for f in found.files] == [f"{tree}/{name}" for name in names]
    assert [f.path for f in found.files] == [f"{tree}/{name}"[1:] for name in names]


async def test_a_local_glob_enters_only_what_can_match(tree: Path) -> None:
    entered: list[str] = []
    scandir = os.scandir

    def watch(path: str) -> Any:
        entered.append(str(path))
        return scandir(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "scandir", watch)
        await find_local(f"{tree}/g/*2.parquet")
    assert entered == [f"{tree}/g/"]


async def test_links_are_followed_but_not_in_circles(tree: Path) -> None:
    (tree / "g" / "again").symlink_to(tree / "g")
    (tree / "g" / "broken.parquet").symlink_to(tree / "nowhere")
    (tree / "g" / "link.parquet").symlink_to(tree / "g" / "1.parquet")
    (tree / "h").symlink_to(tree / "g")
    found = await find_local(f"{tree}/h/**/*.parquet")
    assert [f.url for f in found.files] == [
        f"{tree}/h/{name}" for name in ("1.parquet", "12.parquet", "deep/er/2.parquet", "link.parquet")
    ]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("none.parquet", ""),
        ("none", ""),
        ("none/x", ""),
        ("plain/", " (what stands before a slash there is a file, not a directory)"),
    ],
)
async def test_a_local_path_that_does_not_exist(tree: Path, name: str, hint: str) -> None:
    with pytest.raises(ObjectNotFoundError) as caught:
        await find_local(f"{tree}/{name}")
    assert str(caught.value) == f"{tree}/{name}: there is no such file or directory{hint}"
    assert isinstance(caught.value, FileNotFoundError)


async def test_a_local_pattern_that_nothing_matches(tree: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match="nothing matches the pattern"):
        await find_local(f"{tree}/none/*.parquet")


# -- the rest ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "kind"),
    [(7, TypeError), (["s3://b/x.p", None], TypeError), ("ftp://h/x", StoreError), ("", StoreError)],
    ids=str,
)
async def test_what_is_no_source(source: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await find(Stores(), source)


async def test_what_is_no_partitioning() -> None:
    with pytest.raises(ValueError, match="partitioning is 'hive', None, or a pyarrow.Schema, not 'delta'"):
        await find(Stores(), "s3://b/x.p", partitioning="delta")


async def test_an_empty_list_is_an_empty_listing() -> None:
    assert await find(Stores(), []) == FileBlock((), NOTHING, 0)


async def test_thousands_of_files_take_linear_time() -> None:
    keys = [f"t/day={n % 400:03}/part-{n:06}.parquet" for n in range(40_000)]
    stores = Stores(bucket=keys)
    started = time.perf_counter()
    found = await find(stores, "s3://bucket/t/")
    named_files = await find(stores, [f"{S3}/{key}" for key in keys])
    elapsed = time.perf_counter() - started
    assert len(found.files) == len(named_files.files) == 40_000
    assert found.files[0] == listed("t/day=000/part-000000.parquet", (0,))
    assert named_files.files[-1].partition == (39_999 % 400,)
    assert elapsed < 20.0


TABLES = {
    "Delta": "_delta_log/00000000000000000000.json",
    "Hudi": ".hoodie/hoodie.properties",
    "Iceberg": "metadata/v3.metadata.json",
}


@pytest.mark.parametrize(
    "source", ["s3://bucket/t/", "s3://bucket/t/*.parquet", "s3://bucket/", "s3://bucket/*/*"]
)
@pytest.mark.parametrize("kind", TABLES)
async def test_what_a_listing_shows_to_be_a_table_is_refused(kind: str, source: str) -> None:
    """Its dropped files are still there: without a word, deleted rows would come back."""
    stores = Stores(bucket=[f"t/{TABLES[kind]}", "t/a.parquet", "t/b/c.parquet"])
    with pytest.raises(accel.TableFormatError, match=f"the files are part of an? {kind} table, 't/'") as told:
        await discover(source, clients=stores, rules=PathRules(), metrics=Metrics())
    assert told.value.path == source
    assert "`table=None` reads the files as files" in str(told.value.hint)
    metrics = Metrics()
    found = await discover(source, clients=stores, rules=PathRules(as_files=True), metrics=metrics)
    assert len(found.files) >= 1
    assert metrics.warnings == []


async def test_a_table_that_is_a_whole_bucket_is_refused() -> None:
    stores = Stores(bucket=["_delta_log/00000000000000000000.json", "a.parquet"])
    with pytest.raises(accel.TableFormatError, match="a Delta table, '/'"):
        await find(stores, "s3://bucket")
    assert (await find(stores, "s3://bucket", as_files=True)).files == (listed("a.parquet"),)


DUCKLAKE = "main/t/ducklake-01999f2a-77aa-7c5e-8f11-0123456789ab.parquet"


@pytest.mark.parametrize("source", ["s3://bucket/main/", ["s3://bucket/a", f"s3://bucket/{DUCKLAKE}"]])
async def test_files_that_are_named_like_those_of_a_table_are_refused(source: Any) -> None:
    stores = Stores(bucket=["a", DUCKLAKE])
    with pytest.raises(accel.TableFormatError, match="the files are part of a DuckLake table"):
        await discover(source, clients=stores, rules=PathRules(), metrics=Metrics())
    assert (await discover(source, clients=stores, rules=PathRules(as_files=True), metrics=Metrics())).files


@pytest.mark.parametrize("source", ["s3://bucket/t/a.parquet", "s3://bucket/t/u/"])
async def test_no_word_of_files_that_are_meant(source: str) -> None:
    stores = Stores(bucket=["t/_delta_log/0.json", "t/a.parquet", "t/u/b.parquet", "t/u/c_delta_log/d"])
    metrics = Metrics()
    await discover(source, clients=stores, rules=PathRules(), metrics=metrics)
    assert metrics.warnings == []


@pytest.mark.parametrize("kind", TABLES)
def test_a_local_table_is_refused_by_its_directory_and_by_a_pattern(kind: str, tmp_path: Path) -> None:
    mark = tmp_path / "t" / TABLES[kind]
    mark.parent.mkdir(parents=True)
    mark.write_text("{}")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "t/a.parquet")
    for source in (tmp_path / "t", tmp_path / "t/*.parquet"):
        # The directory of a format that is built is read as that table; this one's log says nothing.
        says = {"Delta": "no protocol", "Iceberg": "format version 'None'"}.get(kind)
        built = says is not None and source.name == "t"
        with pytest.raises(accel.TableFormatError, match=says if built else f"an? {kind} table"):
            accel.scan(source, "x = 1").to_table()
    assert accel.scan(tmp_path / "t/*.parquet", "x = 1", table=None).count_rows() == 1
    with pytest.raises(accel.TableFormatError):
        accel.optimize(tmp_path / "t", sort_by="x")
    assert accel.scan(tmp_path / "t/a.parquet").count_rows() == 1
    with pytest.raises(
        ValueError, match="no format of tables 'hudi' .there are delta, iceberg, ducklake, hive."
    ):
        accel.scan(tmp_path, table="hudi")  # type: ignore[arg-type]


def test_a_footer_that_names_a_table_is_refused_in_a_directory(tmp_path: Path) -> None:
    """Java's writers of Iceberg put the schema there; the directory `data/` shows nothing else."""
    rows = pa.table({"x": [1]}).replace_schema_metadata({"iceberg.schema": "{}"})
    (tmp_path / "data").mkdir()
    pq.write_table(rows, tmp_path / "data/a.parquet")
    for source in (tmp_path / "data", [tmp_path / "data/a.parquet", tmp_path / "data/a.parquet"]):
        with pytest.raises(accel.TableFormatError, match="an Iceberg table"):
            accel.scan(source).to_table()
        assert accel.scan(source, table=None).count_rows() >= 1
    assert accel.scan(tmp_path / "data/a.parquet").count_rows() == 1


@pytest.mark.parametrize(
    ("source", "options", "shown"),
    [
        ("s3://bucket/t/", {}, ["t/a", "t/u/b"]),
        ("s3://bucket/t", {"partitioning": None}, ["t/a", "t/u/b"]),
        ("s3://bucket/t/", {"partitioning": pa.schema([("day", pa.int64())])}, []),
        (["s3://bucket/t/", "s3://bucket/p/"], {}, []),
        ("s3://bucket/t/*", {}, ["t/a"]),
        ("s3://bucket/t/**", {}, ["t/a", "t/u/b"]),
        ("s3://bucket/t/*/", {}, []),
        ("s3://bucket/p/", {"partitioning": "hive"}, []),
    ],
)
async def test_files_shown_before_all_are_known(
    source: Any, options: dict[str, Any], shown: list[str]
) -> None:
    """The first half of what is listed; none that is empty, hidden, or may be at a place that makes
    columns."""
    keys = {"t/": 0, "t/_x": 9, "t/a": 9, "t/m": 0, "t/u/b": 9, "t/v": 9, "t/w": 9, "t/x": 9, "t/y": 9}
    keys |= {f"p/k={k}/a": 9 for k in range(4)}
    stores = Stores(bucket={k.rstrip("/"): size for k, size in keys.items() if k != "t/"})
    seen: list[FileEntry] = []
    found: Any = None
    try:
        found = await find(stores, source, on_entries=seen.extend, **options)
    except SchemaMismatchError:
        assert "partitioning" in options
    assert [file.path for file in seen] == shown
    assert found is None or set(seen) <= set(found.files)


async def test_a_failure_of_the_store_is_passed_on() -> None:
    class Failing:
        def client(self, root: str) -> Any:
            return self

        async def list_below(self, prefix: str, **_: Any) -> list[ObjectEntry]:
            raise StoreError("no permission to list", path=prefix, status=403)

    with pytest.raises(AccelError, match="no permission to list"):
        await discover("s3://b/t/", clients=Failing(), rules=PathRules(), metrics=Metrics())
