"""`python -m bench`: accel and what one would use instead, on the same bytes, in one run.

Writes bench/report/ and prints the table. With --gate it fails when ratios are worse than the committed
baseline's.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from bench import micros
from bench.data.catalog import Catalog, make_catalog, upload
from bench.data.scale import QUICK, of_factor
from bench.document import CaseNote, Document, about_machine, read_document, write_document
from bench.gate import BASELINE, compare, figures, read_baseline, update_baseline
from bench.network import BANDWIDTH, BUCKET, FIRST_BYTE, Store, slow_network
from bench.peers.registry import PEERS
from bench.plots import draw_all
from bench.queries import Query
from bench.room import what_is_short
from bench.runner import Effort, Runner
from bench.suite import FIVE, FLIGHT, FLIGHTS, SYNTHETIC, Case, Mode, cases
from bench.tables import aligned, markdown, overview
from bench.targets import verdicts

REPORT = Path(__file__).with_name("report")

_QUICK = Effort(
    samples={Mode.COLD: 4, Mode.WARM: 8, Mode.REPEATED: 8},
    heavy_samples=2,
    sweep_samples=1,
    at_once_modes=(Mode.WARM,),
    budget=2.0,
    least=1,
    turn=0.2,
)
_WHOLE = Effort(
    samples={Mode.COLD: 20, Mode.WARM: 60, Mode.REPEATED: 20},
    heavy_samples=5,
    sweep_samples=10,
    at_once_modes=tuple(Mode),
    budget=40.0,
    least=2,
    brisk_rounds=3,
    turn=0.4,
)
_LARGER = 4.0
_THE_REST = "cases that are not here"
_ONLY_ALL = "what is compared are ratios to all systems"
_AFTERWARDS = 60.0
"""Seconds of --minutes for ending the systems and for the pictures."""
_FIRST = (
    Query("first", (FLIGHTS,), FLIGHT, (("carrier", "=", "HA"), ("dep_delay", ">", 60))),
    Query("first", (SYNTHETIC,), FIVE, (("key", "=", 300),)),
)
"""Asked of every system before all cases: whatever it imports or starts on its first queries is no part of
them."""
_NOT_QUICK = {
    "spark": "its start takes longer than the quick run has",
    "arro3": "it reads whole files, having neither filters nor columns",
    "datafusion-pushdown": "the quick run has DataFusion as it comes",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, report, compare; 0 when all went well, 1 when answers differ, the gate is shut, or the run was
    stopped."""
    given = parse_arguments(arguments)
    # Ended by a signal, it takes its servers and systems with it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    started = time.monotonic()

    def tell(line: str) -> None:
        print(f"[{time.monotonic() - started:6.1f} s] {line}", flush=True)

    if given.again:
        document = read_document(given.report / "report.json")
    else:
        document = _run(given, tell)
        given.report.mkdir(parents=True, exist_ok=True)
        write_document(document, given.report / "report.json")
    _write(document, given.report, tell)
    print()
    print(aligned(overview(document)))
    print()
    found = verdicts(document)
    print(aligned([("target", "measured", "met"), *((v.target, v.measured, v.word) for v in found)]))
    machine = document.machine
    print(
        f"\nAbsolute times are this machine's ({machine['cores']} cores, load {machine['load']}): compare ratios. "
        f"All of it: {given.report / 'report.md'}"
    )
    return judge(document, given)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="small data, few samples: some four minutes")
    parser.add_argument(
        "--scale", type=float, default=1, help="TPC-H scale factor of lineitem (default 1; 10)"
    )
    parser.add_argument("--systems", help=f"some of {','.join(PEERS)}")
    parser.add_argument("--cases", help="names of cases, with commas between them")
    parser.add_argument("--micro", choices=("no", "yes"), help="micro-benchmarks (default: unless --quick)")
    parser.add_argument(
        "--budget", type=float, help="seconds of each mode of each case after which no round begins"
    )
    parser.add_argument(
        "--minutes", type=float, help="of the whole run: each mode of each case gets its part of what is left"
    )
    parser.add_argument(
        "--store",
        type=Store,
        choices=tuple(Store),
        default=Store.MEMORY,
        help="memory (the default): MinIO answers each object once, then its bytes come from the memory of the proxy, "
        "as two cores cannot be store and client at once; minio: every request reaches MinIO",
    )
    parser.add_argument("--gate", action="store_true", help="fail when worse than the baseline")
    parser.add_argument("--update-baseline", action="store_true", help=f"write {BASELINE.name}")
    parser.add_argument("--again", action="store_true", help="do not run: read the last report")
    parser.add_argument("--report", type=Path, default=REPORT, help="the folder of the report")
    given = parser.parse_args(arguments)
    if given.systems and (given.gate or given.update_baseline):
        parser.error(f"--systems goes with neither --gate nor --update-baseline: {_ONLY_ALL}")
    given.systems = given.systems.split(",") if given.systems else None
    given.cases = {name.strip() for name in given.cases.split(",")} if given.cases else None
    unknown = set(given.systems or ()) - PEERS.keys()
    if unknown:
        parser.error(f"no such systems: {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    return given


def _run(given: argparse.Namespace, tell: Callable[[str], None]) -> Document:
    """Make the data, start everything, ask all cases."""
    started = time.monotonic()
    scale = QUICK if given.quick else of_factor(given.scale)
    skipped: dict[str, str] = {}
    names = list(given.systems or PEERS)
    if given.quick and not given.systems:
        skipped |= {name: f"{why}; --systems names it" for name, why in _NOT_QUICK.items()}
        names = [name for name in names if name not in _NOT_QUICK]
    if not scale.by_spark:
        skipped["lineitem as Spark writes it"] = "the quick run starts no Spark"
    for name, why in skipped.items():
        tell(f"skipped: {name}: {why}")
    catalog = make_catalog(scale)
    every = cases(catalog)
    unknown = (given.cases or set()) - {case.name for case in every}
    if unknown:
        there = ", ".join(dict.fromkeys(case.name for case in every))
        raise SystemExit(f"no such cases: {', '.join(sorted(unknown))}; there are {there}")
    chosen = [case for case in every if not given.cases or case.name in given.cases]
    machine = about_machine()
    effort = _QUICK if given.quick else _WHOLE
    # Scans of a larger table take longer, whoever does them.
    larger = min(_LARGER, max(1.0, scale.lineitem))
    effort = replace(
        effort,
        budget=given.budget or effort.budget,
        patience=larger * effort.patience,
        limit=larger * effort.limit,
    )
    if given.minutes:
        effort = replace(effort, deadline=started + 60 * given.minutes - _AFTERWARDS)
    runner = _ask(_needed(catalog, chosen), chosen, names, effort, given.store, tell)
    if runner.stopped:
        skipped[_THE_REST] = "the run was stopped"
    micro: dict[str, dict[str, float]] = {}
    if runner.stopped:
        skipped["micro-benchmarks"] = skipped[_THE_REST]
    elif given.micro == "yes" or not (given.micro or given.quick or given.cases):
        micro, missing = micros.run_micros(micros.ALL, tell)
        skipped |= missing
    else:
        skipped["micro-benchmarks"] = "they take minutes; --micro yes runs them"
    return Document(
        scale=scale.name,
        systems=names,
        cases={case.name: CaseNote.of(case) for case in chosen},
        samples=runner.samples,
        failures=runner.failures,
        skipped=skipped,
        micro=micro,
        machine=machine,
        network={"first_byte": FIRST_BYTE, "bandwidth": BANDWIDTH},
        store=given.store,
        effort={
            "budget": effort.budget,
            "least": effort.least,
            "patience": effort.patience,
            "limit": effort.limit,
            "share": effort.share,
            "turn": effort.turn,
            "minutes": given.minutes,
        },
        only={
            name: sorted(named)
            for name, named in {"systems": given.systems, "cases": given.cases}.items()
            if named
        },
    )


def _needed(catalog: Catalog, chosen: Sequence[Case]) -> Catalog:
    """What these cases, and the first queries, read."""
    queries = [*_FIRST, *(query for case in chosen for query in case.met)]
    return catalog.only({path for query in queries for path in query.paths})


def _ask(
    catalog: Catalog,
    chosen: Sequence[Case],
    names: Sequence[str],
    effort: Effort,
    store: Store,
    tell: Callable[[str], None],
) -> Runner:
    short = what_is_short(catalog.bytes, store)
    if short:
        raise SystemExit(short)
    with slow_network(store, cache_bytes=catalog.bytes) as network:
        upload(catalog, BUCKET, network.storage_options)
        network.read(key for key, _ in catalog.objects())
        tell(f"{catalog.bytes / 1e6:,.0f} MB in {len(catalog.objects()):,} objects are up")
        runner = Runner(network, names, effort, tell)
        try:
            runner.open(_FIRST)
            runner.run(chosen)
        except (KeyboardInterrupt, SystemExit):
            if not runner.samples:
                raise
            runner.stopped = True
            tell("stopped: the report has what was asked so far")
        finally:
            runner.close()
    return runner


def _write(document: Document, folder: Path, tell: Callable[[str], None]) -> None:
    """The table and the pictures."""
    (folder / "report.md").write_text(markdown(document, verdicts(document)))
    pictures = draw_all(document, folder)
    tell(f"{len(pictures)} plots and report.md are in {folder}")


def judge(document: Document, given: argparse.Namespace) -> int:
    """Whether the answers agree, and the gate.

    A run of some cases is compared with these, and made the baseline of these; one whose answers differ, or
    of some systems, of none.
    """
    status = 0
    for failure in document.wrong:
        print(f"WRONG: {failure.system}, {failure.case}, {failure.mode}: {failure.text}", file=sys.stderr)
        status = 1
    if _THE_REST in document.skipped:
        print("the run was stopped: it is neither compared nor made the baseline", file=sys.stderr)
        return 1
    if (given.gate or given.update_baseline) and document.only.get("systems"):
        print(f"the run is neither compared nor made the baseline: {_ONLY_ALL}", file=sys.stderr)
        return 1
    of = given.cases or document.only.get("cases")
    if given.update_baseline and document.wrong:
        print("the answers differ: the run is not made the baseline", file=sys.stderr)
    elif given.update_baseline:
        update_baseline(document, cases=of)
        print(f"{BASELINE.name} now has this run as {document.setting}")
    if given.gate:
        before = read_baseline(document.setting)
        if before is None:
            print(
                f"the gate: {BASELINE.name} has nothing for {document.setting}; --update-baseline",
                file=sys.stderr,
            )
            return 1
        worse = compare(figures(document), before, cases=of)
        for regression in worse:
            print(f"WORSE: {regression}", file=sys.stderr)
        print(f"the gate: {len(worse)} figures are worse than the baseline" if worse else "the gate: passed")
        status = 1 if worse else status
    return status


if __name__ == "__main__":
    raise SystemExit(main())
