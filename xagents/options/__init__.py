"""Options: their declaration, and all options that agents and commands share."""

from xagents.options.declaration import Option as Option
from xagents.options.declaration import Options as Options
from xagents.options.declaration import changed as changed
from xagents.options.declaration import declared_options as declared_options
from xagents.options.declaration import option as option
from xagents.options.errors import OptionError as OptionError
