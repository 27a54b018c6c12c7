import os
import subprocess
import sys

SCRIPT = """
import os, sys
from xagents.system.startup import prepare_exit

class Log:
    def __init__(self, name):
        self.file, self.itself = open(name, 'w'), self
        self.file.write('a line')

Log('forgotten.txt')
held = Log('held.txt')
binary = open('binary', 'wb')
binary.write(b'bytes')
closed = open('closed', 'w')
closed.close()
prepare_exit()
os._exit(0)
"""


def test_what_was_written_is_in_its_file_when_a_command_ends_soon(tmp_path):
    subprocess.run([sys.executable, '-c', SCRIPT], cwd=tmp_path, check=True, timeout=60, env=dict(os.environ))
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {'forgotten.txt': b'a line', 'held.txt': b'a line', 'binary': b'bytes', 'closed': b''}
