"""Experience that was recorded: data sets in Minari's form, read and written."""

from xagents.datasets.reading import Dataset as Dataset
from xagents.datasets.reading import Recorded as Recorded
from xagents.datasets.reading import open_dataset as open_dataset
