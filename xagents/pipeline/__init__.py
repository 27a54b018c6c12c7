"""Recipes: stages that process a stream of contexts, one context per iteration. Does not load TensorFlow."""

from xagents.pipeline.context import Context as Context
from xagents.pipeline.context import EpisodeEnd as EpisodeEnd
from xagents.pipeline.context import Stage as Stage
from xagents.pipeline.context import Stream as Stream
from xagents.pipeline.context import kept as kept
from xagents.pipeline.recipe import Recipe as Recipe
from xagents.pipeline.recipe import lift as lift
from xagents.pipeline.recipe import stage as stage
