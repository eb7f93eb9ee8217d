"""ClickBench's 43 queries by DuckDB and by Polars over accel: the rows are those of the engine's own reader.

The table is generated, and small: of ClickBench's columns it has those that the queries name. Where the order of a
query leaves rows undecided, further columns decide it.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import accel
import accel.polars

ROWS = 12_000
USER, REFERER_HASH, URL_HASH = 435090932899640449, 3594120000172545465, 2868770270353813622
DAYS = "EventDate >= DATE '2013-07-01' AND EventDate <= DATE '2013-07-31'"
SITE = f"CounterID = 62 AND {DAYS} AND DontCountHits = 0 AND IsRefresh = 0"
SITE_OF_HASHES = f"CounterID = 62 AND {DAYS} AND IsRefresh = 0"
SUMS = ", ".join(f"SUM(ResolutionWidth + {n}) AS s{n}" for n in range(90))
HOST = r"REGEXP_REPLACE(Referer, '^https?://(?:www\.)?([^/]+)/.*$', '\1')"

QUERIES = [
    "SELECT COUNT(*) FROM hits",
    "SELECT COUNT(*) FROM hits WHERE AdvEngineID <> 0",
    "SELECT SUM(AdvEngineID), COUNT(*), AVG(ResolutionWidth) FROM hits",
    "SELECT AVG(UserID) FROM hits",
    "SELECT COUNT(DISTINCT UserID) FROM hits",
    "SELECT COUNT(DISTINCT SearchPhrase) FROM hits",
    "SELECT MIN(EventDate), MAX(EventDate) FROM hits",
    "SELECT AdvEngineID, COUNT(*) AS c FROM hits WHERE AdvEngineID <> 0 GROUP BY AdvEngineID ORDER BY c DESC, 1",
    "SELECT RegionID, COUNT(DISTINCT UserID) AS u FROM hits GROUP BY RegionID ORDER BY u DESC, 1 LIMIT 10",
    "SELECT RegionID, SUM(AdvEngineID), COUNT(*) AS c, AVG(ResolutionWidth), COUNT(DISTINCT UserID) FROM hits GROUP BY RegionID ORDER BY c DESC, 1 LIMIT 10",
    "SELECT MobilePhoneModel, COUNT(DISTINCT UserID) AS u FROM hits WHERE MobilePhoneModel <> '' GROUP BY MobilePhoneModel ORDER BY u DESC, 1 LIMIT 10",
    "SELECT MobilePhone, MobilePhoneModel, COUNT(DISTINCT UserID) AS u FROM hits WHERE MobilePhoneModel <> '' GROUP BY MobilePhone, MobilePhoneModel ORDER BY u DESC, 1, 2 LIMIT 10",
    "SELECT SearchPhrase, COUNT(*) AS c FROM hits WHERE SearchPhrase <> '' GROUP BY SearchPhrase ORDER BY c DESC, 1 LIMIT 10",
    "SELECT SearchPhrase, COUNT(DISTINCT UserID) AS u FROM hits WHERE SearchPhrase <> '' GROUP BY SearchPhrase ORDER BY u DESC, 1 LIMIT 10",
    "SELECT SearchEngineID, SearchPhrase, COUNT(*) AS c FROM hits WHERE SearchPhrase <> '' GROUP BY SearchEngineID, SearchPhrase ORDER BY c DESC, 1, 2 LIMIT 10",
    "SELECT UserID, COUNT(*) AS c FROM hits GROUP BY UserID ORDER BY c DESC, 1 LIMIT 10",
    "SELECT UserID, SearchPhrase, COUNT(*) AS c FROM hits GROUP BY UserID, SearchPhrase ORDER BY c DESC, 1, 2 LIMIT 10",
    "SELECT UserID, SearchPhrase, COUNT(*) FROM hits GROUP BY UserID, SearchPhrase ORDER BY 1, 2 LIMIT 10",
    "SELECT UserID, EXTRACT(minute FROM EventTime) AS m, SearchPhrase, COUNT(*) AS c FROM hits GROUP BY UserID, m, SearchPhrase ORDER BY c DESC, 1, 2, 3 LIMIT 10",
    f"SELECT UserID FROM hits WHERE UserID = {USER}",
    "SELECT COUNT(*) FROM hits WHERE URL LIKE '%google%'",
    "SELECT SearchPhrase, MIN(URL), COUNT(*) AS c FROM hits WHERE URL LIKE '%google%' AND SearchPhrase <> '' GROUP BY SearchPhrase ORDER BY c DESC, 1 LIMIT 10",
    "SELECT SearchPhrase, MIN(URL), MIN(Title), COUNT(*) AS c, COUNT(DISTINCT UserID) FROM hits WHERE Title LIKE '%Google%' AND URL NOT LIKE '%.google.%' AND SearchPhrase <> '' GROUP BY SearchPhrase ORDER BY c DESC, 1 LIMIT 10",
    "SELECT * FROM hits WHERE URL LIKE '%google%' ORDER BY EventTime, WatchID LIMIT 10",
    "SELECT SearchPhrase FROM hits WHERE SearchPhrase <> '' ORDER BY EventTime, WatchID LIMIT 10",
    "SELECT SearchPhrase FROM hits WHERE SearchPhrase <> '' ORDER BY SearchPhrase LIMIT 10",
    "SELECT SearchPhrase FROM hits WHERE SearchPhrase <> '' ORDER BY EventTime, SearchPhrase LIMIT 10",
    "SELECT CounterID, AVG(LENGTH(URL)) AS l, COUNT(*) AS c FROM hits WHERE URL <> '' GROUP BY CounterID HAVING COUNT(*) > 1000 ORDER BY l DESC, 1 LIMIT 25",
    f"SELECT {HOST} AS k, AVG(LENGTH(Referer)) AS l, COUNT(*) AS c, MIN(Referer) FROM hits WHERE Referer <> '' GROUP BY k HAVING COUNT(*) > 100 ORDER BY l DESC, 1 LIMIT 25",
    f"SELECT {SUMS} FROM hits",
    "SELECT SearchEngineID, ClientIP, COUNT(*) AS c, SUM(IsRefresh), AVG(ResolutionWidth) FROM hits WHERE SearchPhrase <> '' GROUP BY SearchEngineID, ClientIP ORDER BY c DESC, 1, 2 LIMIT 10",
    "SELECT WatchID, ClientIP, COUNT(*) AS c, SUM(IsRefresh), AVG(ResolutionWidth) FROM hits WHERE SearchPhrase <> '' GROUP BY WatchID, ClientIP ORDER BY c DESC, 1, 2 LIMIT 10",
    "SELECT WatchID, ClientIP, COUNT(*) AS c, SUM(IsRefresh), AVG(ResolutionWidth) FROM hits GROUP BY WatchID, ClientIP ORDER BY c DESC, 1, 2 LIMIT 10",
    "SELECT URL, COUNT(*) AS c FROM hits GROUP BY URL ORDER BY c DESC, 1 LIMIT 10",
    "SELECT 1 AS one, URL, COUNT(*) AS c FROM hits GROUP BY one, URL ORDER BY c DESC, 2 LIMIT 10",
    "SELECT ClientIP, ClientIP - 1 AS a, ClientIP - 2 AS b, ClientIP - 3 AS d, COUNT(*) AS c FROM hits GROUP BY ClientIP, a, b, d ORDER BY c DESC, 1 LIMIT 10",
    f"SELECT URL, COUNT(*) AS PageViews FROM hits WHERE {SITE} AND URL <> '' GROUP BY URL ORDER BY PageViews DESC, 1 LIMIT 10",
    f"SELECT Title, COUNT(*) AS PageViews FROM hits WHERE {SITE} AND Title <> '' GROUP BY Title ORDER BY PageViews DESC, 1 LIMIT 10",
    f"SELECT URL, COUNT(*) AS PageViews FROM hits WHERE {SITE} AND IsLink <> 0 AND IsDownload = 0 GROUP BY URL ORDER BY PageViews DESC, 1 LIMIT 10 OFFSET 10",
    f"SELECT TraficSourceID, SearchEngineID, AdvEngineID, CASE WHEN SearchEngineID = 0 AND AdvEngineID = 0 THEN Referer ELSE '' END AS Src, URL AS Dst, COUNT(*) AS PageViews FROM hits WHERE {SITE} GROUP BY TraficSourceID, SearchEngineID, AdvEngineID, Src, Dst ORDER BY PageViews DESC, 1, 2, 3, 4, 5 LIMIT 10 OFFSET 10",
    f"SELECT URLHash, EventDate, COUNT(*) AS PageViews FROM hits WHERE {SITE_OF_HASHES} AND TraficSourceID IN (-1, 6) AND RefererHash = {REFERER_HASH} GROUP BY URLHash, EventDate ORDER BY PageViews DESC, 1, 2 LIMIT 10",
    f"SELECT WindowClientWidth, WindowClientHeight, COUNT(*) AS PageViews FROM hits WHERE {SITE} AND URLHash = {URL_HASH} GROUP BY WindowClientWidth, WindowClientHeight ORDER BY PageViews DESC, 1, 2 LIMIT 10",
    "SELECT DATE_TRUNC('minute', EventTime) AS M, COUNT(*) AS PageViews FROM hits WHERE CounterID = 62 AND EventDate >= DATE '2013-07-14' AND EventDate <= DATE '2013-07-15' AND IsRefresh = 0 AND DontCountHits = 0 GROUP BY M ORDER BY M LIMIT 10 OFFSET 100",
]


def _table() -> pa.Table:
    rng = np.random.default_rng(43)

    def few(values, share: float = 0.0):
        """Some values, of which the first is as frequent as `share` says."""
        chosen = rng.integers(0, len(values), ROWS)
        return np.asarray(values)[np.where(rng.random(ROWS) < share, 0, chosen)]

    seconds = np.sort(rng.integers(0, 31 * 86_400, ROWS))
    # Many hits lie in the two days of the last query.
    seconds[: ROWS // 2] = 13 * 86_400 + rng.integers(0, 2 * 86_400, ROWS // 2)
    times = np.datetime64("2013-07-01T00:00:00", "us") + seconds * np.timedelta64(1_000_000, "us")
    sites = ["http://www.google.com/", "https://maps.google.de/", "http://example.org/google/", "http://a.b/"]
    urls = ["", *(f"{site}{n}" for site in sites for n in range(40))]
    phrases = ["", *(f"phrase {n}" for n in range(200))]
    numbers = {
        "CounterID": few([62, *range(100)], 0.4).astype(np.int32),
        "ClientIP": rng.integers(-500, 500, ROWS).astype(np.int32),
        "RegionID": rng.integers(0, 30, ROWS).astype(np.int32),
        "UserID": few([USER, *rng.integers(-(2**62), 2**62, 400)]),
        "IsRefresh": few([0, 1], 0.8).astype(np.int16),
        "ResolutionWidth": rng.integers(0, 2000, ROWS).astype(np.int16),
        "WindowClientWidth": few([100, 200, 1024]).astype(np.int16),
        "WindowClientHeight": few([100, 768]).astype(np.int16),
        "MobilePhone": few([0, 1, 2, 7]).astype(np.int16),
        "SearchEngineID": few([0, 2, 3], 0.5).astype(np.int16),
        "AdvEngineID": few([0, 2, 17], 0.8).astype(np.int16),
        "TraficSourceID": few([-1, 0, 3, 6]).astype(np.int16),
        "IsLink": few([0, 1]).astype(np.int16),
        "IsDownload": few([0, 1], 0.9).astype(np.int16),
        "DontCountHits": few([0, 1], 0.8).astype(np.int16),
        "RefererHash": few([REFERER_HASH, 5, -7]),
        "URLHash": few([URL_HASH, 5, -7, 12]),
    }
    texts = {
        "Title": few(["", *(f"Google {n}" for n in range(10)), *(f"title {n}" for n in range(30))]),
        "URL": few(urls),
        "Referer": few(["", *(f"{site}{n}/" for site in sites for n in range(20))]),
        "MobilePhoneModel": few(["", "iPad", "N90", "C3"], 0.7),
        "SearchPhrase": few(phrases, 0.6),
    }
    return pa.table(
        {
            "WatchID": rng.permutation(ROWS).astype(np.int64),
            "EventTime": pa.array(times),
            "EventDate": pa.array(times.astype("datetime64[D]").astype(dt.date), pa.date32()),
            **numbers,
            **{name: values.astype(object) for name, values in texts.items()},
        }
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hits")
    table = _table()
    for part in range(2):
        rows = table.slice(part * ROWS // 2, ROWS // 2)
        pq.write_table(rows, root / f"{part}.parquet", row_group_size=2_000, write_page_index=True)
    return root


@pytest.fixture(scope="module")
def connections(files):
    with duckdb.connect() as own, duckdb.connect() as over:
        own.sql(f"CREATE VIEW hits AS FROM read_parquet('{files}/*.parquet')")
        over.register("hits", accel.dataset(str(files)))
        yield own, over


@pytest.mark.parametrize("number", range(1, 44))
def test_the_rows_of_duckdbs_own_reader(connections, number):
    own, over = connections
    expected = own.sql(QUERIES[number - 1]).fetchall()
    assert expected
    assert over.sql(QUERIES[number - 1]).fetchall() == expected


# What Polars has in its expressions, and not in its SQL.
IN_EXPRESSIONS = {
    29: lambda hits: (
        hits.filter(pl.col("Referer") != "")
        .group_by(pl.col("Referer").str.replace(r"^https?://(?:www\.)?([^/]+)/.*$", "$1").alias("k"))
        .agg(
            pl.col("Referer").str.len_bytes().mean().alias("l"), pl.len().alias("c"), pl.col("Referer").min()
        )
        .filter(pl.col("c") > 100)
        .sort(["l", "k"], descending=[True, False])
        .head(25)
    ),
    43: lambda hits: (
        hits.filter(
            (pl.col("CounterID") == 62)
            & pl.col("EventDate").is_between(dt.date(2013, 7, 14), dt.date(2013, 7, 15))
            & (pl.col("IsRefresh") == 0)
            & (pl.col("DontCountHits") == 0)
        )
        .group_by(pl.col("EventTime").dt.truncate("1m").alias("M"))
        .agg(pl.len().alias("PageViews"))
        .sort("M")
        .slice(100, 10)
    ),
}


def _by_polars(hits: pl.LazyFrame, number: int) -> pl.DataFrame:
    if number in IN_EXPRESSIONS:
        return IN_EXPRESSIONS[number](hits).collect()
    return pl.SQLContext({"hits": hits}, eager=True).execute(QUERIES[number - 1])


@pytest.mark.parametrize("number", range(1, 44))
def test_the_rows_of_polars_own_reader(files, number):
    expected = _by_polars(pl.scan_parquet(files / "*.parquet"), number)
    assert expected.height
    assert _by_polars(accel.polars.scan(str(files)), number).equals(expected)


def test_there_are_43():
    assert len(set(QUERIES)) == 43
