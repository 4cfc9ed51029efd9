"""Panels of the dashboard: how they look. build.py says what they show."""

from grafana_foundation_sdk.builders import common, heatmap, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models.common import (
    HeatmapCellLayout,
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
    StackingMode,
)
from grafana_foundation_sdk.models.dashboard import DataSourceRef
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
WINDOW = "$__rate_interval"
THIRD, HALF, SIXTH = 8, 12, 4  # of 24 columns
HEIGHT = 8

Query = tuple[str, str]
"""An expression, and how its series are called."""


def of_process(family: str, *labels: str) -> str:
    """A family of the chosen daemons."""
    conditions = ", ".join(('instance=~"$instance"', *labels))
    return f"{family}{{{conditions}}}"


def of_pools(family: str, *labels: str) -> str:
    """A family of the chosen daemons' chosen pools."""
    return of_process(family, 'pool=~"$pool"', *labels)


def by(labels: str, expression: str) -> str:
    """The sum that keeps these labels alone."""
    return f"sum by ({labels}) ({expression})"


def rate(selected: str) -> str:
    """A counter's rate a second."""
    return f"rate({selected}[{WINDOW}])"


def lines(title: str, text: str, unit: str, *queries: Query, span: int = THIRD) -> timeseries.Panel:
    """Lines over time."""
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
    panel = timeseries.Panel().title(title).description(text).datasource(SOURCE).unit(unit)
    panel.legend(legend.show_legend(True)).min(0).fill_opacity(10)
    return panel.targets(_targets(queries)).span(span).height(HEIGHT)


def layers(title: str, text: str, unit: str, *queries: Query) -> timeseries.Panel:
    """Areas that add up."""
    panel = lines(title, text, unit, *queries, span=HALF)
    return panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(60).line_width(0)


def lengths(title: str, text: str, family: str) -> heatmap.Panel:
    """A histogram's buckets over time."""
    expression = by("le", f"increase({of_pools(f'{family}_bucket')}[{WINDOW}])")
    query = prometheus.Dataquery().expr(expression).legend_format("{{le}}").ref_id("A").format(PromQueryFormat.HEATMAP)
    rows = heatmap.RowsHeatmapOptions().layout(HeatmapCellLayout.LE)
    scale = common.ScaleDistributionConfig().type(ScaleDistribution.LINEAR)
    panel = heatmap.Panel().title(title).description(text).datasource(SOURCE).with_target(query)
    return panel.calculate(False).rows_frame(rows).scale_distribution(scale).span(HALF).height(HEIGHT)


def figure(title: str, text: str, unit: str, query: Query) -> stat.Panel:
    """One number."""
    panel = stat.Panel().title(title).description(text).datasource(SOURCE).unit(unit)
    return panel.targets(_targets((query,))).span(SIXTH).height(HEIGHT // 2)


def _targets(queries: tuple[Query, ...]) -> list[Builder[Dataquery]]:
    return [
        prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + index))
        for index, (expression, legend) in enumerate(queries)
    ]
