"""Agents from options, from run directories and from weights; presets and pretrained policies."""
