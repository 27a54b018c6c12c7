"""Charts for a page: SVG whose colours are variables of the page's style, drawn for narrow and for wide screens.

Matplotlib draws the charts. Its SVG has fixed colours, ids that repeat in a page with several charts, and metadata;
they are replaced here. Texts stay texts, in the font and colour of the page.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from xagents.reports.plotting import COLOURS, plot_history

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# units of the SVG, which are pixels if the chart has its natural width; the height and the size of texts
SIZES = {'narrow': (360, 290, 11.5), 'wide': (760, 360, 13.0)}
UNITS_PER_INCH = 72
SVG, XLINK = 'http://www.w3.org/2000/svg', 'http://www.w3.org/1999/xlink'
# colours of Matplotlib in the plots of this package, and the variables of the page
GREYS = {'#999999': 'axis', '#b8bcc2': 'axis', '#e6e6e6': 'grid', '#e5e5e5': 'grid', '#000000': 'text'}
BLUES = {'#1f6fb4': 'c0'}
# the last of COLOURS is the colour of texts, so it is not used for curves of a page
CURVE_COLOURS = COLOURS[:6]
_COLOUR = re.compile(r'#[0-9a-f]{6}\b')
# attributes with coordinates; a tenth of a unit is less than anyone sees
GEOMETRY = ('d', 'x', 'y', 'transform')
_NUMBER = re.compile(r'-?\d+\.\d+')
_FONT = re.compile(r'font-family:[^;]*;?\s*')
_REFERENCE = re.compile(r'url\(#([^)]+)\)')


class CurveKey(NamedTuple):
    """An entry of the legend of a chart.

    Attributes:
        label: name of the curve.
        colour: number of its colour, from 0.
        n: number of runs that the curve averages.
        last: last value of the curve.
    """

    label: str
    colour: int
    n: int
    last: float


class Chart(NamedTuple):
    """A chart of a page.

    Attributes:
        title: what the chart shows.
        description: the same in a sentence with numbers, for people who cannot see it.
        narrow: SVG for narrow screens.
        wide: SVG for wide screens.
        legend: entries of the legend.
        notes: lines below the chart.
    """

    title: str
    description: str
    narrow: str
    wide: str
    legend: Sequence[CurveKey] = ()
    notes: Sequence[str] = ()


def make_chart(
    draw: Callable[[Figure], object],
    name: str,
    title: str,
    describe: Callable[[], str],
    height: float = 1.0,
    titles: Mapping[str, str] | None = None,
) -> Chart:
    """Draw a chart in both sizes.

    Args:
        draw: function that draws on an empty figure.
        name: name of the chart, unique in its page, of letters, digits and dashes.
        title: title of the chart.
        describe: function that returns the description of the chart; it is called after `draw`.
        height: height as a multiple of the usual one.
        titles: texts that appear when the pointer is on an element, by its gid; `draw` may add them.
    """
    import matplotlib
    from matplotlib.figure import Figure

    pictures = {}
    for size, (width, usual, text) in SIZES.items():
        settings: Any = {'svg.fonttype': 'none', 'svg.hashsalt': f'{name}-{size}', 'text.parse_math': False}
        settings |= {'font.size': text, 'axes.labelsize': text, 'xtick.labelsize': text, 'ytick.labelsize': text}
        with matplotlib.rc_context(settings):
            inches = (width / UNITS_PER_INCH, usual * height / UNITS_PER_INCH)
            figure = Figure(figsize=inches, layout='constrained')
            draw(figure)
            figure.patch.set_visible(False)
            for axes in figure.axes:
                axes.patch.set_visible(False)
                axes.set_title('')
                if size == 'narrow':
                    axes.locator_params(axis='x', nbins=5)
            written = io.BytesIO()
            figure.savefig(written, format='svg', metadata={'Date': None})
        pictures[size] = _adapt(written.getvalue(), f'{name}-{size}', title, describe(), titles or {})
    return Chart(title, describe(), pictures['narrow'], pictures['wide'])


def _adapt(svg: bytes, name: str, title: str, description: str, titles: Mapping[str, str]) -> str:
    """Return an SVG of Matplotlib for a page: with variables as colours, unique ids and texts for screen readers."""
    ElementTree.register_namespace('', SVG)
    ElementTree.register_namespace('xlink', XLINK)
    root = ElementTree.fromstring(svg)
    referenced = set(_REFERENCE.findall(svg.decode())) | {
        use.get(f'{{{XLINK}}}href', '')[1:] for use in root.iter(f'{{{SVG}}}use')
    }
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f'{{{SVG}}}metadata', f'{{{SVG}}}style'):
                parent.remove(child)
    for element in root.iter():
        gid = element.get('id')
        if gid is not None and gid in titles:
            line = ElementTree.Element(f'{{{SVG}}}title')
            line.text = titles[gid]
            element.insert(0, line)
        if gid is not None and gid not in referenced:
            del element.attrib['id']
        for attribute in ('style', 'fill', 'stroke'):
            if (value := element.get(attribute)) is not None:
                element.set(attribute, _FONT.sub('', _COLOUR.sub(_variable, value)))
        for attribute in GEOMETRY:
            if (value := element.get(attribute)) is not None:
                element.set(attribute, ' '.join(_NUMBER.sub(lambda number: f'{float(number[0]):.1f}', value).split()))
    for attribute in ('width', 'height', 'version'):
        root.attrib.pop(attribute, None)
    root.attrib |= {'class': 'chart', 'role': 'img', 'aria-labelledby': f'{name}-title {name}-text'}
    for position, (tag, text) in enumerate({'title': title, 'desc': description}.items()):
        element = ElementTree.Element(f'{{{SVG}}}{tag}', {'id': f'{name}-{"title" if tag == "title" else "text"}'})
        element.text = text
        root.insert(position, element)
    return ElementTree.tostring(root, encoding='unicode')


def _variable(match: re.Match[str]) -> str:
    """Return the variable of the page for a colour."""
    colours = {colour.lower(): f'c{index}' for index, colour in enumerate(CURVE_COLOURS)} | GREYS | BLUES
    return f'var(--{colours[match[0]]})'


def curve_chart(
    frames: Sequence[pd.DataFrame],
    labels: Sequence[str],
    column: str,
    name: str,
    title: str,
    colours: dict[str, int] | None = None,
) -> Chart:
    """Draw the curves of runs over steps: the interquartile mean of the runs of a label, with its 95 % interval.

    At most `len(CURVE_COLOURS)` curves are drawn, those with the best last values.

    Args:
        frames: the curve of each run, with the columns step and `column`.
        labels: label of each run. Runs with equal labels are averaged.
        column: column to draw.
        name: name of the chart, unique in its page.
        title: title of the chart.
        colours: numbers of the colours of labels in earlier charts of the page. New labels are added.

    Raises:
        ValueError: if runs with equal labels have no common range of steps, or there is no number.
    """
    last: dict[str, list[float]] = {}
    for frame, label in zip(frames, labels, strict=True):
        values = frame[column].to_numpy(float)
        last.setdefault(label, []).append(float(values[np.isfinite(values)][-1]))
    means = {label: sum(values) / len(values) for label, values in last.items()}
    shown = sorted(means, key=lambda label: -means[label])[: len(CURVE_COLOURS)]
    members = [(f, label) for label in shown for f, one in zip(frames, labels, strict=True) if one == label]
    colours = {} if colours is None else colours
    free = [index for index in range(len(CURVE_COLOURS)) if index not in [colours.get(label) for label in shown]]
    colours |= {label: free.pop(0) for label in shown if label not in colours}
    legend: list[CurveKey] = []
    titles: dict[str, str] = {}

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        # matplotlib hides labels that begin with an underscore, so the legend belongs to the page
        names = [str(shown.index(label)) for _, label in members]
        plot_history([f for f, _ in members], names, plot=column, average='iqm', ax=axes)
        if (drawn := axes.get_legend()) is not None:
            drawn.remove()
        axes.set_ylabel('mean reward')
        legend[:] = []
        bands = iter(axes.collections)
        for label, line in zip(shown, axes.lines, strict=True):
            colour, n = colours[label], len(last[label])
            line.set_color(CURVE_COLOURS[colour])
            line.set_gid(f'curve-{colour}')
            if n > 1:
                next(bands).set_color(CURVE_COLOURS[colour])
            legend.append(CurveKey(label, colour, n, float(np.asarray(line.get_ydata())[-1])))
            titles[f'curve-{colour}'] = f'{label}: {legend[-1].last:.2f} at the end'

    def describe() -> str:
        return f'{title} over environment steps. {"; ".join(f"{key.label} ends at {key.last:.2f}" for key in legend)}.'

    chart = make_chart(draw, name, title, describe, titles=titles)
    notes = []
    if len(shown) < len(means):
        notes.append(f'The {len(shown)} of {len(means)} curves with the best last values. The tables have all.')
    if any(key.n > 1 for key in legend):
        notes.append('Line: interquartile mean of the runs. Area: 95 % bootstrap confidence interval.')
    return chart._replace(legend=legend, notes=notes)
