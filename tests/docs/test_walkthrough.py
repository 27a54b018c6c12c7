"""The notebook of the docs runs from its first cell to its last, and contains what its cells print."""

import json

import pytest

from tests.docs.test_recipes import ROOT, execute_blocks  # noqa: F401

PATH = ROOT / 'docs' / 'walkthrough.ipynb'


@pytest.fixture(scope='module')
def cells():
    notebook = json.loads(PATH.read_text())
    assert notebook['nbformat'] == 4
    return notebook['cells']


def test_it_contains_its_outputs(cells):
    for cell in cells:
        assert cell['cell_type'] in ('markdown', 'code')
    outputs = [output for cell in cells for output in cell.get('outputs', ())]
    assert not [output for output in outputs if output['output_type'] == 'error']
    assert sum('image/png' in output.get('data', {}) for output in outputs) >= 2
    assert any('greedy ' in ''.join(output.get('text', '')) for output in outputs)
    assert len({cell['id'] for cell in cells}) == len(cells)
    assert PATH.stat().st_size < 300_000


@pytest.mark.slow
def test_it_runs(cells, tmp_path, execute_blocks):  # noqa: F811
    code = [(f'cell {i}', ''.join(cell['source'])) for i, cell in enumerate(cells) if cell['cell_type'] == 'code']
    said = execute_blocks(code)
    made = tmp_path / 'walkthrough'
    assert 'greedy ' in said and 'measure' in said
    assert len(list((made / 'frames').glob('*.jpg'))) >= 1
    assert len(list(made.glob('*/seed=*/history.parquet'))) == 4
    assert (made / 'policy' / 'saved_model.pb').is_file()
