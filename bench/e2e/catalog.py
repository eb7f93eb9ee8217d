"""The catalog against its targets: questions by bounds and keys, catalogs of many files, building, memory,
size.

Isolated: what an index outside the files costs and saves, over real MinIO behind a network of 30 ms to the
first byte and 90 MB/s a response, each system in a process of its own. The swept variable is the number of
files.

`python -m bench.e2e.catalog [--quick] [case...]` prints each number beside its target.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from bench.e2e import catalog_generated, catalog_network
from bench.e2e.figures import Figure, print_figures
from bench.network import Network, slow_network

NETWORK_CASES: dict[str, Callable[[Network, bool], list[Figure]]] = {
    "files": catalog_network.real_files,
    "keys": catalog_network.keys,
    "texts": catalog_network.texts,
    "build": catalog_network.building,
}
LOCAL_CASES: dict[str, Callable[[bool], list[Figure]]] = {"many": catalog_generated.many_files}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer files and keys")
    parser.add_argument("cases", nargs="*", help=f"some of {' '.join([*NETWORK_CASES, *LOCAL_CASES])}")
    given = parser.parse_args()
    cases = given.cases or [*NETWORK_CASES, *LOCAL_CASES]
    unknown = set(cases) - NETWORK_CASES.keys() - LOCAL_CASES.keys()
    if unknown:
        parser.error(f"no such cases: {' '.join(sorted(unknown))}")
    figures: list[Figure] = []
    if any(case in NETWORK_CASES for case in cases):
        with slow_network() as network:
            for case in cases:
                if case in NETWORK_CASES:
                    figures += NETWORK_CASES[case](network, given.quick)
    for case in cases:
        if case in LOCAL_CASES:
            figures += LOCAL_CASES[case](given.quick)
    print_figures(figures)


if __name__ == "__main__":
    main()
