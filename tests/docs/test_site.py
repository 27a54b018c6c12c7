"""Tests of the documentation site: strict build, links, search in a browser, no requests to other hosts."""

import re
import time

import pytest

import xagents
from docs.site import build, pages
from tests.browser import needs_browser


@pytest.fixture(scope='module')
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp('site')
    build.build(folder / 'html', folder / 'work')
    return folder / 'html'


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Build a site of a given page and a second page."""

    def of(text):
        made = [('index.md', text), ('other.md', '# Other\n\n::: xagents.system.files\n')]
        made += [(f'assets/{file.name}', file.read_bytes()) for file in build.HERE.glob('*.[cj]s*')]
        monkeypatch.setattr(build, 'gathered', lambda: made)
        settings = build.settings
        monkeypatch.setattr(build, 'settings', lambda folder: settings(folder) | {'nav': ['index.md', 'other.md']})
        build.build(tmp_path / 'html', tmp_path / 'work')
        return (tmp_path / 'html' / 'index.html').read_text()

    return of


# contents


@pytest.mark.slow
def test_all_packages_names_and_hand_written_pages_have_pages(site):
    written = [path.stem for path in (build.ROOT / 'docs').glob('*.md')]
    for name in [*written, 'walkthrough', 'commands', 'api', *(f'packages/{package}' for package in pages.packages())]:
        assert (site / f'{name}.html').exists(), name
    assert {path.name for path in (build.ROOT / 'xagents').iterdir() if (path / '__init__.py').exists()} == set(
        pages.packages()
    )
    names = (site / 'api.html').read_text()
    assert all(f'xagents.{name}' in names for name in xagents.__all__)


@pytest.mark.slow
def test_every_page_is_in_the_navigation(site):
    front = (site / 'index.html').read_text()
    linked = set(re.findall(r'href="(?:\./)?([\w./-]+\.html)', front)) | {'index.html', '404.html'}
    assert {str(page.relative_to(site)) for page in site.rglob('*.html')} <= linked


@pytest.mark.slow
def test_a_package_page_has_imports_and_the_reference_of_its_files(site):
    text = (site / 'packages' / 'ppo.html').read_text()
    for wanted in ('id="xagents.ppo.agent.PPO.update"', 'id="xagents.ppo.cli"', 'href="a2c.html"', 'Parameters:'):
        assert wanted in text
    assert 'trpo' in pages.package_page('ppo').partition('Imported by:')[2].partition('\n')[0]


@pytest.mark.slow
def test_formulas_are_drawn_without_a_script(site):
    for page in (site / 'agents').glob('*.html'):
        text = page.read_text()
        assert 'arithmatex' not in text and '$$' not in text
        assert page.stem == 'index' or '<math' in text


@pytest.mark.slow
def test_nothing_is_loaded_from_another_host(site):
    for page in site.rglob('*.html'):
        for tag in re.findall(r'<(?:script|link|img|iframe|source)\b[^>]*>', page.read_text()):
            assert not re.search(r'(?:src|href)="(?:https?:)?//', tag), (page.name, tag)


# strictness


def test_valid_links_are_built(small):
    html = small('# A\n\n[x](other.md#xagents.system.files) [y][xagents.system.files] and $\\mathbb E_t$')
    assert 'href="other.html#xagents.system.files"' in html and '<mi>𝔼</mi>' in html


@pytest.mark.parametrize(
    'wrong',
    [
        '[x](other.md#nowhere)',
        pytest.param('<a href="other.html#nowhere">x</a>', marks=pytest.mark.slow),
        pytest.param('[x][xagents.system.files.nope]', marks=pytest.mark.slow),
        pytest.param('::: xagents.nope', marks=pytest.mark.slow),
    ],
)
def test_a_broken_link_fails_the_build(small, wrong, tmp_path):
    with pytest.raises(ValueError, match=r'does not exist|unresolved|not be found|is a broken link') as error:
        small(f'# A\n\n{wrong}\n')
    assert 'Traceback' not in str(error.value)
    assert not (tmp_path / 'html').exists()


@pytest.mark.parametrize('link', ['[x](../setup.py)', '![x](../img/none.png)', '[x](../xagents/none.py)'])
def test_an_error_contains_the_link_without_a_page(link):
    with pytest.raises(ValueError, match=r'docs/guide\.md: links to \.\./\S+, which has no page'):
        build.linked(link, 'docs/guide.md')


@pytest.mark.parametrize(
    ('source', 'text', 'wanted'),
    [
        ('README.md', '[a](docs/guide.md#off-policy-learning)', '[a](guide.md#off-policy-learning)'),
        ('README.md', '![a](img/cartpole.gif)', '![a](img/cartpole.gif)'),
        ('docs/guide.md', '[a](walkthrough.ipynb) `[b](none.md)`', '[a](walkthrough.md) `[b](none.md)`'),
        ('docs/guide.md', '```\n[b](none.md)\n```\n[c](https://a.b)', '```\n[b](none.md)\n```\n[c](https://a.b)'),
        (
            *('docs/agents/ppo.md', '[`PPO.update`](../../xagents/ppo/agent.py#L7)'),
            '[`PPO.update`](../packages/ppo.md#xagents.ppo.agent.PPO.update)',
        ),
        # a link to a private name leads to its public owner
        (
            *('docs/agents/ppo.md', '[`PPO._made`](../../xagents/ppo/agent.py#L7)'),
            '[`PPO._made`](../packages/ppo.md#xagents.ppo.agent.PPO)',
        ),
    ],
)
def test_links_lead_inside_the_site(source, text, wanted):
    assert build.linked(text, source) == wanted


# in a browser


@pytest.fixture
def page(browser, site):
    """Open a page as a file, and check at the end that all requests were local and none failed."""
    page = browser.new_page()
    asked, wrong = [], []
    page.on('request', lambda request: asked.append(request.url))
    page.on('pageerror', lambda error: wrong.append(str(error)))
    page.on('requestfailed', lambda request: wrong.append(request.url))
    yield page
    page.close()
    assert asked and not wrong
    assert all(url.startswith((site.as_uri(), 'data:', 'blob:')) for url in asked)


@needs_browser
@pytest.mark.parametrize(
    ('typed', 'leads_to'),
    [
        ('--max-kl', 'options.html#-max-kl'),
        ('xagents.policy', 'api.html#xagentspolicy'),
    ],
)
@pytest.mark.slow
def test_search_finds_options_and_names(page, site, typed, leads_to):
    page.goto(f'{site.as_uri()}/index.html')
    assert page.title().endswith('xagents')
    page.get_by_role('button', name='Search').first.click()
    page.get_by_role('combobox').press_sequentially(typed, delay=20)
    found = page.get_by_role('option')

    def places():
        return [re.sub(r'\?[^#]*', '', one.get_attribute('href')) for one in found.all()[:3]]

    # each key starts a search: the list may still show the results of an earlier one
    until = time.monotonic() + 20
    while not any(place.endswith(leads_to) for place in places()):
        assert time.monotonic() < until, places()
        time.sleep(0.05)
    found.nth([place.endswith(leads_to) for place in places()].index(True)).click()
    page.wait_for_url(re.compile(re.escape(leads_to.partition('#')[2]) + '$'))
    assert page.get_by_role('heading', name=typed).first.is_visible()


@needs_browser
@pytest.mark.parametrize('width', [400, 1280])
@pytest.mark.slow
def test_pages_fit_and_turn_dark(page, site, width):
    page.set_viewport_size({'width': width, 'height': 900})
    page.emulate_media(color_scheme='light')
    for name in ('index', 'guide', 'walkthrough', 'agents/ppo', 'packages/collecting', 'commands', 'gallery'):
        page.goto(f'{site.as_uri()}/{name}.html')
        assert page.locator('h1').first.is_visible()
        assert page.evaluate('document.documentElement.scrollWidth') <= width, name
    light = page.evaluate('getComputedStyle(document.body).backgroundColor')
    page.locator('label[title="Dark"]:visible').click()
    dark = page.evaluate('getComputedStyle(document.body).backgroundColor')
    assert light != dark
