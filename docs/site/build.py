"""Builds the documentation site: `make site`.

The script collects the hand-written pages, the notebook, the examples and the generated pages in one folder. It
rewrites their links to targets inside this folder, and Zensical converts the folder to HTML. The build fails for a
broken link and for a reference to a name that the code does not define.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

# Python adds the folder of a script to the path, but not the root of the repository
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import yaml
from latex2mathml.converter import convert

from docs.site import pages
from docs.write_agents import LINK as CODE_LINK
from xagents.version import __version__

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / 'build' / 'site'
SITE = ROOT / 'site'
# paths of files in the site; other files keep their path below docs/
PLACES = {
    'README.md': 'index.md',
    'CHANGELOG.md': 'changelog.md',
    'benchmarks/README.md': 'measuring.md',
    'docs/agents': 'agents/index.md',
}
# suffixes of files that are shown as code, and their languages
SHOWN = {'.py': 'python', '.toml': 'toml', '.cfg': 'ini', '.sh': 'bash', '.yaml': 'yaml'}
# parts of a page in order of precedence: a link to code, code (kept as it is), any other link or picture
TOKEN = re.compile(
    rf'{CODE_LINK.pattern}|(?P<code>^ *```.*?^ *```$|`[^`\n]+`)'
    r'|(?P<before>\]\()(?P<target>(?!https?://|#)[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=\))',
    re.DOTALL | re.MULTILINE,
)
# a formula in the output of pymdownx.arithmatex
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.+?)\\[)\]]</\1>', re.DOTALL)


def build(site: Path = SITE, work: Path = WORK) -> None:
    """Build the site.

    Args:
        site: folder of the HTML, which is replaced.
        work: folder of the collected pages.

    Raises:
        ValueError: for a broken link, anchor, picture or name; the message contains the page.
    """
    shutil.rmtree(work, ignore_errors=True)
    for place, text in gathered():
        target = work / 'pages' / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())
    (work / 'mkdocs.yml').write_text(yaml.safe_dump(settings(work / 'pages')))
    command = [sys.executable, '-m', 'zensical', 'build', '--strict']
    made = subprocess.run(command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if made.returncode:
        raise ValueError(re.sub(r'\x1b\[[\d;]*m', '', made.stdout).partition('Traceback (most recent')[0].strip())
    for page in (work / 'site').rglob('*.html'):
        page.write_text(FORMULA.sub(mathml, page.read_text()))
    dead = list(dead_links(work / 'site'))
    if dead:
        raise ValueError('\n'.join(dead))
    shutil.rmtree(site, ignore_errors=True)
    shutil.move(work / 'site', site)


def dead_links(site: Path) -> Iterator[str]:
    """Yield one line for each broken link and picture of a built site."""
    texts = {page: page.read_text() for page in site.rglob('*.html') if page.name != '404.html'}
    anchors = {page: set(map(html.unescape, re.findall(r'\bid="?([^"\s>]+)', text))) for page, text in texts.items()}
    for page, text in texts.items():
        for target in set(map(html.unescape, re.findall(r'\b(?:href|src)="([^"]*)"', text))):
            place, _, anchor = target.partition('#')
            if re.match(r'[a-z]+:', target) or anchor.startswith('__'):
                continue
            file = Path(os.path.normpath(page.parent / unquote(place.partition('?')[0]))) if place else page
            if not file.exists() or (anchor and unquote(anchor) not in anchors.get(file, ())):
                yield f'{page.relative_to(site)}: {target} is a broken link'


def settings(pages_folder: Path) -> dict[str, Any]:
    """Return the settings of the site, with the folders of this machine and the collected pages.

    MkDocs with the Material theme can read the settings file, too.
    """
    found = yaml.safe_load((HERE / 'mkdocs.yml').read_text())
    found |= {'docs_dir': pages_folder.name, 'site_dir': 'site', 'copyright': f'xagents {__version__}, MIT licence'}
    found['nav'] = [unfolded(entry, pages_folder) for entry in found['nav']]
    (reference,) = [plugin['mkdocstrings'] for plugin in found['plugins'] if 'mkdocstrings' in plugin]
    reference['handlers']['python']['paths'] = [str(ROOT)]
    return found


def gathered() -> Iterator[tuple[str, str | bytes]]:
    """Yield the path in the site and the content of each page and picture."""
    for source in sources():
        place, path = path_of(source), ROOT / source
        if path.suffix == '.md':
            yield place, linked(path.read_text(), source)
        elif path.suffix == '.ipynb':
            yield place, linked(notebook(path.read_text()), source)
        elif path.suffix in SHOWN:
            yield place, f'# {path.name}\n\n`{source}`\n\n```{SHOWN[path.suffix]}\n{path.read_text()}```\n'
        else:
            yield place, path.read_bytes()
    yield from pages.made_pages()


def sources() -> list[str]:
    """Return the files of the repository that have a page or are shown on a page."""
    found = ['README.md', 'CHANGELOG.md', 'benchmarks/README.md']
    for folder, pattern in (
        *(('docs', '*.md'), ('docs', '*.ipynb'), ('docs/agents', '*.md'), ('examples', '**/*.md')),
        *(('img', '**/*.png'), ('img', '**/*.gif')),
        *(('docs/site', '*.css'), ('docs/site', '*.js'), *(('examples', f'**/*{suffix}') for suffix in SHOWN)),
    ):
        found += sorted(str(path.relative_to(ROOT)) for path in (ROOT / folder).glob(pattern))
    return found


def path_of(source: str) -> str:
    """Return the path in the site of a file of the repository."""
    place = PurePosixPath(PLACES.get(source, source))
    if place.parts[:2] == ('docs', 'site'):
        return f'assets/{place.name}'
    if place.parts[0] == 'docs':
        place = place.relative_to('docs')
    if place.suffix == '.ipynb':
        return str(place.with_suffix('.md'))
    return f'{place}.md' if place.suffix in SHOWN else str(place)


def linked(text: str, source: str) -> str:
    """Return a page with its links rewritten to pages of the site.

    Links to code lead to the reference on the page of the package.

    Raises:
        ValueError: for a link to a file that has no page.
    """
    known, folder = set(sources()), PurePosixPath(source).parent
    here = PurePosixPath(path_of(source)).parent

    def at(place: str) -> str:
        return os.path.relpath(place, here)

    def rewritten(link: re.Match[str]) -> str:
        if link['code']:
            return link[0]
        shown = link['path'] or link['target']
        target = os.path.normpath(folder / shown)
        if link['name'] and target.startswith('xagents/'):
            return f'[`{link["name"]}`]({at(pages.anchor(pages.module_of(ROOT / target), link["name"]))})'
        if target not in known and target not in PLACES:
            raise ValueError(f'{source}: links to {shown}, which has no page')
        before = f'[`{link["name"]}`](' if link['name'] else link['before']
        return f'{before}{at(path_of(target))}{link["anchor"] or ""}' + ')' * bool(link['name'])

    return TOKEN.sub(rewritten, text)


def notebook(text: str) -> str:
    """Return a notebook with its outputs as Markdown."""
    parts = []
    for cell in json.loads(text)['cells']:
        source = ''.join(cell['source'])
        parts.append(source if cell['cell_type'] == 'markdown' else f'```python\n{source}\n```')
        parts += filter(None, map(notebook_output, cell.get('outputs', ())))
    return '\n\n'.join(parts)


def notebook_output(output: dict[str, Any]) -> str:
    """Return an output of a notebook as Markdown: a picture, or the printed text."""
    data = output.get('data', {})
    if 'image/png' in data:
        return f'<img alt="Output" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    text = ''.join(output.get('text', data.get('text/plain', '')))
    return f'```text\n{text.rstrip()}\n```' if text.strip() else ''


def unfolded(entry: Any, pages_folder: Path) -> Any:
    """Return an entry of the navigation with `folder/*` replaced by the pages of the folder.

    Pages of packages follow their index page, in alphabetical order.
    """
    if not isinstance(entry, dict):
        return entry
    ((title, inside),) = entry.items()
    if isinstance(inside, list):
        return {title: [unfolded(one, pages_folder) for one in inside]}
    if not inside.endswith('/*'):
        return entry
    folder = pages_folder / inside.removesuffix('/*')
    if folder.name == 'packages':
        return {
            title: [
                'packages/index.md',
                *({f'xagents.{name}': f'packages/{name}.md'} for name in sorted(pages.packages())),
            ]
        }
    found = sorted(folder.rglob('*.md'))
    return {
        title: [{str(page.relative_to(folder).with_suffix('')): str(page.relative_to(pages_folder))} for page in found]
    }


def mathml(formula: re.Match[str]) -> str:
    """Return a formula as MathML, which browsers draw without a script."""
    tag, opened, latex = formula.groups()
    # MathML Core has no double-struck style, but Unicode has the letter
    latex = html.unescape(latex).replace(r'\mathbb E', '𝔼')
    return f'<{tag} class="formula">{convert(latex, display="block" if opened == "[" else "inline")}</{tag}>'


if __name__ == '__main__':
    try:
        build()
    except ValueError as error:
        sys.exit(f'The site was not built:\n{error}')
    print(f'open {SITE}/index.html')
