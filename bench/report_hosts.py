"""The part of the page about bench/hosts.py."""

from __future__ import annotations

import html
from typing import Any

import hosts_ratios
from matplotlib.figure import Figure
from page import origin, svg, table, verdict


def shares_plot(lines: list[dict[str, Any]]) -> str:
    """Plots the median share of each row over the bytes, a plot for each link."""
    links = list(dict.fromkeys(line["link"] for line in lines))
    if not links:
        return ""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    for axes, link in zip(figure.subplots(1, len(links), squeeze=False)[0], links, strict=True):
        here = [line for line in lines if line["link"] == link]
        for row, mpi in dict.fromkeys((line["row"], line["mpi"]) for line in here):
            points = [line for line in here if (line["row"], line["mpi"]) == (row, mpi)]
            medians = [line["median"] for line in points]
            axes.plot([line["bytes"] for line in points], medians, "o-", markersize=3, label=f"{row}, {mpi}")
        axes.set_xscale("log", base=2)
        axes.axhline(hosts_ratios.LEVEL, color="#222", linewidth=0.8)
        axes.set(title=link, xlabel="bytes", ylabel="MPI_Allreduce's time over ours, like with like")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    return svg(figure)


def hosts(result: dict[str, Any]) -> str:
    ratios = hosts_ratios.ratios(result["rounds"])
    lines = [
        [*map(html.escape, cells[:-1]), verdict(line["met"], cells[-1])]
        for line, cells in zip(ratios, hosts_ratios.cells(ratios), strict=True)
    ]
    strangers = ", ".join(f"{measured['strangers']:.1%}" for measured in result["rounds"])
    return f"""<h2>Two hosts</h2>
<p>One rank with one core on each of two hosts, which are network namespaces. Each row was started afresh in each of
{len(result["rounds"])} rounds, and is compared with others of its round; more is better, except for seconds. Others
used {strangers} of the CPU.</p>
{shares_plot([line for line in ratios if "link" in line and hosts_ratios.LIKE[line["row"]] == line["rival"]])}
{table(["what", "best", "median", "worst", "goal", ""], lines)}{origin(result)}"""
