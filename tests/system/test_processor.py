import pytest

from xagents.system import processor


@pytest.mark.parametrize(
    'flags, told',
    [
        ('flags\t: fpu avx512f avx512_bf16', True),
        ('flags\t: fpu avx2', False),
        ('Features\t: fp bf16', True),
        ('', True),
    ],
)
def test_whether_it_multiplies_in_bfloat16(tmp_path, monkeypatch, flags, told):
    file = tmp_path / 'cpuinfo'
    file.write_text(f'processor\t: 0\n{flags}\nprocessor\t: 1\n{flags}\n')
    monkeypatch.setattr(processor, 'Path', lambda _: file)
    assert processor.cpuinfo_lines('flags', 'Features') == ([flags] if flags else [])
    assert processor.supports_bfloat16() is told
    file.unlink()
    assert processor.cpuinfo_lines('flags') == [] and processor.supports_bfloat16()
