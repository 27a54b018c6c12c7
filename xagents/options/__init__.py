"""What can be said: how an option is declared, and every option that is not one agent's own."""

from xagents.options.declaration import Option as Option
from xagents.options.declaration import Options as Options
from xagents.options.declaration import changed as changed
from xagents.options.declaration import declared_options as declared_options
from xagents.options.declaration import option as option
from xagents.options.errors import OptionError as OptionError
